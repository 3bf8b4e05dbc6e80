//! Programs that ask for ends which the kernel has not given to them.

use crate::harness::{ADDRESSES, Program, Wired, kernel_socket, kernel_socket_on, small_limits};
use core::net::{Ipv4Addr, SocketAddr};
use hostif::Op;
use hostif::control::Request;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use std::io::Write as _;

const PEER: Ipv4Addr = ADDRESSES[1];

/// A program whose backing socket has a port of loopback: that port of the engine's address may be another's.
fn on_loopback(wired: &mut Wired) -> (Program, u16) {
    let mut program = wired.attach(0);
    program.backing = kernel_socket_on((Ipv4Addr::LOCALHOST, 0).into()).expect("a free port");
    let port = program.port();
    (program, port)
}

#[test]
fn a_port_of_loopback_is_no_port_of_the_engine() {
    let mut wired = Wired::new(small_limits());
    let (mut program, port) = on_loopback(&mut wired);
    let remote = SocketAddr::from((PEER, 80));
    for address in [ADDRESSES[0], Ipv4Addr::UNSPECIFIED] {
        let local = SocketAddr::from((address, port));
        let socket = program.open(&mut wired).expect("room");
        let connect = Op::Connect {
            remote,
            local: Some(local),
        };
        let connected = program.try_call(&mut wired, socket.id, connect);
        assert_eq!(connected, Err(Errno::ACCESS), "connect from {local}");
        let bound = program.try_call(&mut wired, socket.id, Op::Bind { local });
        assert_eq!(bound, Err(Errno::ACCESS), "bind to {local}");
    }
}

#[test]
fn a_port_that_was_let_go_of_is_not_listened_on() {
    let mut wired = Wired::new(small_limits());
    let mut program = wired.attach(0);
    let socket = program.open(&mut wired).expect("room");
    let port = program.port();
    let local = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    program
        .try_call(&mut wired, socket.id, Op::Bind { local })
        .expect("it holds the port");
    // The kernel takes back a port that it has chosen itself, and somebody else may have it on the address.
    rustix::net::listen(&program.backing, 1).expect("it is bound");
    rustix::net::connect_unspec(&program.backing).expect("it listens");
    let other = SocketAddr::from((Ipv4Addr::new(127, 0, 0, 2), port));
    rustix::net::bind(&program.backing, &other).expect("the port is free again");
    let listens = program.try_call(&mut wired, socket.id, Op::Listen { backlog: 1 });
    assert_eq!(listens, Err(Errno::ACCESS));
}

/// Listens by way of a kernel's socket with that option, on a port or a free one.
fn listens(
    wired: &mut Wired,
    program: &mut Program,
    port: u16,
    shares: bool,
) -> Result<u16, Errno> {
    let made = rustix::net::socket_with(
        AddressFamily::INET,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    );
    program.backing = made.expect("a kernel socket");
    // So that the kernel binds it in any case.
    sockopt::set_socket_reuseaddr(&program.backing, true).expect("a socket");
    sockopt::set_socket_reuseport(&program.backing, shares).expect("a socket");
    let local = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
    rustix::net::bind(&program.backing, &local).expect("none listens in the kernel");
    let (socket, local) = (
        program.open(wired)?,
        SocketAddr::from(([0; 4], program.port())),
    );
    program.try_call(wired, socket.id, Op::Bind { local })?;
    program.try_call(wired, socket.id, Op::Listen { backlog: 1 })?;
    Ok(local.port())
}

#[test]
fn an_end_is_shared_by_sockets_of_one_user_that_ask_for_it() {
    let table = [(true, true), (true, false), (false, true), (false, false)];
    for (first, second) in table {
        let mut wired = Wired::new(small_limits());
        let mut programs = [wired.attach(0), wired.attach(0)];
        let port = listens(&mut wired, &mut programs[0], 0, first).expect("a free port");
        let shared = listens(&mut wired, &mut programs[1], port, second);
        let expected = if first && second {
            Ok(port)
        } else {
            Err(Errno::ADDRINUSE)
        };
        assert_eq!(shared, expected, "{first}, {second}");
    }
}

#[test]
fn an_end_is_not_shared_with_another_user() {
    let mut wired = Wired::new(small_limits());
    let mut programs = [wired.attach(0), wired.attach(0)];
    let port = listens(&mut wired, &mut programs[0], 0, true).expect("a free port");
    let backing = &programs[0].backing;
    let stranger = rustix::fs::Uid::from_raw(65_534);
    if rustix::fs::fchown(backing, Some(stranger), None).is_err() {
        let _ = writeln!(
            std::io::stderr(),
            "skipped: held: a socket's owner can be changed by root only"
        );
        return;
    }
    // The owner is asked when a socket begins to listen.
    programs.swap(0, 1);
    let free = listens(&mut wired, &mut programs[0], port, true);
    assert_eq!(free, Ok(port), "the first was root's when it began");
    let mut third = wired.attach(0);
    third.backing = programs[1].backing.try_clone().expect("a descriptor");
    let socket = third.open(&mut wired).expect("room");
    let local = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
    third
        .try_call(&mut wired, socket.id, Op::Bind { local })
        .expect("it holds the port");
    let listens = third.try_call(&mut wired, socket.id, Op::Listen { backlog: 1 });
    assert_eq!(listens, Err(Errno::ADDRINUSE));
}

#[test]
fn a_datagram_port_of_loopback_is_no_port_of_the_engine() {
    let mut wired = Wired::new(small_limits());
    let mut program = wired.attach(0);
    let flags = SocketFlags::CLOEXEC;
    let made = rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None);
    program.backing = made.expect("a kernel socket");
    rustix::net::bind(
        &program.backing,
        &SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
    )
    .expect("a free port");
    let port = program.port();
    for address in [ADDRESSES[0], Ipv4Addr::UNSPECIFIED] {
        let socket = program.open_by(&mut wired, &Request::OpenDatagram);
        let socket = socket.expect("room");
        let local = SocketAddr::from((address, port));
        let bound = program.try_call(&mut wired, socket.id, Op::Bind { local });
        assert_eq!(bound, Err(Errno::ACCESS), "bind to {local}");
    }
}

#[test]
fn a_port_in_a_network_of_ones_own_is_no_port_here() {
    let made = std::thread::spawn(|| {
        #[expect(deprecated, reason = "the thread ends with its namespace")]
        rustix::thread::unshare(rustix::thread::UnshareFlags::NEWNET).map(|()| kernel_socket())
    });
    let Ok(backing) = made.join().expect("the thread lives") else {
        let _ = writeln!(
            std::io::stderr(),
            "skipped: a_port_in_a_network_of_ones_own_is_no_port_here: no right to make a network namespace"
        );
        return;
    };
    let mut wired = Wired::new(small_limits());
    let mut program = wired.attach(0);
    program.backing = backing;
    let socket = program.open(&mut wired).expect("room");
    let local = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    let bound = program.try_call(&mut wired, socket.id, Op::Bind { local });
    assert_eq!(bound, Err(Errno::ACCESS));
}
