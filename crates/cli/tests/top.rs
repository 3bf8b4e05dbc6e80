//! `shunt top` beside real traffic: as text, as JSON, and on a terminal that it gives back.

#![allow(clippy::unwrap_used)] // a failure here ends the test, as it should

use serde_json::Value;
use testkit::{Lab, PATIENCE, Program, host, run, start, two_hosts, wait_for, world};

const SHUNT: &str = env!("CARGO_BIN_EXE_shunt");

const PORT: &str = "6379";

/// redis on an engine of host `a`, and a benchmark that asks it without end from host `b`.
fn traffic(lab: &Lab, mode: &str) -> (Program, Program) {
    let mode = format!("--engine-mode={mode}");
    let words = ["run", &mode, "--", "redis-server", "--bind", "10.77.0.11"];
    let more = ["--port", PORT, "--protected-mode", "no", "--save", ""];
    let mut server = start(host(lab, "a"), SHUNT, &[&words[..], &more].concat());
    let is_ready = |one: &Program| one.stdout().contains("Ready to accept");
    server.wait_until("redis", PATIENCE, is_ready).unwrap();
    let words = [
        "-h",
        "10.77.0.11",
        "-p",
        PORT,
        "-c",
        "4",
        "-l",
        "-q",
        "-t",
        "set",
    ];
    let asks = start(host(lab, "b"), "redis-benchmark", &words);
    (server, asks)
}

fn frame(lab: &Lab) -> Value {
    let words = ["top", "--once", "--json", "--interval", "0.2"];
    serde_json::from_str(&run(host(lab, "a"), SHUNT, &words).stdout).unwrap()
}

#[test]
fn the_connections_of_a_benchmark_have_rates_in_text_and_json() {
    if !world::can_run("top-batch", &["redis-server", "redis-benchmark"]) {
        return;
    }
    for mode in ["process", "inline"] {
        let lab = two_hosts(&format!("top-{mode}"));
        let (server, _asks) = traffic(&lab, mode);
        let mut seen = Value::Null;
        wait_for("connection with a rate", PATIENCE, || {
            seen = frame(&lab);
            let rows = seen["connections"].as_array().unwrap();
            rows.iter().any(|row| {
                let rate = |name: &str| row[name].as_f64().unwrap();
                rate("sent_bytes_per_s") > 0.0
                    && rate("received_bytes_per_s") > 0.0
                    && row["local"] == "10.77.0.11:6379"
                    && row["pid"] == server.pid()
            })
        });
        let program = &seen["programs"][0];
        assert_eq!(program["program"], "redis-server", "{seen}");
        assert!(program["received_bytes_per_s"].as_f64().unwrap() > 0.0);
        assert!(program["calls_per_s"].as_f64().unwrap() > 0.0, "{program}");
        assert!(program["switches_per_call"].is_f64(), "{program}");
        assert!(seen["engines"][0]["received_bytes_per_s"].as_f64().unwrap() > 0.0);
        let words = [
            "top", "--batch", "-n", "2", "-d", "0.2", "--filter", ":6379",
        ];
        let text = run(host(&lab, "a"), SHUNT, &words).stdout;
        assert_eq!(text.matches("MAX RTT").count(), 2, "{text}");
        assert!(text.contains("10.77.0.11:6379"), "{text}");
    }
}

/// Answers so many messages, one read and one write each, closes the connection and stays.
const ANSWERS: &str = "
import signal, socket, sys
listener = socket.create_server((sys.argv[1], 7000))
print('ready', flush=True)
one, _ = listener.accept()
for _ in range(int(sys.argv[2])):
    one.send(one.recv(100))
one.close()
print('answered', flush=True)
signal.pause()
";

const ASKS: &str = "
import socket, sys
one = socket.create_connection((sys.argv[1], 7000))
for _ in range(int(sys.argv[2])):
    one.send(b'asked')
    assert one.recv(100) == b'asked'
";

#[test]
fn reads_and_writes_of_a_program_are_counted_one_by_one_beside_its_context_switches() {
    if !world::can_run("top-calls", &["python3"]) {
        return;
    }
    for mode in ["process", "inline"] {
        let lab = two_hosts(&format!("top-calls-{mode}"));
        let mode = format!("--engine-mode={mode}");
        let words = ["run", &mode, "--", "python3", "-c", ANSWERS];
        let words = [&words[..], &["10.77.0.11", "40"]].concat();
        let mut server = start(host(&lab, "a"), SHUNT, &words);
        let said = |word: &'static str| move |one: &Program| one.stdout().contains(word);
        server
            .wait_until("server", PATIENCE, said("ready"))
            .unwrap();
        run(
            host(&lab, "b"),
            "python3",
            &["-c", ASKS, "10.77.0.11", "40"],
        );
        server
            .wait_until("answers", PATIENCE, said("answered"))
            .unwrap();
        let status = run(host(&lab, "a"), SHUNT, &["status", "--json"]).stdout;
        let status: Value = serde_json::from_str(&status).unwrap();
        let rows = status["attached"].as_array().unwrap();
        let row = rows.iter().find(|row| row["pid"] == server.pid());
        let row = row.unwrap_or_else(|| panic!("{mode}: {status}"));
        assert_eq!((&row["reads"], &row["writes"]), (&40.into(), &40.into()));
        assert!(row["voluntary_switches"].as_u64().unwrap() > 0, "{row}");
        let text = run(host(&lab, "a"), SHUNT, &["status"]).stdout;
        assert!(text.contains("switches per call"), "{text}");
        let metrics = run(host(&lab, "a"), SHUNT, &["metrics"]).stdout;
        let label = format!("pid=\"{}\",program=\"python3\"}} 40", server.pid());
        let counts = |name: &str| {
            let mut lines = metrics.lines();
            lines.any(|line| line.starts_with(name) && line.ends_with(&label))
        };
        for name in ["shunt_program_reads_total{", "shunt_program_writes_total{"] {
            assert!(counts(name), "{name}\n{metrics}");
        }
    }
}

/// Runs `shunt top` on a terminal of its own: waits for a row of redis with rates, for the filter, ends it in the way that
/// it was told, and says how it ended and whether the terminal is as it was.
const TERMINAL: &str = r"
import os, pty, re, select, signal, struct, sys, termios, fcntl, time
end = sys.argv[1]
pid, terminal = pty.fork()
if pid == 0:
    os.environ['TERM'] = 'xterm'
    # Until the parent has set the size.
    sys.stdin.readline()
    os.execv(sys.argv[2], [sys.argv[2], 'top', '--interval', '0.2'])
fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack('HHHH', 40, 160, 0, 0))
before = termios.tcgetattr(terminal)
os.write(terminal, b'\n')
seen = b''
deadline = time.monotonic() + 50
def read_until(what):
    global seen
    start = len(seen)
    while not re.search(what, seen[start:]):
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([terminal], [], [], left)[0]:
            sys.exit('no %r in %r' % (what, seen[start:][-3000:]))
        try:
            seen += os.read(terminal, 65536)
        except OSError:
            sys.exit('ended: %r' % seen[start:][-3000:])
read_until(rb'redis-server')
read_until(rb'[1-9][0-9.]*k')
os.write(terminal, b'/6379')
read_until(rb'6')
if end == 'quit':
    os.write(terminal, b'\r')
    os.write(terminal, b'q')
elif end == 'interrupt':
    os.write(terminal, b'\x03')
else:
    os.kill(pid, signal.SIGTERM)
read_until(rb'\x1b\[\?1049l')
_, status = os.waitpid(pid, 0)
after = termios.tcgetattr(terminal)
print('ended', os.waitstatus_to_exitcode(status), 'restored', before == after)
";

#[test]
fn on_a_terminal_it_shows_rates_and_gives_it_back_however_it_ends() {
    if !world::can_run(
        "top-screen",
        &["redis-server", "redis-benchmark", "python3"],
    ) {
        return;
    }
    let lab = two_hosts("top-screen");
    let _traffic = traffic(&lab, "process");
    for end in ["quit", "interrupt", "terminate"] {
        let said = run(host(&lab, "a"), "python3", &["-c", TERMINAL, end, SHUNT]);
        assert_eq!(said.stdout, "ended 0 restored True\n", "{end}");
    }
}

#[test]
fn without_a_terminal_or_an_engine_it_says_what_to_do() {
    let lab = two_hosts("top-none");
    let refused = |words: &[&str]| {
        let ended = start(host(&lab, "a"), SHUNT, words).finish(PATIENCE, || false);
        let ended = ended.unwrap();
        assert_eq!(ended.status.code(), Some(2), "{}", ended.stderr);
        ended.stderr
    };
    assert!(refused(&["top"]).contains("no engine answers"));
    let _engine = testkit::serving_engine(&lab, SHUNT, &[]);
    assert!(refused(&["top"]).contains("--once"));
}
