//! Every table full: what the program is told, that nothing hangs, that all recovers.

use crate::harness::{Program, Socket, Wired, small_limits};
use engine_config::Limits;
use hostif::{Flags, Op};
use rustix::io::Errno;
use tcp::Duration;

fn wired(change: impl Fn(&mut Limits)) -> Wired {
    let mut limits = small_limits();
    change(&mut limits);
    Wired::new(limits)
}

#[test]
fn one_user_gets_half_of_the_sessions_and_another_still_attaches() {
    let mut wired = wired(|limits| limits.sessions = 4);
    let mut attach = |uid: u32| {
        let (near, _far) = rustix::net::socketpair(
            rustix::net::AddressFamily::UNIX,
            rustix::net::SocketType::SEQPACKET,
            rustix::net::SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        wired.cores[0].programs.add(near, 1, uid).is_some()
    };
    // Numbers that neither root nor whoever runs the tests has.
    let attached = [65_532, 65_532, 65_532, 65_533, 65_533].map(&mut attach);
    assert_eq!(attached, [true, true, false, true, true]);
}

#[test]
fn a_full_socket_table_is_enfile_until_one_closes() {
    let mut wired = wired(|limits| {
        (limits.connections, limits.listeners, limits.sessions) = (4, 1, 1);
        limits.datagrams = 0;
    });
    let mut program = wired.attach(0);
    let sockets: Vec<Socket> = (0..6).map(|_| program.open(&mut wired).unwrap()).collect();
    assert_eq!(program.open(&mut wired).err(), Some(Errno::NFILE));
    program.close(&sockets[3]);
    wired.run_until_idle();
    program.open(&mut wired).unwrap();
    assert_eq!(program.open(&mut wired).err(), Some(Errno::NFILE));
}

#[test]
fn no_headers_left_in_a_region_is_enfile_for_its_program_alone() {
    let mut wired = wired(|limits| limits.region.socket_headers = 3);
    let program = wired.attach(0);
    for _ in 0..3 {
        program.open(&mut wired).unwrap();
    }
    assert_eq!(program.open(&mut wired).err(), Some(Errno::NFILE));
    wired.attach(0).open(&mut wired).unwrap();
}

#[test]
fn no_windows_left_is_enobufs_and_a_closed_connection_gives_its_own_back() {
    let mut wired = wired(|limits| limits.region.window_pairs = 2);
    let (mut active, mut passive) = (wired.attach(0), wired.attach(1));
    let listener = passive.listen(&mut wired, 8).unwrap();
    let first = active.connect(&mut wired, listener.1).unwrap();
    active.connect(&mut wired, listener.1).unwrap();
    wired.run_until_idle();
    let third = active.connect(&mut wired, listener.1);
    assert_eq!(third.err(), Some(Errno::NOBUFS));
    let linger = hostif::OptionChanges {
        linger_s: Some(Some(0)),
        ..hostif::OptionChanges::default()
    };
    active
        .try_call(
            &mut wired,
            first.id,
            Op::SetOptions {
                changes: linger,
                written_low: 0,
            },
        )
        .unwrap();
    active.close(&first);
    wired.run_until_idle();
    // What was reset in the queue has its windows until somebody has accepted and closed it.
    let dead = passive.accept(&mut wired, &listener.0).unwrap();
    assert!(dead.flags().contains(Flags::ERROR));
    passive.close(&dead);
    wired.run_until_idle();
    let next = active.connect(&mut wired, listener.1).unwrap();
    wired.run_until_idle();
    assert!(next.flags().contains(Flags::CONNECTED));
}

#[test]
fn no_windows_left_at_the_listener_makes_the_peer_wait_not_fail() {
    let mut wired = wired(|limits| limits.region.window_pairs = 2);
    let mut passive = wired.attach(1);
    let listener = passive.listen(&mut wired, 8).unwrap();
    let mut programs = [wired.attach(0), wired.attach(0)];
    let mut sockets = Vec::new();
    for number in 0..3 {
        let program = &mut programs[number / 2];
        sockets.push(program.connect(&mut wired, listener.1).unwrap());
        wired.run_until_idle();
    }
    assert!(sockets[2].flags().contains(Flags::CONNECTING));
    // The peer goes away, so its windows are free for the repeated SYN.
    let first = passive.accept(&mut wired, &listener.0).unwrap();
    passive.close(&first);
    programs[0].close(&sockets[0]);
    wired.advance(Duration::from_secs(70));
    assert!(sockets[2].flags().contains(Flags::CONNECTED));
}

#[test]
fn a_full_accept_queue_makes_further_peers_wait_until_somebody_accepts() {
    let mut wired = wired(|_| ());
    let (mut active, mut passive) = (wired.attach(0), wired.attach(1));
    let listener = passive.listen(&mut wired, 1).unwrap();
    let mut sockets: Vec<Socket> = Vec::new();
    for _ in 0..8 {
        sockets.push(active.connect(&mut wired, listener.1).unwrap());
        wired.run_until_idle();
    }
    assert_eq!(listener.0.header().accept_ready(), 2, "backlog + 1");
    let failed = sockets.iter().filter(|s| s.flags().contains(Flags::ERROR));
    assert_eq!(failed.count(), 0, "a full queue refuses nobody");
    let mut accepted = 0;
    let mut has_written = [false; 8];
    for _ in 0..40 {
        while passive.accept(&mut wired, &listener.0).is_ok() {
            accepted += 1;
        }
        wired.advance(Duration::from_secs(2));
        // Who was answered with a SYN cookie and found the queue full again is remembered by nobody
        // until data comes, as on Linux.
        for (socket, has_written) in sockets.iter().zip(&mut has_written) {
            if socket.flags().contains(Flags::CONNECTED) && !*has_written {
                *has_written = active.send(socket, b"x") == 1;
            }
        }
    }
    assert_eq!(accepted, 8);
    let connected = |socket: &&Socket| socket.flags().contains(Flags::CONNECTED);
    assert_eq!(sockets.iter().filter(connected).count(), 8);
}

#[test]
fn accepting_from_an_empty_queue_is_eagain_and_keeps_the_backing_socket() {
    let mut wired = wired(|_| ());
    let mut passive = wired.attach(1);
    let listener = passive.listen(&mut wired, 1).unwrap();
    for _ in 0..3 {
        let none = passive.accept(&mut wired, &listener.0);
        assert_eq!(none.err(), Some(Errno::AGAIN));
    }
    let session = wired.cores[1].programs.get(passive.slot).unwrap();
    assert_eq!(session.backings.len(), 1);
}

#[test]
fn exhausted_ports_are_eaddrnotavail_until_one_is_free() {
    let mut wired = wired(|limits| limits.ephemeral_ports = (40_000, 40_003));
    let (mut active, mut passive) = (wired.attach(0), wired.attach(1));
    let listener = passive.listen(&mut wired, 8).unwrap();
    let mut pairs: Vec<(Socket, Socket)> = (0..4)
        .map(|_| Program::connected(&mut wired, [&mut active, &mut passive], &listener))
        .collect();
    let fifth = active.connect(&mut wired, listener.1);
    assert_eq!(fifth.err(), Some(Errno::ADDRNOTAVAIL));
    // Another destination has a port range of its own.
    let other = passive.listen(&mut wired, 8).err();
    assert_eq!(other, Some(Errno::ADDRINUSE), "one kernel socket, one port");
    let (near, far) = pairs.remove(0);
    active.close(&near);
    wired.run_until_idle();
    passive.close(&far);
    wired.advance(Duration::from_secs(61));
    Program::connected(&mut wired, [&mut active, &mut passive], &listener);
}

#[test]
fn full_connection_tables_are_told_and_recover() {
    let mut wired = wired(|limits| limits.connections = 3);
    let (mut active, mut passive) = (wired.attach(0), wired.attach(1));
    let listener = passive.listen(&mut wired, 8).unwrap();
    let mut sockets = Vec::new();
    for _ in 0..3 {
        let programs = [&mut active, &mut passive];
        sockets.push(Program::connected(&mut wired, programs, &listener));
    }
    let fourth = active.connect(&mut wired, listener.1);
    assert_eq!(fourth.err(), Some(Errno::NOBUFS));
    let (near, far) = sockets.remove(0);
    passive.close(&far);
    active.close(&near);
    wired.run_until_idle();
    Program::connected(&mut wired, [&mut active, &mut passive], &listener);
}

#[test]
fn too_many_listeners_are_enobufs_until_one_closes() {
    let mut wired = wired(|limits| limits.listeners = 2);
    let mut programs: Vec<Program> = (0..3).map(|_| wired.attach(0)).collect();
    let first = programs[0].listen(&mut wired, 1).unwrap();
    programs[1].listen(&mut wired, 1).unwrap();
    assert_eq!(programs[2].listen(&mut wired, 1).err(), Some(Errno::NOBUFS));
    programs[0].close(&first.0);
    wired.run_until_idle();
    // The socket that failed is still open and bound.
    programs[2].listen(&mut wired, 1).unwrap();
}

#[test]
fn too_many_programs_are_enfile_until_one_ends() {
    let mut wired = wired(|limits| limits.sessions = 3);
    let mut programs: Vec<Program> = (0..3).map(|_| wired.attach(0)).collect();
    assert_eq!(wired.try_attach(0).err(), Some(Errno::NFILE));
    let forked = programs[0].fork(&mut wired);
    assert_eq!(forked.err(), Some(Errno::NFILE));
    drop(programs.pop());
    wired.run_until_idle();
    wired.attach(0).open(&mut wired).unwrap();
}

#[test]
fn a_port_that_the_kernel_did_not_give_is_eacces() {
    let mut wired = wired(|_| ());
    let mut program = wired.attach(0);
    let socket = program.open(&mut wired).unwrap();
    let local = "10.9.0.1:80".parse().unwrap();
    let connect = Op::Connect {
        remote: "10.9.0.2:9".parse().unwrap(),
        local: Some(local),
    };
    let refused = program.try_call(&mut wired, socket.id, connect);
    assert_eq!(refused, Err(Errno::ACCESS));
    program
        .try_call(&mut wired, socket.id, Op::Bind { local })
        .unwrap();
    let listen = Op::Listen { backlog: 1 };
    let refused = program.try_call(&mut wired, socket.id, listen);
    assert_eq!(refused, Err(Errno::ACCESS));
}
