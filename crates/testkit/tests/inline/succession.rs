//! Who has the engine where programs with one address, and an engine inside, follow one another or run beside one another.

use testkit::{Lab, PATIENCE, Program, host, world};

use crate::{SENDER, laboratory, receiver, reports, run};

/// Waits with one connection.
const HOLDER: &str = r#"
import signal, socket
s = socket.create_connection(("10.77.0.2", 9000))
s.send(b"held")
print("ready", flush=True)
signal.pause()
"#;

/// As the receiver, but takes nothing before it is told to by a file.
const SLOW_RECEIVER: &str = r#"
import os, socket, sys, time
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(("10.77.0.2", 9000))
s.listen(8)
print("ready", flush=True)
first = s.accept()[0]
second = s.accept()[0]
while not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
count = 0
while part := first.recv(65536):
    count += len(part)
print(count, "end", flush=True)
"#;

/// Becomes a static program, which needs a supervisor, while its connection's end is on its way.
const SUCCESSOR: &str = r#"
import os, socket
s = socket.create_connection(("10.77.0.2", 9000))
s.send(b"first")
r, w = os.pipe()
os.write(w, b"second")
os.close(w)
os.dup2(r, 0)
os.execvp("busybox", ["busybox", "nc", "10.77.0.2", "9000"])
"#;

/// Four at once, each a program of its own that has ended before the next of its row begins.
const CROWD: &str = r#"
for row in 1 2 3 4; do
    for n in $(seq 25); do
        bash -c 'exec 3<>/dev/tcp/10.77.0.2/9000 && printf hello >&3' || echo failed
    done &
done
wait
"#;

/// Ends without having closed a listener and both ends of a connection.
const LEAVER: &str = r#"
import os, socket
listener = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(listener.getsockname())
server = listener.accept()[0]
client.send(b"hello")
print(server.recv(8).decode(), flush=True)
os._exit(0)
"#;

/// Starts a program with an engine inside, if no other serves it, and waits until it is connected.
fn hold(lab: &Lab, address: &str) -> Program {
    let shunt = testkit::shunt().to_str().unwrap();
    let line = ["run", "--engine-mode=inline", "--policy", "engine-only"];
    let line = [
        &line[..],
        &["--address", address, "--", "python3", "-c", HOLDER],
    ]
    .concat();
    let mut holder = testkit::start(host(lab, "a"), shunt, &line);
    holder
        .wait_until("a connection", PATIENCE, |one| {
            one.stdout().contains("ready")
        })
        .unwrap();
    holder
}

/// Number of the process that runs the engine.
fn engine_pid(lab: &Lab, engine: &str) -> u64 {
    let shunt = testkit::shunt().to_str().unwrap();
    let line = ["status", "--engine", engine, "--json"];
    let done = testkit::start(host(lab, "a"), shunt, &line)
        .finish(PATIENCE, || false)
        .unwrap();
    let status: serde_json::Value = serde_json::from_str(&done.stdout).unwrap();
    status["pid"].as_u64().unwrap()
}

#[test]
fn a_new_start_at_the_address_of_an_ended_program_has_its_engine_inside() {
    let Some(lab) = laboratory("again") else {
        return;
    };
    let mut receiver = receiver(&lab);
    for (count, how) in (1..).zip(["exit", "_exit", "exec"]) {
        // It closes first: its connection is in TIME-WAIT.
        let done = run(&lab, 70, &["python3", "-c", SENDER, how, "1000"]);
        assert_eq!(done.status.code(), Some(7), "{how}: {}", done.stderr);
        reports(&mut receiver, count);
    }
    let holder = hold(&lab, "10.77.0.70/24");
    let pid = engine_pid(&lab, "@shunt/run/10.77.0.70");
    assert_eq!(pid, u64::from(holder.pid()));
}

#[test]
fn what_an_ended_program_has_still_to_send_arrives_although_another_starts_at_its_address() {
    let Some(lab) = laboratory("unsent") else {
        return;
    };
    let path = std::env::temp_dir().join(format!("shunt-unsent-{}", std::process::id()));
    let path = path.to_str().unwrap();
    let mut receiver = testkit::start(host(&lab, "b"), "python3", &["-c", SLOW_RECEIVER, path]);
    receiver
        .wait_until("receiver", PATIENCE, |one| one.stdout().contains("ready"))
        .unwrap();
    // More than the window of a kernel whose program takes nothing, less than what an engine takes at first.
    let bytes = 250_000;
    let done = run(
        &lab,
        71,
        &["python3", "-c", SENDER, "exit", &bytes.to_string()],
    );
    assert_eq!(done.status.code(), Some(7), "{}", done.stderr);
    // The engine that is left behind serves it.
    let holder = hold(&lab, "10.77.0.71/24");
    assert_ne!(
        engine_pid(&lab, "@shunt/run/10.77.0.71"),
        u64::from(holder.pid())
    );
    std::fs::write(path, "").unwrap();
    let all = reports(&mut receiver, 1);
    std::fs::remove_file(path).unwrap();
    assert_eq!(all, [format!("{bytes} end")]);
}

#[test]
fn a_program_that_needs_a_supervisor_finds_an_engine_in_place_of_the_one_inside_its_predecessor() {
    if !world::can_run("inline-supervised", &["python3", "busybox"]) {
        return;
    }
    let lab = laboratory("supervised").unwrap();
    let mut receiver = receiver(&lab);
    let shunt = testkit::shunt().to_str().unwrap();
    let line = ["run", "--engine-mode=inline", "--policy", "engine-only"];
    let line = [&line[..], &["--", "python3", "-c", SUCCESSOR]].concat();
    let _program = testkit::start(host(&lab, "a"), shunt, &line);
    assert_eq!(reports(&mut receiver, 2), ["5 end", "6 end"]);
}

#[test]
fn programs_that_start_and_end_beside_each_other_are_all_served() {
    let Some(lab) = laboratory("crowd") else {
        return;
    };
    let mut receiver = receiver(&lab);
    let done = run(&lab, 72, &["bash", "-c", CROWD]);
    assert_eq!((done.stdout.as_str(), done.stderr.as_str()), ("", ""));
    assert_eq!(reports(&mut receiver, 100), ["5 end"; 100]);
}

#[test]
fn what_a_program_leaves_open_stands_in_no_way_of_the_next() {
    let Some(lab) = laboratory("leaver") else {
        return;
    };
    let shunt = testkit::shunt().to_str().unwrap();
    let line = ["run", "--engine-mode=inline", "--policy", "engine-only"];
    let address = ["--loopback", "--address", "10.77.0.73/24", "--"];
    let program = ["timeout", "20", "python3", "-c", LEAVER];
    let line = [&line[..], &address, &program].concat();
    for _ in 0..3 {
        let done = testkit::start(host(&lab, "a"), shunt, &line);
        let done = done.finish(PATIENCE, || false).unwrap();
        assert_eq!(done.stdout, "hello\n", "{}", done.stderr);
    }
}
