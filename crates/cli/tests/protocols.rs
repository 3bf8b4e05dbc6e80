//! `shunt engine --protocols`: what is left out is not there, for peers and for programs.

#![allow(clippy::unwrap_used)] // a failure here ends the test, as it should

use std::process::Command;

use serde_json::{Value, json};
use testkit::{Finished, Lab, PATIENCE, Program, host, two_hosts};

const SHUNT: &str = env!("CARGO_BIN_EXE_shunt");
const ADDRESS: &str = "10.77.0.11";
/// Says which error a socket of the first argument's kind gets when it is made and bound.
const BIND: &str = "
import errno, socket, sys
kind = socket.SOCK_DGRAM if sys.argv[1] == 'udp' else socket.SOCK_STREAM
try:
    socket.socket(socket.AF_INET, kind).bind(('10.77.0.11', 5353))
    print('bound')
except OSError as error:
    print(errno.errorcode[error.errno])
";
/// A datagram to the engine: prints what the next call on its socket says.
const SEND: &str = "
import errno, socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(50)
s.connect(('10.77.0.11', 5353))
s.send(b'hello')
try:
    s.recv(1)
except OSError as error:
    print(errno.errorcode[error.errno])
";

fn command(lab: &Lab, arguments: &[&str]) -> Command {
    let mut command = testkit::command(host(lab, "a"), SHUNT, arguments);
    command.env_remove("LD_PRELOAD").env_remove("SHUNT_ENGINE");
    command
}

fn finished(lab: &Lab, arguments: &[&str]) -> Finished {
    let program = Program::start("shunt", command(lab, arguments)).unwrap();
    program.finish(PATIENCE, || false).unwrap()
}

fn engine(lab: &Lab, protocols: &str) -> Program {
    let own = format!("{ADDRESS}/24");
    let flags = ["engine", "--address", &own, "--protocols", protocols];
    testkit::once_serving(Program::start("shunt", command(lab, &flags)).unwrap())
}

/// What `BIND` prints under `shunt run`.
fn bind(lab: &Lab, policy: &str, kind: &str) -> String {
    let program = ["python3", "-c", BIND, kind];
    let arguments = [&["run", "--policy", policy, "--"][..], &program].concat();
    let done = finished(lab, &arguments).success().unwrap();
    done.stdout.trim().to_owned()
}

fn from_peer(lab: &Lab, program: &str, arguments: &[&str]) -> Finished {
    let started = testkit::start(host(lab, "b"), program, arguments);
    started.finish(PATIENCE, || false).unwrap()
}

#[test]
fn without_udp_its_sockets_are_the_kernels_and_its_packets_unknown() {
    let lab = two_hosts("no-udp");
    let _engine = engine(&lab, "tcp,icmp");
    let status = finished(&lab, &["status", "--json"]).success().unwrap();
    let status: Value = serde_json::from_str(&status.stdout).unwrap();
    assert_eq!(status["protocols"], json!(["tcp", "icmp"]));
    // The kernel has not got the engine's address.
    assert_eq!(bind(&lab, "kernel-only", "udp"), "EADDRNOTAVAIL");
    let auto = finished(&lab, &["run", "--", "python3", "-c", BIND, "udp"]);
    assert_eq!(auto.stdout.trim(), "EADDRNOTAVAIL");
    assert_eq!(bind(&lab, "engine-only", "udp"), "EPROTONOSUPPORT");
    let tcp = finished(&lab, &["run", "--", "python3", "-c", BIND, "tcp"]);
    assert_eq!(tcp.stdout.trim(), "bound");
    // RFC 1122 §3.2.2.1, as Linux tells it: protocol unreachable.
    let told = from_peer(&lab, "python3", &["-c", SEND]);
    assert_eq!(told.stdout.trim(), "ENOPROTOOPT", "{}", told.stderr);
}

#[test]
fn without_icmp_nobody_is_answered_and_tcp_goes_on() {
    let lab = two_hosts("no-icmp");
    let _engine = engine(&lab, "tcp,udp");
    let ping = from_peer(&lab, "ping", &["-c", "1", "-W", "1", ADDRESS]);
    assert!(!ping.status.success(), "{}", ping.stdout);
    let connect = "import socket\ntry:\n    socket.create_connection(('10.77.0.11', 9), 10)\nexcept ConnectionRefusedError:\n    print('refused')";
    let refused = from_peer(&lab, "python3", &["-c", connect]);
    assert_eq!(refused.stdout.trim(), "refused", "{}", refused.stderr);
}

#[test]
fn what_needs_a_protocol_that_is_left_out_is_refused() {
    let lab = two_hosts("protocols");
    for (flags, expected) in [
        (
            &["--protocols", "tcp,sctp"][..],
            &["--protocols", "ipv6, tcp, udp, icmp"][..],
        ),
        (&["--protocols", "ipv4"], &["IPv4 is always there"]),
        (
            &["--protocols", "tcp", "--address", "2001:db8::5/64"],
            &["2001:db8::5", "ipv6", "--protocols"],
        ),
        (
            &[
                "--protocols",
                "tcp",
                "--address",
                "10.77.0.11/24",
                "--autoconfigure",
            ],
            &["--autoconfigure", "ipv6"],
        ),
    ] {
        let done = finished(&lab, &[&["engine"], flags].concat());
        assert_eq!(done.status.code(), Some(2), "{}", done.stderr);
        for part in expected {
            assert!(done.stderr.contains(part), "no {part:?} in {}", done.stderr);
        }
    }
}
