//! The page of the engines in a browser, beside real traffic: what moves, what is said, and what is shown of before.

#![allow(clippy::unwrap_used)] // a failure here ends the test, as it should

mod browser;

use std::{fs, path::Path};

use browser::{Browser, served::Ui};
use rustix::process::{Pid, Signal, kill_process};
use testkit::{Lab, PATIENCE, Program, host, run, start, two_hosts, wait_for, world};

const SHUNT: &str = env!("CARGO_BIN_EXE_shunt");
const READY: &str = "document.documentElement?.dataset.state === 'ready'";

/// Waits for rates of an engine's row and returns its text in a column.
fn live_cell(browser: &mut Browser, table: &str, word: &str, column: &str) -> String {
    let row = format!(
        "[...document.querySelectorAll('#{table} tbody tr')].find((row) => row.textContent.includes({word:?}))"
    );
    let cell = format!("{row}?.querySelector('td[data-column={column:?}]')?.textContent");
    browser
        .value(&format!("{cell} ?? ''"))
        .as_str()
        .unwrap()
        .to_owned()
}

/// An engine on host `a`, redis on it, and a benchmark that asks it without end from host `b`. Engine and redis note stages in that
/// folder.
fn traffic(lab: &Lab, stages: &Path) -> [Program; 3] {
    let notes = format!("SHUNT_STAGES={}", stages.display());
    let words = ["engine", "--nic", "eth0", "--address", "10.77.0.11/24"];
    let mut engine = start(
        host(lab, "a"),
        "env",
        &[&[&*notes, SHUNT], &words[..]].concat(),
    );
    let is_ready = |one: &Program| {
        let sockets = fs::read_to_string(format!("/proc/{}/net/unix", one.pid()));
        sockets.is_ok_and(|text| text.contains("@shunt/engine"))
    };
    engine.wait_until("engine", PATIENCE, is_ready).unwrap();
    let words = [&*notes, SHUNT, "run", "--", "redis-server"];
    let more = [
        "--bind",
        "10.77.0.11",
        "--protected-mode",
        "no",
        "--save",
        "",
    ];
    let mut server = start(host(lab, "a"), "env", &[&words[..], &more].concat());
    let is_ready = |one: &Program| one.stdout().contains("Ready to accept");
    server.wait_until("redis", PATIENCE, is_ready).unwrap();
    let words = ["-h", "10.77.0.11", "-c", "4", "-l", "-q", "-t", "set"];
    let asks = start(host(lab, "b"), "redis-benchmark", &words);
    [engine, server, asks]
}

/// Writes what the browser shows, where somebody wants to look at it.
fn pictures(browser: &mut Browser) {
    let Some(folder) = std::env::var_os("SHUNT_PICTURES") else {
        return;
    };
    for (name, dark) in [("live-light", false), ("live-dark", true)] {
        browser.look(1440, 2100, dark);
        browser.value("new Promise((done) => setTimeout(done, 2500))");
        let file = Path::new(&folder).join(format!("{name}.png"));
        fs::write(file, browser.picture()).unwrap();
    }
}

/// Keys filter; a heading sorts and says so.
fn filter_and_sort(browser: &mut Browser) {
    let key = "document.dispatchEvent(new KeyboardEvent('keydown', { key: '/', bubbles: true }))";
    browser.value(key);
    assert_eq!(browser.value("document.activeElement.id"), "filter");
    let filter = |browser: &mut Browser, text: &str| {
        browser.value(&format!(
            "(() => {{ const field = document.getElementById('filter'); field.value = {text:?};
               field.dispatchEvent(new Event('input')); }})()"
        ));
    };
    filter(browser, "no such thing");
    let rows = "document.querySelectorAll('#connections tbody tr')";
    assert_eq!(browser.value(&format!("{rows}.length")), 0);
    filter(browser, "10.77.0.11:6379");
    let all = format!("[...{rows}].every((row) => row.textContent.includes('10.77.0.11:6379'))");
    assert_eq!(browser.value(&all), true);
    browser.value("document.querySelector('#connections [data-column=remote]').click()");
    let sorted = "document.querySelector('#connections th[aria-sort=ascending]').textContent";
    assert_eq!(browser.value(sorted), "remote ↑");
    filter(browser, "");
}

/// A port of the engine on which nobody listens.
const REFUSED: &str = "
import socket
try:
    socket.create_connection(('10.77.0.11', 1))
except ConnectionRefusedError:
    print('refused')
";

/// Stages, wake-ups, errors and saved results of the engine, each with numbers that a screen reader gets too.
fn more_than_connections(browser: &mut Browser, lab: &Lab, redis: &str) {
    let is_number = |text: &str| text.parse::<f64>().is_ok_and(|number| number > 0.0);
    for stage in ["TCP/IP, sending", "TCP/IP, receiving", "pick-up"] {
        wait_for(&format!("mean of {stage}"), PATIENCE, || {
            is_number(&live_cell(browser, "stages", stage, "mean µs"))
        });
    }
    let label = "document.querySelector('#stages svg[role=img]').getAttribute('aria-label')";
    let label = browser.value(label).to_string();
    assert!(label.contains("last minute: now "), "{label}");
    wait_for("calls of redis", PATIENCE, || {
        let cell = live_cell(browser, "notifications", redis, "reads and writes/s");
        !cell.is_empty() && cell != "0"
    });
    let each = live_cell(browser, "notifications", redis, "switches per call");
    assert!(each.parse::<f64>().is_ok(), "{each}");
    assert_eq!(
        live_cell(browser, "notifications", redis, "told when"),
        "each"
    );
    let refused = run(host(lab, "b"), "python3", &["-c", REFUSED]);
    assert_eq!(refused.stdout, "refused\n");
    wait_for("the error on the page", PATIENCE, || {
        is_number(&live_cell(
            browser,
            "errors",
            "tcp_out_rsts",
            "since the start",
        ))
    });
    // What was saved before is there, and a saved page opens without any right.
    let saved = browser.value("document.querySelector('#reports').textContent");
    assert!(saved.as_str().unwrap().contains("before lunch"), "{saved}");
    let page = browser.value(
        "fetch(document.querySelector('#reports a').href).then(async (answer) =>
           answer.headers.get('content-security-policy') + await answer.text())",
    );
    let page = page.as_str().unwrap();
    assert!(
        page.contains("sandbox") && page.contains("Round trips"),
        "{page}"
    );
}

#[test]
fn the_page_of_the_engines_moves_filters_and_says_when_one_has_ended() {
    if !world::can_run(
        "ui: engines",
        &["redis-server", "redis-benchmark", "python3"],
    ) {
        return;
    }
    let Some(mut browser) = Browser::start("ui: engines") else {
        return;
    };
    let lab = two_hosts("ui-live");
    let root = std::env::temp_dir().join(format!("shunt-ui-live-{}", std::process::id()));
    let [stages, results] = ["stages", "results"].map(|name| root.join(name));
    for folder in [&stages, &results] {
        fs::create_dir_all(folder).unwrap();
    }
    let [engine, server, _asks] = traffic(&lab, &stages);
    let file = |name: &str| results.join(name).display().to_string();
    let (saved, page) = (file("runs.json"), file("ping.html"));
    let words = [
        "ping",
        "10.77.0.11",
        "--count",
        "20",
        "--label",
        "before lunch",
    ];
    let words = [&words[..], &["--save", &saved, "--report", &page]].concat();
    run(host(&lab, "b"), SHUNT, &words);
    let folders = [&stages, &results].map(|folder| folder.display().to_string());
    let folders = ["--stages", &folders[0], "--reports", &folders[1]];
    let ui = Ui::start(&[&["--all", "--no-token"], &folders[..]].concat());
    browser.open(&format!("{}live.html", ui.url));
    browser.wait_for(READY);
    // Numbers move while the benchmark runs.
    let pid = engine.pid().to_string();
    let cell = |browser: &mut Browser| live_cell(browser, "engines", &pid, "received B/s");
    let redis = server.pid().to_string();
    wait_for("redis on the page", PATIENCE, || {
        live_cell(&mut browser, "programs", &redis, "program") == "redis-server"
    });
    let mut seen = std::collections::BTreeSet::new();
    wait_for("rates that change", PATIENCE, || {
        seen.insert(cell(&mut browser));
        seen.len() >= 3
    });
    assert!(!live_cell(&mut browser, "connections", "10.77.0.11:6379", "path").is_empty());
    filter_and_sort(&mut browser);
    more_than_connections(&mut browser, &lab, &redis);
    pictures(&mut browser);

    // An engine that ends is said to have ended, where a screen reader hears it.
    let killed = Pid::from_raw(i32::try_from(engine.pid()).unwrap()).unwrap();
    kill_process(killed, Signal::KILL).unwrap();
    browser.wait_for(&format!(
        "[...document.querySelectorAll('#gone li')].some((line) => line.textContent.includes('process {pid}'))"
    ));
    let role = browser.value("document.getElementById('gone').getAttribute('role')");
    assert_eq!(role, "log");
    assert_eq!(cell(&mut browser), "");
    assert_eq!(browser.complaints(), Vec::<String>::new());
    let requests = browser.requests();
    for request in requests
        .iter()
        .filter(|request| request.starts_with("http"))
    {
        assert!(request.starts_with(ui.origin()), "outside: {request}");
    }
    fs::remove_dir_all(root).unwrap();
}
