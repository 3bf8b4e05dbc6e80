//! A core that stops wherever it changes rows, and the next one, which goes on with them (docs/reliability.md).

use crate::core::EngineCore;
use crate::harness::{ADDRESSES, Program, Socket, Wired, core_on, serve, small_limits};
use crate::programs::resume::Taken;
use crate::state::rows::crash;
use core::net::{IpAddr, SocketAddr};
use engine_config::{Address, Config, History, KeptState};
use hostif::control::{Reply, Request};
use hostif::sync::doorbell;
use hostif::{Completion, Flags, MembershipChange, Op};
use nic::Driver;
use nic::wire::{self, WireEnd};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd as _, OwnedFd};
use rustix::fs::MemfdFlags;
use std::sync::Arc;
use tcp::{Duration, Instant};

/// The first of two cores, whose state outlives it.
struct Kept {
    wired: Wired,
    state: Arc<OwnedFd>,
}

fn over(state: &Arc<OwnedFd>, driver: Box<dyn Driver>, now: Instant, goes_on: bool) -> EngineCore {
    let own = Address {
        address: ADDRESSES[0].into(),
        prefix_len: 24,
    };
    let kept = KeptState {
        state: Arc::clone(state),
        keeper: 0,
        listener: Arc::clone(state),
        goes_on,
        left: Vec::new(),
        device: Vec::new(),
        stopped_ns: 0,
        history: History::default(),
    };
    let config = Config {
        limits: small_limits(),
        kept: Some(kept),
        ..Config::new("test", "wire", vec![own])
    };
    EngineCore::new(config, driver, [7; 16], now).unwrap()
}

impl Kept {
    fn new() -> Self {
        let state = rustix::fs::memfd_create(c"shunt-state", MemfdFlags::CLOEXEC).unwrap();
        let state = Arc::new(state);
        let now = Instant::from_us(1_000_000);
        let (left, right) = WireEnd::pair(&wire::Config::default()).unwrap();
        let cores = [
            over(&state, Box::new(left), now, false),
            core_on(right, ADDRESSES[1], small_limits(), now),
        ];
        let mut wired = Wired::of(cores, now);
        wired.run_until_idle();
        Self { wired, state }
    }

    /// Another core goes on in the place of the first, of which nothing is closed.
    fn go_on(&mut self) {
        let now = self.wired.now;
        let (spare, _) = WireEnd::pair(&wire::Config::default()).unwrap();
        let before = &mut self.wired.cores[0];
        let driver = core::mem::replace(&mut before.layer.link.driver, Box::new(spare));
        let next = over(&self.state, driver, now, true);
        core::mem::forget(core::mem::replace(before, next));
        before.resume(now, &mut Taken::default());
        self.wired.run_until_idle();
    }
}

/// A prepared socket to stand behind what is accepted.
fn prepared(wired: &mut Wired, program: &Program) -> u32 {
    let prepare = Request::Prepare { count: 1 };
    let answer = program.request(wired, &prepare, &[program.backing.as_fd()]);
    let (Reply::Prepared { first, .. }, _) = answer.unwrap() else {
        panic!("nothing was prepared");
    };
    first
}

/// The sockets that a program was told of as accepted by this command.
fn accepted(program: &mut Program, wanted: u32) -> Vec<(Socket, SocketAddr)> {
    program.reap();
    let told = program.reaped.drain(..);
    let told = told.filter_map(|completion| match completion {
        Completion::Accepted {
            token,
            socket,
            header,
            peer,
            ..
        } if token == wanted => Some((socket, header, peer)),
        _ => None,
    });
    let told: Vec<_> = told.collect();
    told.into_iter()
        .map(|(id, header, peer)| (program.socket(id, header), peer))
        .collect()
}

#[test]
fn a_connection_is_accepted_once_wherever_its_engine_ends() {
    for n in 0.. {
        let mut kept = Kept::new();
        let mut server = kept.wired.attach(0);
        let mut client = kept.wired.attach(1);
        let (listener, address) = server.listen(&mut kept.wired, 4).unwrap();
        let clients = [(); 2].map(|()| client.connect(&mut kept.wired, address).unwrap());
        kept.wired.run_until_idle();
        let mut told = Vec::new();
        let mut is_whole = false;
        for round in 0..2 {
            let handle = prepared(&mut kept.wired, &server);
            let token = server.post(Some(listener.id), Op::Accept { handle });
            let crashed = crash::during(if round == 0 { n } else { u32::MAX }, || {
                kept.wired.cores[0].poll(kept.wired.now, None);
            });
            is_whole |= round == 0 && !crashed;
            kept.go_on();
            let these = accepted(&mut server, token);
            assert_eq!(these.len(), 1, "crash {n}, accept {round}");
            told.extend(these);
        }
        assert_eq!(listener.header().accept_ready(), 0, "crash {n}");
        let mut peers: Vec<_> = told.iter().map(|(_, peer)| *peer).collect();
        let mut ends: Vec<_> = clients
            .iter()
            .map(|one| one.header().addresses().0)
            .collect();
        peers.sort();
        ends.sort();
        assert_eq!(
            peers.into_iter().map(Some).collect::<Vec<_>>(),
            ends,
            "crash {n}"
        );
        for (number, one) in clients.iter().enumerate() {
            assert!(!one.flags().contains(Flags::ERROR), "crash {n}");
            let peer = told
                .iter()
                .find(|(_, peer)| Some(*peer) == one.header().addresses().0);
            let (far, _) = peer.unwrap();
            assert_eq!(far.header().addresses().1, one.header().addresses().0);
            let said = format!("of {number}");
            assert_eq!(client.send(one, said.as_bytes()), said.len());
            kept.wired.run_until_idle();
            let mut bytes = [0; 16];
            let len = server.receive(far, &mut bytes);
            assert_eq!(&bytes[..len], said.as_bytes(), "crash {n}");
            server.close(far);
        }
        kept.wired.run_until_idle();
        for one in &clients {
            assert!(
                one.flags().contains(Flags::FIN),
                "crash {n}: {:?}",
                one.flags()
            );
        }
        if is_whole {
            assert!(n >= 8, "an accept passes {n} places only");
            return;
        }
    }
}

#[test]
fn connections_without_a_program_end_once_wherever_their_engine_ends() {
    for n in 0.. {
        let mut kept = Kept::new();
        let mut near = kept.wired.attach(0);
        let mut far = kept.wired.attach(1);
        let listener = far.listen(&mut kept.wired, 4).unwrap();
        let ends = [(); 2]
            .map(|()| Program::connected(&mut kept.wired, [&mut near, &mut far], &listener).1);
        // Both outlive their program together, and end when the last descriptor of both is closed.
        let elsewhere = rustix::io::dup(&near.backing).unwrap();
        drop(near);
        kept.wired.advance(Duration::from_secs(1));
        drop(elsewhere);
        kept.wired.now += Duration::from_secs(1);
        let crashed = crash::during(n, || {
            let now = kept.wired.now;
            serve(&mut kept.wired.cores[0], now);
            kept.wired.cores[0].poll(now, None);
        });
        kept.go_on();
        kept.wired.advance(Duration::from_secs(1));
        for end in &ends {
            let flags = end.flags();
            assert!(flags.contains(Flags::FIN), "crash {n}: {flags:?}");
            assert!(!flags.contains(Flags::ERROR), "crash {n}: {flags:?}");
            far.close(end);
        }
        kept.wired.advance(Duration::from_secs(600));
        assert_eq!(kept.wired.holdings()[0][..2], [0, 0], "crash {n}");
        if !crashed {
            assert!(n >= 3, "{n} places only");
            return;
        }
    }
}

/// Joins two groups, one of a source alone, leaves a source out of the first, and leaves a third again.
fn memberships() -> Vec<Op> {
    let about = |change, group: &str, source: Option<IpAddr>| Op::Membership {
        change,
        group: group.parse().unwrap(),
        source,
        interface: 0,
    };
    let peer = Some(IpAddr::from(ADDRESSES[1]));
    let other = Some(IpAddr::from([10, 9, 0, 99]));
    vec![
        about(MembershipChange::Join, "239.0.0.1", None),
        about(MembershipChange::Join, "239.0.0.2", peer),
        about(MembershipChange::Join, "239.0.0.3", None),
        about(MembershipChange::Block, "239.0.0.3", peer),
        about(MembershipChange::Join, "239.0.0.4", None),
        about(MembershipChange::Block, "239.0.0.4", other),
        about(MembershipChange::Leave, "239.0.0.4", None),
        about(MembershipChange::Join, "239.0.0.5", other),
    ]
}

#[test]
fn groups_are_joined_and_left_as_before_wherever_an_engine_ends() {
    for n in 0.. {
        let mut kept = Kept::new();
        let mut member = kept.wired.attach(0);
        let mut sender = kept.wired.attach(1);
        let (socket, at) = member.datagram_socket(&mut kept.wired).unwrap();
        let (from, _) = sender.datagram_socket(&mut kept.wired).unwrap();
        let tokens: Vec<u32> = memberships()
            .into_iter()
            .map(|op| member.post(Some(socket.id), op))
            .collect();
        let crashed = crash::during(n, || {
            kept.wired.cores[0].poll(kept.wired.now, None);
        });
        kept.go_on();
        kept.go_on();
        member.reap();
        let told = member.reaped.drain(..).filter_map(|told| match told {
            Completion::Done { token, errno, .. } if tokens.contains(&token) => {
                Some((token, errno))
            }
            _ => None,
        });
        let told: Vec<_> = told.collect();
        let expected: Vec<_> = tokens.iter().map(|token| (*token, 0)).collect();
        assert_eq!(told, expected, "crash {n}");
        for group in 1..=5 {
            let to = SocketAddr::from(([239, 0, 0, group], at.port()));
            sender.send_datagram(&from, Some(to), &[group]);
            kept.wired.run_until_idle();
        }
        let mut heard = Vec::new();
        while let Some((_, payload)) = member.receive_datagram(&socket) {
            heard.extend(payload);
            kept.wired.run_until_idle();
        }
        assert_eq!(heard, [1, 2], "crash {n}");
        if !crashed {
            assert!(n > 20, "{n} places only");
            return;
        }
    }
}

#[test]
fn a_program_whose_word_was_taken_and_whose_bell_was_not_rung_is_rung_by_the_next_engine() {
    let mut kept = Kept::new();
    let program = kept.wired.attach(0);
    let bell = program.bells[0].as_fd();
    doorbell::drain_program(bell);
    let word = program.region.program_sleep_word();
    word.announce();
    // What an engine does last before it rings.
    assert!(word.must_ring());
    kept.go_on();
    let mut watched = [PollFd::new(&bell, PollFlags::IN)];
    let rung = rustix::event::poll(&mut watched, Some(&Timespec::default()));
    assert_eq!(rung, Ok(1), "who sleeps is never told");
}
