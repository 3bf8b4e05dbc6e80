//! `shunt ping --compare`, `--save`, `--csv` and `--report`, and `shunt compare`. Which stack is faster here is no matter.

#![allow(clippy::unwrap_used)] // a failure here ends the test, as it should

use std::{
    net::UdpSocket,
    path::{Path, PathBuf},
    process::{Command, Output},
    thread,
};

use serde_json::Value;

const SHUNT: &str = env!("CARGO_BIN_EXE_shunt");

fn shunt(words: &str) -> Output {
    Command::new(SHUNT).args(words.split(' ')).output().unwrap()
}

fn text(words: &str) -> String {
    let found = shunt(words);
    assert!(
        found.status.success(),
        "{words}: {}",
        String::from_utf8_lossy(&found.stderr)
    );
    String::from_utf8(found.stdout).unwrap()
}

/// An echo of this process.
fn echo() -> u16 {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    thread::spawn(move || {
        let mut buffer = [0; 2048];
        while let Ok((count, from)) = socket.recv_from(&mut buffer) {
            socket.send_to(&buffer[..count], from).unwrap();
        }
    });
    port
}

/// A path that is removed when the test ends.
struct TemporaryFile(PathBuf);

impl TemporaryFile {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("shunt-ping-{}-{name}", std::process::id())))
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Every stack of every kind answers all probes, and ratios come with the first stack.
fn assert_compared(words: &str, stacks: &[&str], figures: usize) {
    let found: Value = serde_json::from_str(&text(words)).unwrap();
    let modes = found["modes"].as_array().unwrap();
    assert_eq!(modes.len(), stacks.len());
    for (mode, stack) in modes.iter().zip(stacks) {
        assert_eq!(mode["mode"], *stack, "{words}");
        let rounds = mode["rounds"].as_array().unwrap();
        assert_eq!(rounds.len(), 3);
        for round in rounds {
            assert_eq!(round["counts"]["received"], 200, "{words}: {round}");
            let name = if *stack == "kernel" {
                "kernel"
            } else {
                "Shunt"
            };
            assert!(round["stack"].as_str().unwrap().contains(name), "{round}");
        }
    }
    let ratios = found["ratios"].as_array().unwrap();
    assert_eq!(
        ratios.len(),
        (stacks.len() - 1) * figures,
        "{words}: {ratios:?}"
    );
    for ratio in ratios {
        let end = |key: &str| ratio["interval"][key].as_f64().unwrap();
        assert!(
            0.0 < end("low") && end("low") <= end("ratio") && end("ratio") <= end("high"),
            "{ratio}"
        );
    }
}

#[test]
fn each_stack_is_measured_in_turn_and_compared_with_the_first() {
    let common = "--count 200 --rounds 3 --json --max-loss 0";
    // Whoever is not reached by ARP yet loses a probe of the warm-up, which does not count.
    assert_compared(
        &format!("ping --compare kernel,inline --udp {common}"),
        &["kernel", "inline"],
        3,
    );
    assert_compared(
        &format!("ping --compare kernel,engine,inline --tcp {common}"),
        &["kernel", "engine", "inline"],
        3,
    );
    assert_compared(
        &format!("ping --compare inline,kernel --icmp {common}"),
        &["inline", "kernel"],
        3,
    );
}

#[test]
fn frames_are_compared_by_a_packet_socket_and_by_each_driver() {
    let ways = ["kernel", "af_packet", "af_xdp"];
    let common = "--count 200 --rounds 3 --json --max-loss 0";
    for more in ["", " --burst 8", " --spin"] {
        assert_compared(
            &format!("ping --raw --compare {} {common}{more}", ways.join(",")),
            &ways,
            3,
        );
    }
    let one = text("ping --raw --driver af_packet --count 40");
    assert!(one.contains("Shunt's driver af_packet"), "{one}");
}

#[test]
fn whoever_names_no_host_measures_two_of_this_machine() {
    let found: Value = serde_json::from_str(&text(
        "ping --raw --sizes 64,128,256,512,1024 --count 40 --json",
    ))
    .unwrap();
    let sizes = found["sizes"].as_array().unwrap();
    assert!(
        sizes.len() == 5 && sizes.iter().all(|size| size["counts"]["received"] == 40),
        "{found}"
    );
    assert!(found["fit"]["slope"].is_number(), "{found}");
    let found = text("ping --tcp --count 100 --graph --csv");
    assert_eq!(found.lines().count(), 2, "{found}");
}

#[test]
fn with_a_host_only_this_ends_stack_changes() {
    let lab = testkit::two_hosts("ping-stacks");
    let [a, b] = ["a", "b"].map(|name| testkit::host(&lab, name));
    let _server = testkit::once_serving(testkit::start(
        a,
        SHUNT,
        &["echo", "--listen", "10.77.0.1:7007"],
    ));
    let words = "ping 10.77.0.1 --udp --count 100 --rounds 3 --json --compare";
    let flags = "--nic eth0 --address 10.77.0.60/24";
    for (stacks, last) in [("kernel,inline", "inside"), ("kernel,engine", "beside")] {
        let line: Vec<&str> = words.split(' ').chain([stacks, "--run", flags]).collect();
        let found: Value = serde_json::from_str(&testkit::run(b, SHUNT, &line).stdout).unwrap();
        for mode in found["modes"].as_array().unwrap() {
            let rounds = mode["rounds"].as_array().unwrap();
            assert!(
                rounds
                    .iter()
                    .all(|round| round["counts"]["received"] == 100),
                "{found}"
            );
        }
        assert!(
            found["modes"][1]["rounds"][0]["stack"]
                .as_str()
                .unwrap()
                .contains(last)
        );
        // The kernel's interface has the address that the kernel uses, and none the engine's.
        assert_eq!(
            found["modes"][0]["rounds"][0]["environment"]["interface"]["name"],
            "eth0"
        );
        assert_eq!(
            found["modes"][1]["rounds"][0]["environment"]["interface"],
            Value::Null
        );
    }
}

#[test]
fn an_engine_process_is_never_measured_in_the_place_of_one_inside() {
    let lab = testkit::two_hosts("ping-places");
    let [a, b] = ["a", "b"].map(|name| testkit::host(&lab, name));
    let _echo = testkit::once_serving(testkit::start(
        a,
        SHUNT,
        &["echo", "--listen", "10.77.0.1:7007"],
    ));
    let place = "--nic eth0 --address 10.77.0.61/24";
    let compared = |stacks: &str| {
        let words = "ping 10.77.0.1 --udp --count 20 --rounds 2 --json --run";
        let line: Vec<&str> = words
            .split(' ')
            .chain([place, "--compare", stacks])
            .collect();
        testkit::start(b, SHUNT, &line)
            .finish(testkit::PATIENCE, || false)
            .unwrap()
    };
    // The engine of each round stays some seconds after its program, at the address that the next one wants.
    let found: Value = serde_json::from_str(&compared("engine,inline").stdout).unwrap();
    for (mode, is_inside) in [(0, false), (1, true)] {
        let rounds = found["modes"][mode]["rounds"].as_array().unwrap();
        assert!(
            rounds.len() == 2
                && rounds
                    .iter()
                    .all(|round| round["served"]["is_inside"] == is_inside),
            "{found}"
        );
    }
    // One that stays for another program.
    let words = "run --engine-mode process --nic eth0 --address 10.77.0.61/24 --";
    let line: Vec<&str> = words.split(' ').chain([SHUNT, "echo"]).collect();
    let _other = testkit::once_serving(testkit::start(b, SHUNT, &line));
    let refused = compared("kernel,inline");
    assert_eq!(refused.status.code(), Some(2), "{}", refused.stdout);
    assert!(
        refused
            .stderr
            .contains("@shunt/run/10.77.0.61 serves that address already"),
        "{}",
        refused.stderr
    );
    let words = "run --engine-mode inline --nic eth0 --address 10.77.0.61/24 --";
    let line: Vec<&str> = words
        .split(' ')
        .chain([SHUNT, "ping", "10.77.0.1", "--udp", "--count", "5"])
        .collect();
    let said = testkit::run(b, SHUNT, &line);
    let engine = "engine @shunt/run/10.77.0.61";
    assert!(
        said.stdout
            .contains(&format!("over Shunt, {engine} beside this program"))
            && said
                .stderr
                .contains(&format!("--engine-mode inline: {engine}")),
        "{said:?}"
    );
}

#[test]
fn what_cannot_be_compared_is_refused_by_name() {
    for (words, named) in [
        ("ping --compare kernel", "--compare"),
        ("ping --compare kernel,kernel --udp", "twice"),
        ("ping --compare kernel,inline --raw", "af_packet"),
        ("ping --compare kernel,af_xdp --udp", "--raw"),
        ("ping --driver af_xdp --udp 127.0.0.1", "--raw"),
        ("ping --nic lo --udp 127.0.0.1", "--raw"),
        ("ping 127.0.0.1 --compare kernel,inline", "ICMP"),
        ("ping --raw --nic lo", "HOST"),
        ("ping --udp -6", "-6"),
        ("compare /nothing/there", "/nothing/there"),
        ("compare /dev/null", "--save"),
    ] {
        let found = shunt(words);
        let errors = String::from_utf8_lossy(&found.stderr);
        assert_eq!(found.status.code(), Some(2), "{words}: {errors}");
        assert!(errors.contains(named), "{words}: {errors}");
    }
}

#[test]
fn saved_runs_are_compared_by_label() {
    let file = TemporaryFile::new("runs.json");
    let (name, port) = (file.path().display(), echo());
    for label in ["before", "after"] {
        for _ in 0..3 {
            text(&format!(
                "ping 127.0.0.1 --udp --port {port} --count 50 --save {name} --label {label}"
            ));
        }
    }
    let found: Value = serde_json::from_str(&text(&format!("compare {name} --json"))).unwrap();
    let groups = found["groups"].as_array().unwrap();
    let names: Vec<&str> = groups
        .iter()
        .map(|group| group["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["before", "after"]);
    assert!(
        groups
            .iter()
            .all(|group| group["runs"] == 3 && group["sent"] == 150)
    );
    assert!(groups[0]["ratios"].as_array().unwrap().is_empty());
    let ratios = groups[1]["ratios"].as_array().unwrap();
    assert!(
        ratios
            .iter()
            .all(|ratio| ratio["interval"]["low"].is_number())
            && ratios.len() == 2,
        "{ratios:?}"
    );
    // A run more: no interval without three. And one of another size, which is something else and is not compared.
    text(&format!(
        "ping 127.0.0.1 --udp --port {port} --save {name} --label once"
    ));
    text(&format!(
        "ping 127.0.0.1 --udp --port {port} --size 200 --save {name} --label larger"
    ));
    let said = text(&format!("compare {name}"));
    assert!(
        said.contains("needs three runs") && said.contains("they are not compared"),
        "{said}"
    );
    assert!(!said.contains("larger by"), "{said}");
    // A label is named once.
    assert!(said.starts_with("before: UDP echo to"), "{said}");
    for (limit, status) in [("p50=1000", 1), ("mean=1e-6", 1), ("p98=2", 2)] {
        let found = shunt(&format!("compare {name} --limit {limit}"));
        assert_eq!(found.status.code(), Some(status), "{limit}: {found:?}");
    }
    // Of these two every figure is there.
    let two = TemporaryFile::new("two.json");
    let saved = std::fs::read_to_string(file.path()).unwrap();
    let first_six: Vec<&str> = saved.lines().take(6).collect();
    std::fs::write(two.path(), first_six.join("\n") + "\n").unwrap();
    text(&format!(
        "compare {} --limit p50=1000",
        two.path().display()
    ));
    let said = shunt(&format!(
        "compare {} --limit p50=1e-6 --json",
        two.path().display()
    ));
    let found: Value = serde_json::from_slice(&said.stdout).unwrap();
    assert_eq!(said.status.code(), Some(1), "{found}");
    assert_eq!(found["exceeded"].as_array().unwrap().len(), 1, "{found}");
}

#[test]
fn ctrl_c_leaves_the_rounds_that_are_whole() {
    use std::io::{BufRead as _, Read as _};
    let mut child = std::process::Command::new(SHUNT)
        .args("ping --compare kernel,inline --udp --count 50 --rounds 1000".split(' '))
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = std::io::BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.starts_with("round 2 of 1000: inline") {
        line.clear();
        assert!(lines.read_line(&mut line).unwrap() > 0, "it ended");
    }
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let mut said = String::new();
    lines.read_to_string(&mut said).unwrap();
    let found = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&found.stdout);
    assert_eq!(found.status.code(), Some(0), "{said}{text}");
    assert!(said.contains("interrupted: what follows"), "{said}");
    let row = |name: &str| {
        let mut rows = text.lines().filter(|line| line.starts_with(name));
        let row = rows.next().unwrap_or_default().split_ascii_whitespace();
        row.take(2).map(str::to_owned).collect::<Vec<_>>()
    };
    let (kernel, inline) = (row("kernel"), row("inline"));
    assert_eq!(kernel[1], inline[1], "{text}");
    assert!(kernel[1].parse::<u32>().unwrap() >= 1, "{text}");
}

#[test]
fn a_result_is_written_as_csv_and_as_a_page_that_loads_nothing() {
    let file = TemporaryFile::new("page.html");
    let port = echo();
    let words = format!(
        "ping 127.0.0.1 --udp --port {port} --count 100 --csv --label a<b --report {}",
        file.path().display()
    );
    let lines = text(&words);
    let lines: Vec<Vec<&str>> = lines
        .lines()
        .map(|line| line.split(',').collect())
        .collect();
    let value = |name: &str| lines[1][lines[0].iter().position(|known| *known == name).unwrap()];
    assert_eq!(
        (value("sent"), value("received"), value("label")),
        ("100", "100", "a<b")
    );
    assert!(value("p50_us").parse::<f64>().unwrap() > 0.0);
    // No time lies above it.
    assert_eq!(value("p99.9_us"), "");
    let sizes = text(&format!(
        "ping 127.0.0.1 --udp --port {port} --sizes 64,128,256 --csv"
    ));
    assert_eq!(sizes.lines().count(), 4, "{sizes}");
    let found = shunt(&format!(
        "ping 127.0.0.1 --udp --port {port} --report /nothing/there.html"
    ));
    // What was measured is told although the page has no place.
    assert_eq!(found.status.code(), Some(2), "{found:?}");
    assert!(String::from_utf8_lossy(&found.stdout).contains("50 sent, 50 received"));
    let page = std::fs::read_to_string(file.path()).unwrap();
    assert!(
        page.contains("a&lt;b") && page.contains("<polyline") && page.contains("<rect"),
        "{page}"
    );
    assert_loads_nothing(&page);
    text(&format!(
        "ping --compare kernel,inline --udp --count 100 --rounds 1 --report {}",
        file.path().display()
    ));
    let page = std::fs::read_to_string(file.path()).unwrap();
    assert_eq!(page.matches("<polyline").count(), 2, "{page}");
    assert!(
        page.contains("over several stacks in turns") && page.contains(">inline</text>"),
        "{page}"
    );
    assert_loads_nothing(&page);
}

fn assert_loads_nothing(page: &str) {
    for outside in ["http", "src=", "<script", "url(", "@import"] {
        assert!(!page.contains(outside), "{outside}");
    }
}
