//! A UDP server on all addresses answers from the address that was asked, on whichever stack it came: a client whose
//! socket is connected hears nothing else.
//!
//! The server is on host `a`, whose kernel and two engines have an address each in one network; the clients are plain
//! programs on host `b`. A program or privilege that is missing skips the test, and says so past libtest's capture.

#![allow(clippy::unwrap_used)] // a failure here ends the test, as it should

use testkit::{Lab, LabSpec, PATIENCE, Program, host, world};

const SECOND: &str = "@shunt/second";
const SECOND_OWN: &str = "10.77.0.13";

/// Answers by sendto and sendmsg in turn, over IPv4 and by a socket of IPv6 for both.
const SERVER: &str = "
import select, socket
sockets = []
for family, address, port in (socket.AF_INET, '0.0.0.0', 7001), (socket.AF_INET6, '::', 7002):
    one = socket.socket(family, socket.SOCK_DGRAM)
    one.bind((address, port))
    sockets.append(one)
print('bound', flush=True)
n = 0
while True:
    for one in select.select(sockets, [], [])[0]:
        what, peer = one.recvfrom(100)
        n += 1
        one.sendto(what, peer) if n % 2 else one.sendmsg([what], [], 0, peer)
";

/// Asks each address from a connected socket, all from the same port, and says who was heard: by turns, so that the last
/// stack counts and not the first.
const CLIENT: &str = "
import socket, sys
for port in 7001, 7002:
    for address in sys.argv[1:] * 3:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            one.bind(('0.0.0.0', 9001))
            one.connect((address, port))
            one.settimeout(16)
            for attempt in range(3):
                one.send(b'word')
                try:
                    print(port, address, one.recv(100).decode())
                    break
                except TimeoutError: pass
            else: print(port, address, 'silence')
";

fn shunt() -> &'static str {
    testkit::shunt().to_str().unwrap()
}

#[test]
fn answers_come_from_the_address_that_was_asked() {
    if !world::can_run("udp-answers", &["python3"]) {
        return;
    }
    let lab = Lab::temporary("t-udp-answers", &LabSpec::default()).unwrap();
    let (a, b) = (host(&lab, "a"), host(&lab, "b"));
    let second_own = format!("{SECOND_OWN}/24");
    let second = ["engine", "--name", SECOND, "--address", &second_own];
    let _engines = [&["engine"][..], &second]
        .map(|line| testkit::once_serving(testkit::start(a, shunt(), line)));
    let kernels = a.spec().address.address.to_string();
    let first_own = a.spec().engine_address.address.to_string();
    let both = ["--engine", "@shunt/engine", "--engine", SECOND];
    let supervised = ["--supervise", "only"];
    let cases: [(&[&str], &[&str]); 2] = [
        (&both, &[&kernels, &first_own, SECOND_OWN]),
        // UDP of a supervised program is on the first engine.
        (&supervised, &[&kernels, &first_own]),
    ];
    for (flags, asked) in cases {
        let line = [&["run"][..], flags, &["--", "python3", "-c", SERVER]].concat();
        let mut server = testkit::start(a, shunt(), &line);
        let is_bound = |server: &Program| server.stdout().contains("bound");
        server.wait_until("server", PATIENCE, is_bound).unwrap();
        let line = [&["-c", CLIENT][..], asked].concat();
        let answers = testkit::run(b, "python3", &line).stdout;
        let by_turns = || asked.iter().cycle().take(3 * asked.len());
        let expected = |port| by_turns().map(move |one| format!("{port} {one} word\n"));
        let expected: String = expected(7001).chain(expected(7002)).collect();
        assert_eq!(answers, expected, "{flags:?}");
    }
}
