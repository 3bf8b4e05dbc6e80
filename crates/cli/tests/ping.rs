//! `shunt ping` and `shunt echo` end to end: against the kernel of another host, against echoes that others wrote, and
//! against peers that answer badly. How fast this machine is is no matter here.

#![allow(clippy::unwrap_used)] // a failure here ends the test, as it should

use std::{
    net::{TcpListener, UdpSocket},
    process::{Command, Output},
    thread,
};

use serde_json::Value;
use testkit::{Host, Lab, PATIENCE, Program, host, two_hosts};

const SHUNT: &str = env!("CARGO_BIN_EXE_shunt");
/// The kernel of host a.
const PEER: &str = "10.77.0.1";

fn output(mut command: Command, words: &[&str]) -> Output {
    command.arg("ping").args(words).output().unwrap()
}

/// Runs `shunt ping --json` on a host; its status and result.
fn ping_on(on: &Host, words: &str) -> (i32, Value) {
    let words: Vec<&str> = words.split(' ').chain(["--json"]).collect();
    result(&output(on.command(SHUNT).unwrap(), &words))
}

fn ping_here(words: &str) -> (i32, Value) {
    let words: Vec<&str> = words.split(' ').chain(["--json"]).collect();
    result(&output(Command::new(SHUNT), &words))
}

fn result(output: &Output) -> (i32, Value) {
    let errors = String::from_utf8_lossy(&output.stderr);
    let status = output.status.code().unwrap();
    assert!(status < 2, "{errors}");
    (
        status,
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {errors}")),
    )
}

/// What was sent, received and lost.
fn counts(found: &Value) -> (u64, u64, u64) {
    let count = |key: &str| found["counts"][key].as_u64().unwrap();
    (count("sent"), count("received"), count("lost"))
}

fn figure(found: &Value, key: &str) -> f64 {
    found["round_trip"][key].as_f64().unwrap()
}

fn started(lab: &Lab, says: &str, program: &str, words: &[&str]) -> Program {
    let mut program = testkit::start(host(lab, "a"), program, words);
    let said =
        |program: &Program| program.stdout().contains(says) || program.stderr().contains(says);
    program
        .wait_until(says, PATIENCE, said)
        .unwrap_or_else(|error| panic!("{error}"));
    program
}

/// Everything that was answered took some time, and no time is made up.
fn assert_sound(found: &Value) {
    let least = figure(found, "min_us");
    let (mean, most) = (figure(found, "mean_us"), figure(found, "max_us"));
    assert!(least > 0.0 && least <= mean && mean <= most, "{found}");
    let cells = found["round_trip"]["histogram"].as_array().unwrap();
    let inside: u64 = cells.iter().map(|cell| cell[1].as_u64().unwrap()).sum();
    assert_eq!(inside, counts(found).1);
    assert_eq!(inside, found["round_trip"]["count"].as_u64().unwrap());
}

#[test]
fn the_kernel_of_another_host_answers_icmp_of_both_families_and_refuses_what_is_closed() {
    let lab = two_hosts("ping-kernel");
    let (a, b) = (host(&lab, "a"), host(&lab, "b"));
    let (status, found) = ping_on(b, &format!("{PEER} --count 200"));
    assert_eq!((status, counts(&found)), (0, (200, 200, 0)), "{found}");
    assert_sound(&found);
    assert_eq!(found["environment"]["interface"]["name"], "eth0");
    assert_eq!(found["environment"]["interface"]["driver"], "veth");
    if a.has_ipv6() {
        let words = format!("{} --count 20 -6", a.spec().address_v6());
        let (status, found) = ping_on(b, &words);
        assert_eq!((status, counts(&found)), (0, (20, 20, 0)), "{found}");
    }
    a.set_parameter("net.ipv4.icmp_ratelimit", "0").unwrap();
    let (status, found) = ping_on(b, &format!("{PEER} --udp --port 9 --count 20"));
    assert_eq!(
        (
            status,
            found["counts"]["answers"]["port-unreachable"].as_u64()
        ),
        (0, Some(20)),
        "{found}"
    );
    let (status, found) = ping_on(
        b,
        &format!("{PEER} --connect --port 9 --count 20 --in-flight 4"),
    );
    assert_eq!(
        (status, found["counts"]["answers"]["refused"].as_u64()),
        (0, Some(20)),
        "{found}"
    );
    assert_sound(&found);
    // Nobody has this address.
    let (status, found) = ping_on(b, "10.77.0.99 --count 2 --warm-up 0 --timeout 100ms");
    assert_eq!((status, &found["round_trip"]), (1, &Value::Null), "{found}");
    let (status, found) = ping_on(b, &format!("{PEER} --hops"));
    assert_eq!(
        (
            status,
            &found["reached"],
            found["hops"].as_array().unwrap().len()
        ),
        (0, &Value::Bool(true), 1)
    );
}

#[test]
fn shunt_echo_answers_every_kind() {
    let lab = two_hosts("ping-echo");
    let b = host(&lab, "b");
    let _echo = started(&lab, "[::]:7007", SHUNT, &["echo"]);
    let frames = started(&lab, "serving frames", SHUNT, &["echo", "--raw", "eth0"]);
    let address = frames
        .stdout()
        .trim()
        .rsplit(' ')
        .next()
        .unwrap()
        .to_owned();
    let asked = [
        format!("{PEER} --udp --count 500"),
        format!("{PEER} --udp --count 500 --size 1472 --df --in-flight 16"),
        format!("{PEER} --tcp --count 500 --size 1"),
        format!("{PEER} --tcp --count 50 --size 300000 --in-flight 8"),
        format!("{PEER} --tcp --count 500 --spin --burst 10"),
        format!("{PEER} --connect --count 500"),
        format!("{address} --raw --nic eth0 --count 640 --burst 64"),
        format!("{} --udp --count 100", host(&lab, "a").spec().address_v6()),
        format!("{} --tcp --count 100", host(&lab, "a").spec().address_v6()),
    ];
    for words in asked {
        if words.starts_with("fd") && !b.has_ipv6() {
            continue;
        }
        let (status, found) = ping_on(b, &words);
        let (sent, received, lost) = counts(&found);
        assert_eq!((status, received, lost), (0, sent, 0), "{words}: {found}");
        assert_sound(&found);
    }
    let (_, found) = ping_on(b, &format!("{PEER} --udp --rate 2000 --count 200 --spin"));
    assert_eq!(
        found["lateness"]["count"], found["counts"]["sent"],
        "{found}"
    );
    assert!(figure(&found, "mean_us") >= found["from_sending"]["mean_us"].as_f64().unwrap());
    let (_, found) = ping_on(b, &format!("{PEER} --udp --sizes 64,512,1024 --count 50"));
    assert_eq!(found["sizes"].as_array().unwrap().len(), 3, "{found}");
    assert!(
        found["fit"]["intercept"].as_f64().unwrap() > 0.0
            && found["fit"]["slope_error"].as_f64().unwrap() > 0.0
    );
}

/// Runs `ip` on a host; false where it is not installed, which is said.
fn ip(on: &Host, words: &str) -> bool {
    if !testkit::world::missing(&["ip"]).is_empty() {
        testkit::world::skip(module_path!(), "not installed: ip");
        return false;
    }
    testkit::run(on, "ip", &words.split(' ').collect::<Vec<&str>>());
    true
}

#[test]
fn frames_go_from_one_port_of_a_host_to_another() {
    let lab = two_hosts("ping-ports");
    let a = host(&lab, "a");
    if !ip(a, "link add port0 type veth peer name port1") {
        return;
    }
    ip(a, "link set port0 up");
    ip(a, "link set port1 up");
    for burst in [1, 64] {
        let words = format!("--raw --nic port0,port1 --spin --count 640 --burst {burst}");
        let (status, found) = ping_on(a, &words);
        assert_eq!((status, counts(&found)), (0, (640, 640, 0)), "{found}");
        assert_sound(&found);
    }
}

#[test]
fn a_router_that_a_hop_limit_ends_at_is_named() {
    let lab = two_hosts("ping-hops");
    let (a, b) = (host(&lab, "a"), host(&lab, "b"));
    // Host a sends back to b what b sends to this network, and b drops it.
    if !ip(b, "route add 10.98.0.0/24 via 10.77.0.1") {
        return;
    }
    ip(a, "route add 10.98.0.0/24 via 10.77.0.2");
    for (name, value) in [
        ("net.ipv4.ip_forward", "1"),
        ("net.ipv4.conf.eth0.send_redirects", "0"),
        ("net.ipv4.icmp_ratelimit", "0"),
    ] {
        a.set_parameter(name, value).unwrap();
    }
    for kind in ["--icmp", "--udp"] {
        let words = format!("10.98.0.5 --hops --ttl 2 --count 2 --timeout 200ms {kind}");
        let (status, found) = ping_on(b, &words);
        assert_eq!(
            (status, &found["reached"]),
            (1, &Value::Bool(false)),
            "{found}"
        );
        let [first, second] = [0, 1].map(|hop| &found["hops"][hop]["counts"]);
        assert_eq!(first["answers"]["time-exceeded"], 2, "{found}");
        assert_eq!(first["routers"][PEER], 2, "{found}");
        assert_eq!(second["received"], 0, "{found}");
    }
}

#[test]
fn echoes_that_others_wrote_are_measured() {
    let missing = testkit::world::missing(&["socat"]);
    if !missing.is_empty() {
        testkit::world::skip(module_path!(), "not installed: socat");
        return;
    }
    let lab = two_hosts("ping-socat");
    let b = host(&lab, "b");
    let serving = ["TCP-LISTEN:9999,fork,reuseaddr", "UDP-RECVFROM:9998,fork"];
    let _echoes =
        serving.map(|socket| started(&lab, "on AF=2", "socat", &["-d", "-d", socket, "EXEC:cat"]));
    for words in [
        "--tcp --port 9999 --count 300 --size 700",
        "--udp --port 9998 --count 30",
    ] {
        let (status, found) = ping_on(b, &format!("{PEER} {words}"));
        let (sent, received, lost) = counts(&found);
        assert_eq!((status, received, lost), (0, sent, 0), "{words}: {found}");
        assert_sound(&found);
    }
}

/// A UDP peer of this process that answers as `answer` says, until the process ends.
fn bad_peer(
    mut answer: impl FnMut(&UdpSocket, &[u8], std::net::SocketAddr) + Send + 'static,
) -> u16 {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    thread::spawn(move || {
        let mut buffer = [0; 2048];
        while let Ok((count, from)) = socket.recv_from(&mut buffer) {
            answer(&socket, &buffer[..count], from);
        }
    });
    port
}

#[test]
fn garbage_duplicates_and_late_answers_are_counted_and_end_nothing() {
    let mut number = 0_u32;
    let mut held: Option<Vec<u8>> = None;
    let port = bad_peer(move |socket, message, from| {
        number += 1;
        let mut changed = message.to_vec();
        match number % 5 {
            // Each answer twice.
            0 => {
                socket.send_to(message, from).unwrap();
                socket.send_to(message, from).unwrap();
            }
            // Nothing of this run, of every length.
            1 => {
                socket
                    .send_to(&vec![0xff; usize::try_from(number).unwrap()], from)
                    .unwrap();
                socket.send_to(message, from).unwrap();
            }
            // A byte is wrong.
            2 => {
                changed[20] ^= 1;
                socket.send_to(&changed, from).unwrap();
            }
            // A probe that will be sent in a thousand years.
            3 => {
                changed[8] = 0xff;
                socket.send_to(&changed, from).unwrap();
                socket.send_to(message, from).unwrap();
            }
            // Too late: with the next one of its kind.
            _ => {
                if let Some(before) = held.replace(message.to_vec()) {
                    socket.send_to(&before, from).unwrap();
                }
            }
        }
    });
    let (status, found) = ping_here(&format!(
        "127.0.0.1 --udp --port {port} --count 25 --warm-up 0 --timeout 500ms"
    ));
    let count = |key: &str| found["counts"][key].as_u64().unwrap();
    assert_eq!(
        (status, count("sent"), count("received"), count("lost")),
        (1, 25, 15, 10),
        "{found}"
    );
    assert_eq!(
        (
            count("duplicates"),
            count("corrupted"),
            count("foreign"),
            count("late")
        ),
        (5, 5, 10, 4),
        "{found}"
    );
}

#[test]
fn a_connection_that_ends_is_a_failure_and_no_answer() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || drop(listener.accept()));
    let (status, found) = ping_here(&format!("127.0.0.1 --tcp --port {port} --count 5"));
    assert_eq!(
        (status, found["counts"]["received"].as_u64()),
        (1, Some(0)),
        "{found}"
    );
    assert!(found["ended_early"].as_str().is_some());
    // Nobody listens on port 1.
    let (status, found) = ping_here("127.0.0.1 --tcp --port 1 --count 5");
    assert_eq!(
        (status, found["counts"]["sent"].as_u64()),
        (1, Some(0)),
        "{found}"
    );
    assert!(
        found["ended_early"].as_str().unwrap().contains("refused"),
        "{found}"
    );
}

#[test]
fn an_address_of_the_own_kernel_is_said_to_be_one_where_an_engine_serves() {
    let lab = two_hosts("ping-own-kernel");
    let _echo = started(&lab, "7007", SHUNT, &["echo"]);
    let run = "run --nic eth0 --address 10.77.0.90/24 --";
    let words = "ping 10.77.0.1 --tcp --count 5 --json";
    let line = run.split(' ').chain([SHUNT]).chain(words.split(' '));
    let line: Vec<&str> = line.collect();
    let (_, found) = result(
        &testkit::command(host(&lab, "a"), SHUNT, &line)
            .output()
            .unwrap(),
    );
    let warnings = found["warnings"].to_string();
    assert!(warnings.contains("this host's own kernel"), "{found}");
}

#[test]
fn ctrl_c_ends_it_with_what_was_measured() {
    let (answered, answers) = std::sync::mpsc::channel();
    let port = bad_peer(move |socket, message, from| {
        socket.send_to(message, from).unwrap();
        let _ = answered.send(());
    });
    let words = format!("ping 127.0.0.1 --udp --port {port} --seconds 1000 --json");
    let child = Command::new(SHUNT)
        .args(words.split(' '))
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    for _ in 0..100 {
        answers.recv_timeout(PATIENCE).unwrap();
    }
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let found = child.wait_with_output().unwrap();
    let (status, found) = result(&found);
    let (sent, received, lost) = counts(&found);
    // What was on its way then is neither answered nor lost.
    assert!(
        received > 90 && (status, received, lost) == (0, sent, 0),
        "{found}"
    );
    assert_sound(&found);
}

#[test]
fn limits_decide_the_status_and_samples_are_written() {
    let port = bad_peer(|socket, message, from| drop(socket.send_to(message, from)));
    let file = std::env::temp_dir().join(format!("shunt-ping-{}.csv", std::process::id()));
    let words = format!(
        "127.0.0.1 --udp --port {port} --count 20 --warm-up 2 --samples {}",
        file.display()
    );
    let (status, found) = ping_here(&format!("{words} --limit max=60s"));
    assert_eq!((status, counts(&found)), (0, (20, 20, 0)), "{found}");
    let samples = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    let times: Vec<f64> = samples
        .lines()
        .skip(1)
        .map(|line| line.rsplit(',').next().unwrap().parse::<f64>().unwrap() / 1e3)
        .collect();
    assert_eq!(times.len(), 20);
    let mean = times.iter().sum::<f64>() / 20.0;
    assert!((mean - figure(&found, "mean_us")).abs() < 1e-6);
    let (status, found) = ping_here(&format!(
        "127.0.0.1 --udp --port {port} --count 5 --limit min=1ns"
    ));
    assert_eq!(
        (status, found["exceeded"].as_array().unwrap().len()),
        (1, 1),
        "{found}"
    );
    // Nothing lies above the 99th of five.
    let (status, found) = ping_here(&format!(
        "127.0.0.1 --udp --port {port} --count 5 --limit p99=60s"
    ));
    assert!(
        status == 1
            && found["exceeded"][0]
                .as_str()
                .unwrap()
                .contains("not measured"),
        "{found}"
    );
}

#[test]
fn wrong_usage_names_the_flag() {
    let wrong = [
        ("127.0.0.1 --size 3", "--size"),
        ("127.0.0.1 --udp --rate 1000000", "--timeout"),
        ("127.0.0.1 --limit p98=1ms", "p99=250us"),
        ("127.0.0.1 --raw", "--nic"),
        ("127.0.0.1 --raw --nic nothing", "--nic"),
        ("127.0.0.1 --cpu 9999", "--cpu"),
        ("127.0.0.1 --seconds 0", "--seconds"),
        ("127.0.0.1 --timeout 5", "250us"),
    ];
    for (words, named) in wrong {
        let words: Vec<&str> = words.split(' ').collect();
        let found = output(Command::new(SHUNT), &words);
        let errors = String::from_utf8_lossy(&found.stderr);
        assert_eq!(found.status.code(), Some(2), "{words:?}: {errors}");
        assert!(errors.contains(named), "{words:?}: {errors}");
    }
}
