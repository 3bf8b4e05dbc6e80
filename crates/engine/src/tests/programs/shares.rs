//! Two users: one takes all it can get, and the other has its own.

use crate::harness::{Program, Socket, Wired, small_limits};
use core::net::SocketAddr;
use engine_config::Limits;
use hostif::{Flags, Layout};
use rustix::io::Errno;
use tcp::Duration;

/// Numbers that neither root nor whoever runs the tests has.
const GREEDY: u32 = 65_532;
const OTHER: u32 = 65_533;

fn refused_rows(wired: &Wired) -> u64 {
    wired.cores[0].layer.sockets.regions.refused().rows
}

#[test]
fn one_user_gets_half_of_the_sockets() {
    let mut wired = Wired::new(small_limits());
    let share = small_limits().rows() / 2;
    let mut program = wired.try_attach_as(0, GREEDY).unwrap();
    let mut sockets: Vec<Socket> = Vec::new();
    let refusal = loop {
        match program.open(&mut wired) {
            Ok(socket) => sockets.push(socket),
            Err(errno) => break errno,
        }
    };
    assert_eq!((refusal, sockets.len()), (Errno::NFILE, share));
    assert_eq!(refused_rows(&wired), 1);
    let second = wired.try_attach_as(0, GREEDY).unwrap();
    assert_eq!(second.open(&mut wired).err(), Some(Errno::NFILE));
    let other = wired.try_attach_as(0, OTHER).unwrap();
    other.open(&mut wired).unwrap();
    program.close(&sockets[0]);
    wired.run_until_idle();
    second.open(&mut wired).unwrap();
    assert_eq!(program.open(&mut wired).err(), Some(Errno::NFILE));
    // What a dead program had is its user's to have again.
    drop(program);
    wired.advance(Duration::from_secs(1));
    second.open(&mut wired).unwrap();
}

#[test]
fn one_user_gets_half_of_the_listeners() {
    let mut wired = Wired::new(small_limits());
    let mut programs: Vec<Program> = (0..3)
        .map(|_| wired.try_attach_as(0, GREEDY).unwrap())
        .collect();
    let first = programs[0].listen(&mut wired, 1).unwrap();
    programs[1].listen(&mut wired, 1).unwrap();
    let third = programs[2].listen(&mut wired, 1);
    assert_eq!(third.err(), Some(Errno::NOBUFS), "half of four");
    let mut other = wired.try_attach_as(0, OTHER).unwrap();
    other.listen(&mut wired, 1).unwrap();
    programs[0].close(&first.0);
    wired.run_until_idle();
    programs[2].listen(&mut wired, 1).unwrap();
}

#[test]
fn one_user_gets_half_of_the_udp_ports() {
    let mut wired = Wired::new(small_limits());
    let share = small_limits().datagrams / 2;
    let mut greedy = wired.try_attach_as(0, GREEDY).unwrap();
    let sockets: Vec<Socket> = (0..share)
        .map(|_| greedy.datagram_socket(&mut wired).unwrap().0)
        .collect();
    let refused = greedy.datagram_socket(&mut wired);
    assert_eq!(refused.err(), Some(Errno::NOBUFS));
    let mut second = wired.try_attach_as(0, GREEDY).unwrap();
    let refused = second.datagram_socket(&mut wired);
    assert_eq!(refused.err(), Some(Errno::NOBUFS), "of another program");
    assert_eq!(refused_rows(&wired), 2);
    let mut other = wired.try_attach_as(0, OTHER).unwrap();
    other.datagram_socket(&mut wired).unwrap();
    greedy.close(&sockets[0]);
    wired.run_until_idle();
    second.datagram_socket(&mut wired).unwrap();
    // What a dead program had is its user's to have again.
    drop(greedy);
    wired.advance(Duration::from_secs(1));
    second.datagram_socket(&mut wired).unwrap();
}

#[test]
fn one_user_gets_half_of_the_connections() {
    let mut limits = small_limits();
    limits.connections = 8;
    let mut wired = Wired::new(limits);
    let mut passive = wired.attach(1);
    let listener = passive.listen(&mut wired, 16).unwrap();
    let mut greedy = wired.try_attach_as(0, GREEDY).unwrap();
    let sockets: Vec<Socket> = (0..4)
        .map(|_| greedy.connect(&mut wired, listener.1).unwrap())
        .collect();
    let fifth = greedy.connect(&mut wired, listener.1);
    assert_eq!(fifth.err(), Some(Errno::NOBUFS));
    let mut other = wired.try_attach_as(0, OTHER).unwrap();
    let served = other.connect(&mut wired, listener.1).unwrap();
    wired.run_until_idle();
    assert!(served.flags().contains(Flags::CONNECTED));
    greedy.close(&sockets[0]);
    while let Ok(accepted) = passive.accept(&mut wired, &listener.0) {
        passive.close(&accepted);
    }
    wired.advance(Duration::from_secs(61));
    greedy.connect(&mut wired, listener.1).unwrap();
}

/// Windows of 1 MiB, and memory for few of them: of users, who have half of it each, or of a program.
fn little_memory(of_user: bool) -> Limits {
    const SIZE: u32 = 1 << 20;
    let mut limits = small_limits();
    limits.region = Layout {
        send_window_bytes: SIZE,
        receive_window_bytes: SIZE,
        ..limits.region
    };
    match of_user {
        true => limits.window_memory_bytes = 2 << 20,
        false => limits.program_memory_bytes = 1 << 20,
    }
    limits
}

#[test]
fn a_program_or_user_whose_windows_are_full_gets_no_more_until_they_are_read() {
    for of_user in [false, true] {
        let limits = little_memory(of_user);
        let mut wired = Wired::new(limits);
        let mut greedy = wired.try_attach_as(1, GREEDY).unwrap();
        let mut other = wired.try_attach_as(1, OTHER).unwrap();
        let listener = greedy.listen(&mut wired, 16).unwrap();
        let theirs = other.listen(&mut wired, 16).unwrap();
        let mut pairs = Vec::new();
        // The bound of a program is that of both engines' programs.
        let (mut active, waits) = loop {
            let mut active = wired.attach(0);
            let near = active.connect(&mut wired, listener.1).unwrap();
            wired.run_until_idle();
            if near.flags().contains(Flags::CONNECTING) {
                break (active, near);
            }
            let far = greedy.accept(&mut wired, &listener.0).unwrap();
            while active.send(&near, &[1; 50_000]) > 0 {
                wired.run_until_idle();
            }
            pairs.push((active, near, far));
        };
        let memory = wired.cores[1].layer.sockets.regions.measure();
        assert!(
            memory < 2 << 20,
            "{memory} bytes of {} windows",
            pairs.len()
        );
        let refused = wired.cores[1].layer.sockets.regions.refused();
        assert!(refused.windows > 0);
        Program::connected(&mut wired, [&mut active, &mut other], &theirs);
        // It reads, and what waited is served.
        let mut received = vec![0; 1 << 20];
        for (active, near, far) in &mut pairs {
            while greedy.receive(far, &mut received) > 0 {
                wired.run_until_idle();
            }
            active.close(near);
            greedy.close(far);
        }
        wired.advance(Duration::from_secs(70));
        assert!(waits.flags().contains(Flags::CONNECTED), "{of_user}");
    }
}

/// Sends to a UDP socket that nobody reads, until it takes no more.
fn fill(wired: &mut Wired, sender: &Program, from: &Socket, (socket, at): (&Socket, SocketAddr)) {
    loop {
        let before = socket.header().received_end();
        for _ in 0..8 {
            sender.send_datagram(from, Some(at), &[1; 1_400]);
            wired.run_until_idle();
        }
        if socket.header().received_end() == before {
            return;
        }
    }
}

#[test]
fn a_program_or_user_whose_udp_rings_are_full_binds_no_more_until_it_closes_some() {
    for of_user in [false, true] {
        let mut limits = little_memory(of_user);
        limits.datagrams = 64;
        let mut wired = Wired::new(limits);
        let mut greedy = wired.try_attach_as(1, GREEDY).unwrap();
        let mut other = wired.try_attach_as(1, OTHER).unwrap();
        let mut sender = wired.attach(0);
        let (from, _) = sender.datagram_socket(&mut wired).unwrap();
        let mut full = Vec::new();
        let refusal = loop {
            match greedy.datagram_socket(&mut wired) {
                Ok((socket, at)) => {
                    fill(&mut wired, &sender, &from, (&socket, at));
                    full.push(socket);
                }
                Err(errno) => break errno,
            }
        };
        assert_eq!(refusal, Errno::NOBUFS);
        assert!(full.len() > 1, "{of_user}: it was refused too early");
        let refused = wired.cores[1].layer.sockets.regions.refused();
        assert_eq!((refused.rows, refused.windows), (0, 1), "{of_user}");
        let memory = wired.cores[1].layer.sockets.regions.measure();
        assert!(memory < 2 << 20, "{memory} bytes of {} rings", full.len());
        let (heard, at) = other.datagram_socket(&mut wired).unwrap();
        sender.send_datagram(&from, Some(at), b"served");
        wired.run_until_idle();
        let received = other.receive_datagram(&heard);
        assert_eq!(received.map(|(_, payload)| payload), Some(b"served".into()));
        for socket in &full {
            greedy.close(socket);
        }
        wired.advance(Duration::from_secs(1));
        greedy.datagram_socket(&mut wired).unwrap();
    }
}
