//! Programs that are killed or fork while they hold sockets of an engine: what their peers see, and
//! that the engine keeps nothing of them.

#![allow(clippy::unwrap_used)] // a failure here ends the test, as it should

mod engine_support;
#[path = "engine_death/sys.rs"]
mod sys;

use std::net::SocketAddr;
use std::time::Instant;

use client::{Errno, Readiness, Session, Socket, State, TcpSocket};
use engine_support::process::{Part, ProgramProcess, part};
use engine_support::*;

/// More than both windows hold, so that some of it is still unsent when the program dies.
const UNSENT: usize = 300_000;

/// Engines of one core, and of several.
fn each() -> impl Iterator<Item = [EngineThread; 2]> {
    [engines, || engines_of_cores([2, 2])]
        .into_iter()
        .map(|engines| engines())
}

#[test]
#[ignore = "the programs of the other tests"]
fn program_process() {
    let Some(part) = part() else { return };
    let session = Session::attach(&part.engine).unwrap();
    match part.role.as_str() {
        "victim" => victim(&part, session),
        "parent" => parent(&part, session),
        "short" => {
            let socket = connect(session, part.peer).unwrap();
            send_all(&socket, b"once").unwrap();
            part.say("sent");
            part.wait();
        }
        role => panic!("no role {role}"),
    }
}

/// Holds one socket of each kind until it is killed.
fn victim(part: &Part, session: &'static Session) {
    let idle = connect(session, part.peer).unwrap();
    let sending = connect(session, part.peer).unwrap();
    send_all(&sending, &pattern(0, UNSENT)).unwrap();
    let unread = connect(session, part.peer).unwrap();
    let nowhere = begin_connect(session, SocketAddr::from(([10, 9, 1, 78], 9)));
    for socket in [&idle, &sending, &unread] {
        part.say(&socket.local_address().unwrap().port().to_string());
    }
    let (listener, address) = listener(session, ADDRESSES[0]);
    part.say(&address.port().to_string());
    wait_for(&unread, Readiness::IN);
    wait_for(&listener, Readiness::IN);
    part.say("ready");
    part.wait();
    drop((idle, sending, unread, nowhere, listener));
}

#[test]
fn peers_of_a_killed_program_see_what_a_kernel_would_send() {
    for engines in each() {
        let session = Session::attach(&engines[1].name).unwrap();
        let (listener, address) = listener(session, ADDRESSES[1]);
        let mut program = ProgramProcess::start("victim", &engines[0].name, address);
        // Each core accepts for itself, so they may come in another order.
        let mut accepted = [(); 3].map(|()| Some(accept(&listener)));
        let [idle, sending, unread] = [(); 3].map(|()| {
            let port: u16 = program.said().parse().unwrap();
            let from = |socket: &TcpSocket| socket.peer_address().unwrap().port();
            let mut its = accepted.iter_mut();
            let its = its.find(|one| one.as_deref().is_some_and(|one| from(one) == port));
            its.and_then(Option::take).unwrap()
        });
        send_all(&unread, b"never read").unwrap();
        let port: u16 = program.said().parse().unwrap();
        let queued = connect(session, SocketAddr::from((ADDRESSES[0], port))).unwrap();
        assert_eq!(program.said(), "ready");
        program.kill();

        assert_eq!(recv_some(&idle, &mut [0; 8]), Ok(0), "FIN");
        assert_eq!(recv_exact(&sending, UNSENT), pattern(0, UNSENT));
        assert_eq!(recv_some(&sending, &mut [0; 8]), Ok(0), "FIN");
        let reset = Err(Errno::CONNRESET);
        assert_eq!(recv_some(&unread, &mut [0; 8]), reset, "RST: bytes unread");
        assert_eq!(recv_some(&queued, &mut [0; 8]), reset, "RST: not accepted");
        // The system closes the descriptors of the dead one by one, after the channel that told of it.
        let late = || connect(session, SocketAddr::from((ADDRESSES[0], port))).err();
        let end = Instant::now() + PATIENCE;
        while late() != Some(Errno::CONNREFUSED) {
            assert!(Instant::now() < end, "the listener of the dead lives on");
        }
        drop((idle, sending));
        engines[0].wait_empty();
    }
}

#[test]
fn many_killed_programs_leave_an_engine_as_it_was() {
    for engines in each() {
        let session = Session::attach(&engines[1].name).unwrap();
        let (listener, address) = listener(session, ADDRESSES[1]);
        for _ in 0..5 {
            let mut program = ProgramProcess::start("short", &engines[0].name, address);
            let socket = accept(&listener);
            assert_eq!(program.said(), "sent");
            program.kill();
            assert_eq!(recv_exact(&socket, 4), b"once");
            assert_eq!(recv_some(&socket, &mut [0; 4]), Ok(0));
            drop(socket);
            engines[0].wait_empty();
        }
    }
}

/// Forks a child that goes on with the connection, and ends.
fn parent(part: &Part, session: &'static Session) {
    let socket = connect(session, part.peer).unwrap();
    send_all(&socket, b"parent").unwrap();
    sys::fork(session, || {
        part.wait();
        send_all(&socket, b"child").unwrap();
        assert_eq!(recv_exact(&socket, 5), b"peer!");
        assert_eq!(socket.state(), State::Connected);
    });
    part.say("forked");
}

#[test]
fn a_child_goes_on_with_a_connection_when_its_parent_has_ended() {
    for engines in each() {
        let session = Session::attach(&engines[1].name).unwrap();
        let (listener, address) = listener(session, ADDRESSES[1]);
        let mut program = ProgramProcess::start("parent", &engines[0].name, address);
        let socket = accept(&listener);
        assert_eq!(recv_exact(&socket, 6), b"parent");
        assert_eq!(program.said(), "forked");
        assert!(program.end(PATIENCE).success());
        // The parent's end has come to the engine: one program is left.
        testkit::wait_for("end of the parent's session", PATIENCE, || {
            let programs = engines[0].status_of_cores();
            programs
                .iter()
                .filter_map(|core| core["programs"].as_u64())
                .sum::<u64>()
                == 1
        });
        assert!(!socket.readiness().contains(Readiness::RDHUP));
        program.go_on();
        assert_eq!(recv_exact(&socket, 5), b"child");
        send_all(&socket, b"peer!").unwrap();
        assert_eq!(recv_some(&socket, &mut [0; 8]), Ok(0), "FIN");
        drop(socket);
        engines[0].wait_empty();
    }
}
