//! BPF links on a veth pair between two namespaces. Needs root, or says what it lacks.

#![allow(
    clippy::unwrap_used,
    reason = "a test program: helpers fail the test that calls them"
)]

mod support;

use std::net::UdpSocket;
use std::time::Duration;

use bpf::{Assembler, Error, Link, Program, ProgramKind, TcxHook, XdpMode};
use support::{LEFT, Namespace, PATIENCE, RIGHT, VETH};

/// A program that gives every frame the same verdict.
fn always(kind: ProgramKind, verdict: i32) -> Program {
    let mut program = Assembler::new();
    program.exit_with(verdict);
    Program::load(kind, "always", &program.finish().unwrap()).unwrap()
}

const XDP: ProgramKind = ProgramKind::Xdp { fragments: true };
const XDP_DROP: i32 = 1;
const XDP_PASS: i32 = 2;
const TCX_DROP: i32 = 2;

/// Two namespaces with addresses that know each other.
fn hosts(test: &str) -> Option<[Namespace; 2]> {
    let mut pass = Assembler::new();
    pass.exit_with(XDP_PASS);
    if let Err(error) = Program::load(XDP, "permitted", &pass.finish().unwrap()) {
        support::skipped(test, &error.to_string());
        return None;
    }
    let hosts = support::veth(test)?;
    for (host, address) in hosts.iter().zip([LEFT, RIGHT]) {
        host.ip(&format!("address add {address}/24 dev {VETH}"));
    }
    Some(hosts)
}

fn index(namespace: &Namespace) -> u32 {
    namespace.run(|| support::index(VETH))
}

/// For how long what is not to come is waited for.
const QUIET: Duration = Duration::from_millis(200);

/// Whether a datagram from left to right is heard within a time.
fn is_heard([left, right]: &[Namespace; 2], patience: Duration) -> bool {
    let receiver = right.run(|| UdpSocket::bind((RIGHT, 5000)).unwrap());
    receiver.set_read_timeout(Some(patience)).unwrap();
    left.run(|| {
        let sender = UdpSocket::bind((LEFT, 0)).unwrap();
        sender.send_to(b"hello", (RIGHT, 5000)).unwrap();
    });
    receiver.recv(&mut [0; 16]).is_ok()
}

#[test]
fn a_program_judges_frames_until_its_link_is_dropped() {
    let Some(hosts) = hosts("a_program_judges_frames_until_its_link_is_dropped") else {
        return;
    };
    let interface = index(&hosts[1]);
    assert!(is_heard(&hosts, PATIENCE));
    let (xdp_drop, tcx_drop) = (
        always(XDP, XDP_DROP),
        always(ProgramKind::Classifier, TCX_DROP),
    );
    let attach: [&(dyn Fn() -> Result<Link, Error> + Sync); 3] = [
        &|| Link::xdp(&xdp_drop, interface, XdpMode::Generic),
        &|| Link::xdp(&xdp_drop, interface, XdpMode::Native),
        &|| Link::tcx(&tcx_drop, interface, TcxHook::Ingress),
    ];
    for attach in attach {
        let link = hosts[1].run(|| attach().unwrap());
        assert!(link.is_attached().unwrap());
        assert!(!is_heard(&hosts, QUIET));
        drop(link);
        assert!(is_heard(&hosts, PATIENCE), "detached with its descriptor");
    }
}

#[test]
fn a_taken_hook_is_refused_and_a_replaced_program_is_the_next_one() {
    let Some(hosts) = hosts("a_taken_hook_is_refused_and_a_replaced_program_is_the_next_one")
    else {
        return;
    };
    let interface = index(&hosts[1]);
    let (pass, drop_all) = (always(XDP, XDP_PASS), always(XDP, XDP_DROP));
    let attach = || Link::xdp(&drop_all, interface, XdpMode::Generic);
    let link = hosts[1].run(|| attach().unwrap());
    let error = hosts[1].run(|| attach().unwrap_err());
    assert!(matches!(error, Error::Occupied { .. }), "{error}");
    link.replace(&pass).unwrap();
    assert!(is_heard(&hosts, PATIENCE));
}

#[test]
fn a_link_knows_that_its_interface_is_gone() {
    let Some(hosts) = hosts("a_link_knows_that_its_interface_is_gone") else {
        return;
    };
    let interface = index(&hosts[1]);
    let program = always(XDP, XDP_PASS);
    let link = hosts[1].run(|| Link::xdp(&program, interface, XdpMode::Generic).unwrap());
    hosts[1].ip(&format!("link del {VETH}"));
    assert!(!link.is_attached().unwrap());
}

#[test]
fn an_extended_filter_judges_packets_of_a_socket() {
    let Some(hosts) = hosts("an_extended_filter_judges_packets_of_a_socket") else {
        return;
    };
    let receiver = hosts[1].run(|| UdpSocket::bind((RIGHT, 5001)).unwrap());
    let send = || {
        let sender = UdpSocket::bind((LEFT, 0)).unwrap();
        sender.send_to(b"hello", (RIGHT, 5001)).unwrap();
    };
    for (verdict, heard) in [(0, false), (i32::MAX, true)] {
        let filter = always(ProgramKind::SocketFilter, verdict);
        let socket = std::os::fd::AsFd::as_fd(&receiver);
        filter.attach_to_socket(socket).unwrap();
        let patience = if heard { PATIENCE } else { QUIET };
        receiver.set_read_timeout(Some(patience)).unwrap();
        hosts[0].run(send);
        assert_eq!(receiver.recv(&mut [0; 16]).is_ok(), heard);
    }
}
