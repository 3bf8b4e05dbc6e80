//! Two programs on one engine, by its own address or by loopback: no frame leaves.

use crate::harness::{ADDRESSES, Program, Socket, Wired, kernel_socket_on, small_limits};
use core::net::SocketAddr;
use hostif::{Flags, Op};
use rustix::io::Errno;

#[test]
fn programs_of_one_engine_talk_without_a_frame_on_the_wire() {
    let mut wired = Wired::new(small_limits());
    let (mut active, mut passive) = (wired.attach(0), wired.attach(0));
    let listener = passive.listen(&mut wired, 8).unwrap();
    let frames = wired.cores[0].layer.link.driver.counters().tx_frames;
    let (near, far) = Program::connected(&mut wired, [&mut active, &mut passive], &listener);
    let sent: Vec<u8> = (0..200_000_u32)
        .map(|at| (at * 7 / 3).to_le_bytes()[0])
        .collect();
    let (mut done, mut received) = (0, Vec::new());
    while received.len() < sent.len() {
        done += active.send(&near, &sent[done..]);
        wired.run_until_idle();
        let mut bytes = [0; 20_000];
        let len = passive.receive(&far, &mut bytes);
        assert!(len > 0, "stuck after {} bytes", received.len());
        received.extend_from_slice(&bytes[..len]);
    }
    assert_eq!(received, sent);
    active.close(&near);
    wired.run_until_idle();
    assert!(far.flags().contains(Flags::FIN));
    assert_eq!(
        wired.cores[0].layer.link.driver.counters().tx_frames,
        frames
    );
}

/// Whoever is woken may run before the next poll, and what he does then overtakes it on another core.
#[test]
fn who_hears_that_he_is_connected_finds_the_other_end_to_be_accepted() {
    let mut wired = Wired::new(small_limits());
    let (mut active, mut passive) = (wired.attach(0), wired.attach(0));
    let (listener, address) = passive.listen(&mut wired, 8).unwrap();
    for count in 1..=3 {
        let near = active.open(&mut wired).unwrap();
        let (remote, local) = (address, None);
        active.post(Some(near.id), Op::Connect { remote, local });
        for _ in 0..8 {
            wired.turn();
            let stands = near.flags().contains(Flags::CONNECTED);
            let waiting = listener.header().accept_ready();
            assert_eq!(waiting, if stands { count } else { count - 1 });
        }
        assert!(near.flags().contains(Flags::CONNECTED));
    }
}

#[test]
fn a_port_of_ours_without_listener_refuses() {
    let mut wired = Wired::new(small_limits());
    let (mut active, mut passive) = (wired.attach(0), wired.attach(0));
    let (listener, address) = passive.listen(&mut wired, 8).unwrap();
    passive.close(&listener);
    wired.run_until_idle();
    let refused = active.connect(&mut wired, address).unwrap();
    wired.run_until_idle();
    assert_eq!(refused.header().error(), 111, "ECONNREFUSED");
}

fn called(text: &str, port: u16) -> SocketAddr {
    SocketAddr::new(text.parse().unwrap(), port)
}

/// A listener on an address; its port.
fn listen_on(wired: &mut Wired, program: &mut Program, local: SocketAddr) -> (Socket, u16) {
    let listener = program.open(wired).unwrap();
    let bind = Op::Bind { local };
    let port = program.try_call(wired, listener.id, bind).unwrap();
    let listen = Op::Listen { backlog: 8 };
    program.try_call(wired, listener.id, listen).unwrap();
    (listener, u16::try_from(port).unwrap())
}

#[test]
fn all_of_loopback_is_the_engines_own_and_the_first_address_speaks() {
    let mut wired = Wired::new(small_limits());
    let (mut active, mut passive) = (wired.attach(0), wired.attach(0));
    let (_listener, port) = listen_on(&mut wired, &mut passive, called("0.0.0.0", 0));
    for name in ["127.0.0.1", "127.8.9.10"] {
        let remote = called(name, port);
        let near = active.open(&mut wired).unwrap();
        let heard = Op::ConnectHeard {
            remote,
            local: None,
        };
        active.try_call(&mut wired, near.id, heard).unwrap();
        wired.run_until_idle();
        assert!(near.flags().contains(Flags::CONNECTED), "{name}");
        let (local, peer) = near.header().addresses();
        assert_eq!(local.unwrap().ip().to_string(), "127.0.0.1");
        assert_eq!(peer, Some(remote));
    }
}

#[test]
fn what_nobody_hears_is_refused_before_anything_is_sent() {
    let mut wired = Wired::new(small_limits());
    let (mut active, mut passive) = (wired.attach(0), wired.attach(0));
    let own = SocketAddr::new(ADDRESSES[0].into(), 0);
    let (listener, port) = listen_on(&mut wired, &mut passive, own);
    for remote in [called("127.0.0.1", port), called("::1", port)] {
        let near = active.open(&mut wired).unwrap();
        let heard = Op::ConnectHeard {
            remote,
            local: None,
        };
        let refused = active.try_call(&mut wired, near.id, heard);
        assert_eq!(refused, Err(Errno::CONNREFUSED));
        assert_eq!(near.header().error(), 0, "nothing has come of it");
    }
    passive.close(&listener);
}

#[test]
fn a_port_on_one_address_of_loopback_gives_no_other() {
    let mut wired = Wired::new(small_limits());
    let mut program = wired.attach(0);
    let elsewhere = kernel_socket_on(called("127.0.0.2", 0)).unwrap();
    program.backing = elsewhere;
    for local in ["127.0.0.1", "0.0.0.0"] {
        let socket = program.open(&mut wired).unwrap();
        let local = called(local, program.port());
        let bound = program.try_call(&mut wired, socket.id, Op::Bind { local });
        assert_eq!(bound, Err(Errno::ACCESS), "{local}");
    }
    let socket = program.open(&mut wired).unwrap();
    let local = called("127.0.0.2", program.port());
    let bound = program.try_call(&mut wired, socket.id, Op::Bind { local });
    assert_eq!(bound, Ok(u64::from(program.port())));
}
