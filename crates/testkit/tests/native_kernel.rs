//! The native interface against the kernel of another host, over IPv4 and IPv6, in both directions: the example of
//! docs/native.md on an engine on host `a`, sockets of Python on host `b`.
//!
//! A program or privilege that is missing skips the test, and says so past libtest's capture of output.

#![allow(clippy::unwrap_used)] // a failure here ends the test, as it should

use testkit::{Lab, PATIENCE, Program, host, native_example, served_hosts};

const BYTES: &str = "3000007";

/// Sends so many bytes of a pattern, and checks what comes back until the end.
const KERNEL_CLIENT: &str = r#"
import socket, sys, threading
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
connection = socket.socket(family)
connection.connect((sys.argv[1], int(sys.argv[2])))
wanted = bytes(n * 7919 // 256 % 256 for n in range(int(sys.argv[3])))
def send():
    connection.sendall(wanted)
    connection.shutdown(socket.SHUT_WR)
threading.Thread(target=send).start()
got = bytearray()
while part := connection.recv(65536):
    got += part
assert got == wanted, "other bytes came back"
print(len(got), "bytes came back")
"#;

/// Sends back what one connection brings.
const KERNEL_SERVER: &str = r#"
import socket, sys
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
listener = socket.socket(family)
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind((sys.argv[1], int(sys.argv[2])))
listener.listen()
print("listening", flush=True)
connection, peer = listener.accept()
while part := connection.recv(65536):
    connection.sendall(part)
connection.close()
"#;

/// How Rust writes it.
fn name(address: &str, port: &str) -> String {
    if address.contains(':') {
        format!("[{address}]:{port}")
    } else {
        format!("{address}:{port}")
    }
}

fn native(lab: &Lab, words: &[&str]) -> Program {
    let example = native_example().display().to_string();
    testkit::start(host(lab, "a"), &example, words)
}

fn python(lab: &Lab, script: &str, words: &[&str]) -> Program {
    let words = [&["-c", script], words].concat();
    testkit::start(host(lab, "b"), "python3", &words)
}

fn wait_listening(server: &mut Program) {
    let is_there = |server: &Program| server.stdout().lines().any(|line| line == "listening");
    server.wait_until("listener", PATIENCE, is_there).unwrap();
}

fn came_back(client: Program) {
    let done = client.finish(PATIENCE, || false).unwrap();
    assert!(done.status.success(), "{}{}", done.stdout, done.stderr);
    assert_eq!(done.stdout, format!("{BYTES} bytes came back\n"));
}

#[test]
fn a_program_of_the_native_interface_serves_and_asks_the_kernel_over_both_families() {
    let Some((lab, _engine)) = served_hosts("native-kernel", &["python3"]) else {
        return;
    };
    let (a, b) = (host(&lab, "a").spec(), host(&lab, "b").spec());
    let families = [
        (
            a.engine_address.address.to_string(),
            b.address.address.to_string(),
        ),
        (
            a.engine_address_v6().to_string(),
            b.address_v6().to_string(),
        ),
    ];
    for (engine, kernel) in &families {
        let mut server = native(&lab, &["server", &name(engine, "7000")]);
        wait_listening(&mut server);
        came_back(python(&lab, KERNEL_CLIENT, &[engine, "7000", BYTES]));

        let mut server = python(&lab, KERNEL_SERVER, &[kernel, "7001"]);
        wait_listening(&mut server);
        came_back(native(&lab, &["client", &name(kernel, "7001"), BYTES]));
        let done = server.finish(PATIENCE, || false).unwrap();
        assert!(done.status.success(), "{}", done.stderr);
    }
}
