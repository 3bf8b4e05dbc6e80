//! A program with an engine inside is killed by a signal: its peers are told, as the kernel would tell them.

use testkit::{
    PATIENCE,
    world::{self, Mode, World},
};

use crate::{laboratory, run};

/// Answers, and after a word of its client's dies as that word says.
const SERVER: &str = "
import ctypes, os, signal, socket, sys
family = socket.AF_INET6 if ':' in sys.argv[1] else socket.AF_INET
listener = socket.socket(family)
listener.bind((sys.argv[1], 8000))
listener.listen()
print('ready', flush=True)
idle, _ = listener.accept()
busy, _ = listener.accept()
while word := busy.recv(100):
    if word == b'SEGV': ctypes.string_at(0)
    if word == b'KILL': os.kill(os.getpid(), signal.SIGKILL)
    if word == b'end': sys.exit()
    busy.sendall(word)
";

/// Both connections end; `reset` or `closed` for each.
const CLIENT: &str = "
import socket, sys
to = (sys.argv[1], 8000)
idle, busy = socket.create_connection(to, 50), socket.create_connection(to, 50)
for word in (b'one', b'two'):
    busy.sendall(word)
    assert busy.recv(100) == word
busy.sendall(sys.argv[2].encode())
for one in (busy, idle):
    try:
        assert one.recv(100) == b''
        print('closed')
    except ConnectionResetError:
        print('reset')
";

#[test]
fn who_is_connected_to_a_program_that_is_killed_is_told() {
    const TEST: &str = "inline-killed";
    if !world::can_run(TEST, &["python3"]) {
        return;
    }
    let world = World::new(TEST, Mode::Inline);
    let v6 = testkit::host(&world.lab, "a").spec().engine_address_v6();
    let addresses = [world.tested_address(), v6.to_string()];
    for (address, word, expected) in [
        (&addresses[0], "KILL", ["reset", "reset"]),
        (&addresses[0], "SEGV", ["reset", "reset"]),
        (&addresses[1], "KILL", ["reset", "reset"]),
        // Whoever ends in order closes what it has: nobody resets anything.
        (&addresses[0], "end", ["closed", "closed"]),
    ] {
        let mut server = world.start_tested(&["python3", "-c", SERVER, address]);
        server
            .wait_until("server", PATIENCE, |server| {
                server.stdout().contains("ready")
            })
            .unwrap_or_else(|error| panic!("{error}"));
        let words = ["python3", "-c", CLIENT, address, word];
        let client = world.start("b", &words).finish(PATIENCE, || false);
        let said = client.unwrap().success().unwrap().stdout;
        let ends: Vec<&str> = said.lines().collect();
        assert_eq!(ends, expected, "{address} {word}: {}", server.stderr());
    }
}

/// Ends as usual after its guard was killed, with a connection open.
const UNGUARDED: &str = r#"
import glob, os, signal, socket, time
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
listener = socket.create_server(("10.77.0.74", 0))
client = socket.create_connection(listener.getsockname())
def guards():
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            words = open(path, "rb").read().split(b"\0")
        except OSError:
            continue
        if b"--guard" in words and b"--address=10.77.0.74/24" in words:
            yield int(path.split("/")[2])
until = time.monotonic() + 10
while not (found := list(guards())) and time.monotonic() < until:
    time.sleep(0.01)
for pid in found:
    os.kill(pid, signal.SIGKILL)
while list(guards()) and time.monotonic() < until:
    time.sleep(0.01)
print(len(found), "ended")
"#;

#[test]
fn a_program_whose_guard_was_killed_ends_as_usual() {
    let Some(lab) = laboratory("unguarded") else {
        return;
    };
    let done = run(&lab, 74, &["python3", "-c", UNGUARDED]);
    assert_eq!(
        (done.stdout.as_str(), done.status.code()),
        ("1 ended\n", Some(0)),
        "{}",
        done.stderr
    );
}
