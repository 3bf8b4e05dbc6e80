//! The ends of a pair of datagram sockets.

use super::*;
use rustix::net::{recv, send};

/// In the place of a socket of its own: the name of an end is made of that, and tests run side by side.
fn pair() -> DatagramPair {
    let backing = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None).unwrap();
    DatagramPair::new(backing.as_fd(), true).unwrap()
}

#[test]
fn an_end_without_a_peer_cannot_write_and_one_with_a_peer_fails_once() {
    let pair = pair();
    let (programs, ours) = (pair.programs.as_fd(), pair.ours.as_fd());
    let write = || send(programs, b"out", SendFlags::DONTWAIT);
    let mut place = [0; 16];
    send(ours, b"in", SendFlags::DONTWAIT).unwrap();
    assert_eq!(write(), Err(Errno::NOTCONN));
    rustix::net::connect(programs, &pair.own_name).unwrap();
    assert_eq!(write(), Ok(3));
    recv(ours, &mut place[..], RecvFlags::DONTWAIT).unwrap();
    fail_once(ours, &pair.own_name, &pair.programs_name).unwrap();
    assert_eq!(write(), Err(Errno::CONNRESET));
    // What had arrived is still there, and so is the way in both directions.
    let (len, _) = recv(programs, &mut place[..], RecvFlags::DONTWAIT).unwrap();
    assert_eq!(&place[..len], b"in");
    assert_eq!(write(), Ok(3));
    let (len, _) = recv(ours, &mut place[..], RecvFlags::DONTWAIT).unwrap();
    assert_eq!(&place[..len], b"out");
    send(ours, b"again", SendFlags::DONTWAIT).unwrap();
    let (len, _) = recv(programs, &mut place[..], RecvFlags::DONTWAIT).unwrap();
    assert_eq!(&place[..len], b"again");
}

#[test]
fn an_end_can_be_connected_to_as_long_as_anybody_has_it_open() {
    let pair = pair();
    let other = rustix::io::dup(&pair.programs).unwrap();
    let connect = || rustix::net::connect(&pair.ours, &pair.programs_name);
    drop(pair.programs);
    assert_eq!(connect(), Ok(()));
    drop(other);
    assert_eq!(connect(), Err(Errno::CONNREFUSED));
}

#[test]
fn what_was_to_fail_an_end_that_is_gone_is_no_datagram_of_the_programs() {
    let pair = pair();
    rustix::net::connect(&pair.programs, &pair.own_name).unwrap();
    send(&pair.programs, b"last", SendFlags::DONTWAIT).unwrap();
    drop(pair.programs);
    let ours = pair.ours.as_fd();
    let mut place = [0; 16];
    assert_eq!(take_sent(ours, &pair.own_name, &mut place), Some(4));
    let failed = fail_once(ours, &pair.own_name, &pair.programs_name);
    assert_eq!(failed, Err(Errno::CONNREFUSED));
    assert_eq!(take_sent(ours, &pair.own_name, &mut place), None);
}

#[test]
fn a_stranger_cannot_send_to_an_end_that_has_a_peer() {
    let pair = pair();
    rustix::net::connect(&pair.programs, &pair.own_name).unwrap();
    let stranger = rustix::net::socket(AddressFamily::UNIX, SocketType::DGRAM, None).unwrap();
    for name in [&pair.programs_name, &pair.own_name] {
        let sent = rustix::net::sendto(&stranger, b"x", SendFlags::DONTWAIT, name);
        assert_eq!(sent, Err(Errno::PERM));
    }
}
