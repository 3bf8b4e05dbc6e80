//! Sockets that a program with an engine inside keeps while it executes another one. What a child executes is compared in `parity.rs`.

use crate::{laboratory, run};

/// Executes itself while it listens, after a connection of its own or without one; then a child of it connects.
const EXECUTED: &str = r#"
import os, socket, sys
own, place, before = sys.argv[1:4]
if len(sys.argv) == 4:
    listener = socket.create_server(("" if place == "any" else own, 0), backlog=7)
    if before == "connection":
        client = socket.create_connection((own, listener.getsockname()[1]))
        listener.accept()[0].close()
        client.close()
    os.set_inheritable(listener.fileno(), True)
    try:
        os.execv("/nonexistent", ["x"])
    except OSError:
        print(os.get_blocking(listener.fileno()), flush=True)
    words = ["python3", "-c", os.environ["TEXT"], own, place, before, str(listener.fileno())]
    os.execvpe("python3", words, {"PATH": os.environ["PATH"]})
listener = socket.socket(fileno=int(sys.argv[4]))
print(os.get_blocking(listener.fileno()), flush=True)
port = listener.getsockname()[1]
if os.fork() == 0:
    with socket.create_connection((own, port), 10) as client:
        client.sendall(b"question")
        print(client.recv(16).decode(), flush=True)
    os._exit(0)
with listener.accept()[0] as connection:
    print(connection.recv(16).decode(), flush=True)
    connection.sendall(b"answer")
os.wait()
print(sorted(set(os.environ) - {"LC_CTYPE"}))
"#;

/// Executes a program that shall be the kernel's, with a listener and a connection.
const LET_GO: &str = r#"
import os, socket, sys
listener = socket.create_server((sys.argv[1], 0))
client = socket.create_connection(listener.getsockname())
quiet = socket.socket()
for one in listener, client, quiet:
    os.set_inheritable(one.fileno(), True)
print(listener.fileno(), client.fileno(), sep=", ", flush=True)
os.execvpe("sh", ["sh", "-c", "exit 3"], {"PATH": os.environ["PATH"], "SHUNT_POLICY": "kernel-only"})
"#;

#[test]
fn a_listener_that_its_program_keeps_over_exec_hears_again() {
    let Some(lab) = laboratory("executed") else {
        return;
    };
    let cases = ["own", "any"].map(|place| ["none", "connection"].map(|before| (place, before)));
    for (last, (place, before)) in (130..).zip(cases.into_iter().flatten()) {
        let own = format!("10.77.0.{last}");
        let text = format!("TEXT={EXECUTED}");
        let command = [
            "env", &text, "timeout", "20", "python3", "-c", EXECUTED, &own, place, before,
        ];
        let done = run(&lab, last, &command);
        assert_eq!(
            done.stdout, "True\nTrue\nquestion\nanswer\n['PATH']\n",
            "{place}, {before}: {}",
            done.stderr
        );
    }
}

#[test]
fn who_executes_a_program_without_the_library_is_told_which_sockets_fail_there() {
    let Some(lab) = laboratory("let-go") else {
        return;
    };
    let done = run(&lab, 140, &["python3", "-c", LET_GO, "10.77.0.140"]);
    assert_eq!(done.status.code(), Some(3), "{}", done.stderr);
    let told = format!("do not work: descriptors {}. With", done.stdout.trim());
    assert!(
        done.stderr.contains(&told) && done.stderr.contains("--supervise only"),
        "{}: {}",
        done.stdout,
        done.stderr
    );
}
