//! `shunt ui` as its users meet it: the page in a browser, its numbers beside the command line's, and
//! who may use it.

#![allow(clippy::unwrap_used)] // a failure here ends the test, as it should

mod browser;

use std::{fs, io::Write, path::Path, process::Command};

use browser::{Browser, served::Ui};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const SHUNT: &str = env!("CARGO_BIN_EXE_shunt");
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const READY: &str = "document.documentElement?.dataset.state === 'ready'";

/// What the command line says of a scenario.
fn told(file: &str, settings: &[&str]) -> Value {
    let mut command = Command::new(SHUNT);
    command
        .args(["sim", "run", file, "--json"])
        .current_dir(ROOT);
    for setting in settings {
        command.args(["--set", setting]);
    }
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The mean response that the page has for a stack, all its digits.
fn mean_of(browser: &mut Browser, stack: &str) -> f64 {
    let text = browser.value(&format!(
        "document.querySelector('[data-stack={stack}]').dataset.meanMs"
    ));
    text.as_str().unwrap().parse().unwrap()
}

/// Equal but for how a reader of JSON rounds the last bit.
fn same(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-14 * b.abs()
}

fn set(browser: &mut Browser, id: &str, value: &str) {
    browser.value(&format!(
        "(() => {{ const field = document.getElementById('{id}'); field.value = {value:?};
           field.dispatchEvent(new Event('change', {{ bubbles: true }})); }})()"
    ));
    browser.wait_for(READY);
}

fn click(browser: &mut Browser, id: &str) {
    browser.value(&format!("document.getElementById('{id}').click()"));
}

fn clean(browser: &mut Browser, ui: &Ui) {
    assert_eq!(browser.complaints(), Vec::<String>::new());
    let requests = browser.requests();
    assert!(requests.len() > 10, "{requests:?}");
    let fetched = requests
        .iter()
        .filter(|request| request.starts_with("http"));
    for request in fetched {
        assert!(request.starts_with(ui.origin()), "outside: {request}");
    }
}

#[test]
fn the_page_shows_the_numbers_of_the_command_line() {
    let Some(mut browser) = Browser::start("ui: numbers") else {
        return;
    };
    let ui = Ui::start(&[]);
    browser.open(&ui.url);
    browser.wait_for(READY);
    assert_eq!(
        browser.value("location.search"),
        "",
        "the token left the address bar"
    );
    let before = mean_of(&mut browser, "kernel");
    set(&mut browser, "key-workload-clients", "6");
    for stack in ["kernel", "user", "nic"] {
        let kind = format!("stack.kind={stack}");
        let told = told("scenarios/fig8.toml", &["workload.clients=6", &kind]);
        let expected = told["summary"]["response"]["mean_ms"].as_f64().unwrap();
        let shown = mean_of(&mut browser, stack);
        assert!(same(shown, expected), "{stack}: {shown} and {expected}");
    }
    assert!((before - mean_of(&mut browser, "kernel")).abs() > 1.0);
    let shown = browser.value("document.querySelector('[data-stack=kernel] .big').textContent");
    let mean = mean_of(&mut browser, "kernel");
    assert_eq!(shown, format!("{mean:.0} ms mean of all"));

    let published = browser.value("document.getElementById('processor-finding').textContent");
    assert!(
        published.as_str().unwrap().contains("(the paper: 68 %)"),
        "{published}"
    );

    // The file that the page gives is the scenario that it shows.
    click(&mut browser, "open-file");
    let file = browser.value("document.getElementById('file-text').value");
    let path = std::env::temp_dir().join(format!("shunt-ui-{}.toml", std::process::id()));
    fs::write(&path, file.as_str().unwrap()).unwrap();
    let told = told(path.to_str().unwrap(), &[]);
    let _ = fs::remove_file(&path);
    let expected = told["summary"]["response"]["mean_ms"].as_f64().unwrap();
    assert!(same(mean, expected), "{mean} and {expected}");

    // A file with a fault is pointed at; a good one is taken.
    browser.value("document.getElementById('file-text').value = '[nic]\\nclock_mhz = 0\\n'");
    click(&mut browser, "file-apply");
    browser.wait_for(
        "document.getElementById('file-error').textContent.startsWith('line 2: nic.clock_mhz')",
    );
    let marked = browser.value(
        "(() => { const t = document.getElementById('file-text'); return t.value.slice(t.selectionStart, t.selectionEnd) })()",
    );
    assert_eq!(marked, "clock_mhz = 0");
    browser.value("document.getElementById('file-text').value = '[nic]\\nclock_mhz = 75\\n[stack]\\nkind = \"nic\"\\n'");
    click(&mut browser, "file-apply");
    browser.wait_for(&format!("!document.getElementById('file').open && {READY}"));
    assert_eq!(
        browser.value("document.getElementById('key-nic-clock_mhz').value"),
        "75"
    );

    // The address is a copy of the page.
    let here = mean_of(&mut browser, "nic");
    let link = browser.value("location.href");
    browser.open(link.as_str().unwrap());
    browser.wait_for(READY);
    assert!(same(mean_of(&mut browser, "nic"), here));
    clean(&mut browser, &ui);
}

#[test]
fn the_tour_goes_from_end_to_end_and_a_fault_is_said_beside_its_control() {
    let Some(mut browser) = Browser::start("ui: tour") else {
        return;
    };
    let ui = Ui::start(&["--no-token"]);
    browser.open(&ui.url);
    browser.wait_for(READY);
    click(&mut browser, "tour-start");
    let mut titles = Vec::new();
    loop {
        browser.wait_for(READY);
        titles.push(
            browser
                .value("document.querySelector('#tour h2').textContent")
                .to_string(),
        );
        assert!(
            browser.value("document.querySelectorAll('.chart svg').length") == 4,
            "{titles:?}"
        );
        assert!(
            browser.value("document.querySelectorAll('#timeline-chart path').length > 0") == true,
            "{titles:?}"
        );
        if browser.value("document.getElementById('tour-next').disabled") == true {
            break;
        }
        click(&mut browser, "tour-next");
    }
    assert_eq!(titles.len(), 12, "{titles:?}");
    browser.value("(() => { const m = document.getElementById('key-nic-mode'); m.value = 'urgent'; m.dispatchEvent(new Event('change')) })()");
    browser.wait_for("document.documentElement?.dataset.state === 'wrong'");
    let alert = browser.value("document.getElementById('alert').textContent");
    assert!(
        alert.as_str().unwrap().contains("set nic.memory_kib"),
        "{alert}"
    );
    assert_eq!(
        browser
            .value("document.querySelector('[data-key=\"nic.mode\"]').classList.contains('wrong')"),
        true
    );
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

#[test]
fn what_leaves_the_page_is_what_it_shows() {
    let Some(mut browser) = Browser::start("ui: export") else {
        return;
    };
    let ui = Ui::start(&[]);
    browser.open(&format!("{}#scenario=fig8&stack.kind=nic", ui.url));
    browser.wait_for(READY);
    // Files are handed to the browser as blobs.
    browser.value(
        "(() => { window.saved = []; const make = URL.createObjectURL;
           URL.createObjectURL = (blob) => { window.saved.push(blob); return make.call(URL, blob); }; })()",
    );
    for id in ["get-json", "get-csv"] {
        click(&mut browser, id);
    }
    browser.value("document.querySelectorAll('[data-save]').forEach((button) => button.click())");
    let mut saved = |index: usize| {
        let text = browser.value(&format!("window.saved[{index}].text()"));
        text.as_str().unwrap().to_owned()
    };
    let told = told("scenarios/fig8.toml", &["stack.kind=nic"]);
    let mean = |value: &Value| value["summary"]["response"]["mean_ms"].as_f64().unwrap();
    let json: Value = serde_json::from_str(&saved(0)).unwrap();
    assert!(same(mean(&json), mean(&told)));
    assert_eq!(json["scenario"]["stack"]["kind"], "nic");
    let csv = saved(1);
    assert!(csv.starts_with("stack,workload.clients,"), "{csv}");
    assert_eq!(csv.lines().count(), 1 + 3 * 9, "{csv}");
    for index in 2..6 {
        let svg = saved(index);
        assert!(svg.starts_with("<?xml") && svg.contains("<svg"), "{svg}");
        assert!(
            !svg.contains("class=") && svg.contains("fill=\"rgb"),
            "{svg}"
        );
    }
    clean(&mut browser, &ui);
}

#[test]
fn nothing_sticks_out_on_a_narrow_or_a_wide_screen() {
    let Some(mut browser) = Browser::start("ui: screens") else {
        return;
    };
    let ui = Ui::start(&[]);
    for (width, height, dark, name) in [
        (390, 844, true, "narrow"),
        (1440, 1000, false, "wide"),
        (800, 900, true, "middle"),
    ] {
        browser.look(width, height, dark);
        browser.open(&ui.url);
        browser.wait_for(READY);
        let wide = browser.value("document.documentElement.scrollWidth");
        assert!(wide.as_u64().unwrap() <= u64::from(width), "{name}: {wide}");
        let ink = browser.value("getComputedStyle(document.body).color");
        let paper = browser.value("getComputedStyle(document.documentElement).backgroundColor");
        assert_ne!(ink, paper);
    }
    // Without a pointer: from the curve's plot by key.
    browser.value("document.querySelector('#response-chart svg').focus()");
    for _ in 0..2 {
        let key =
            serde_json::json!({ "type": "keyDown", "key": "ArrowRight", "code": "ArrowRight" });
        browser.call("Input.dispatchKeyEvent", key);
    }
    let read = browser.value("document.getElementById('status').textContent");
    assert!(read.as_str().unwrap().starts_with("clients 2; "), "{read}");
    clean(&mut browser, &ui);
}

#[test]
fn only_who_has_the_token_is_served_and_the_end_is_clean() {
    let mut ui = Ui::start(&[]);
    let host = format!("host: {}\r\n", ui.address());
    let token = ui.url.split_once("token=").unwrap().1.to_owned();
    let wrong_end = if token.ends_with('0') { '1' } else { '0' };
    let has = |status: String, code: &str| assert!(status.contains(code), "{status}");
    has(ui.status("GET /", &host), "401");
    has(ui.status("GET /api/scenarios", &host), "401");
    has(
        ui.status(&format!("GET /?token={}{wrong_end}", &token[..31]), &host),
        "401",
    );
    has(ui.status(&format!("GET /?token={token}"), &host), "303");
    has(
        ui.status(&format!("GET /?token={token}"), "host: shunt.example\r\n"),
        "403",
    );
    let bearer = format!("{host}authorization: Bearer {token}\r\n");
    has(ui.status("GET /api/scenarios", &bearer), "200");

    let taken = Command::new(SHUNT)
        .args(["ui", "--listen", ui.address()])
        .output()
        .unwrap();
    assert_eq!(taken.status.code(), Some(2));
    let text = String::from_utf8(taken.stderr).unwrap();
    assert!(
        text.contains("--listen") && text.contains("in use"),
        "{text}"
    );
    let open = Command::new(SHUNT)
        .args(["ui", "--listen", "0.0.0.0:0", "--no-token"])
        .output()
        .unwrap();
    assert_eq!(open.status.code(), Some(2));
    assert!(
        String::from_utf8(open.stderr)
            .unwrap()
            .contains("--no-token")
    );

    let pid = Pid::from_raw(i32::try_from(ui.process.id()).unwrap()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    assert_eq!(ui.process.wait().unwrap().code(), Some(0));
}

/// Pictures for people: `SHUNT_PICTURES=FOLDER cargo test -p cli --test ui -- --ignored pictures`.
#[test]
#[ignore = "writes files"]
fn pictures_of_the_page() {
    let Some(folder) = std::env::var_os("SHUNT_PICTURES") else {
        let _ = writeln!(
            std::io::stderr(),
            "skipped: ui: pictures: SHUNT_PICTURES names no folder"
        );
        return;
    };
    let Some(mut browser) = Browser::start("ui: pictures") else {
        return;
    };
    let ui = Ui::start(&["--no-token"]);
    let kernel = "stack.kind=kernel&workload.clients=7";
    for (name, width, height, dark, fragment) in [
        (
            "wide-light",
            1440,
            3300,
            false,
            "step=3&stack.kind=kernel&workload.clients=7",
        ),
        (
            "wide-dark",
            1440,
            3300,
            true,
            "stack.kind=user&workload.clients=7",
        ),
        ("narrow-light", 390, 7200, false, kernel),
        (
            "narrow-dark",
            390,
            7200,
            true,
            "stack.kind=nic&workload.clients=7",
        ),
        (
            "first",
            1280,
            860,
            false,
            "stack.kind=nic&workload.clients=5",
        ),
    ] {
        browser.look(width, height, dark);
        browser.open(&format!("{}#scenario=fig8&{fragment}", ui.url));
        browser.wait_for(READY);
        browser.value("new Promise((done) => setTimeout(done, 600))");
        fs::write(
            Path::new(&folder).join(format!("{name}.png")),
            browser.picture(),
        )
        .unwrap();
    }
}
