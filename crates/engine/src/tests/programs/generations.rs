//! Names of sockets that are gone name nothing, however rows are used again.

use crate::harness::{Program, Socket, Wired, small_limits};
use core::net::{Ipv4Addr, SocketAddr};
use hostif::{Completion, Consumed, Op, OptionChanges, ShutdownHow, SocketId, Written};
use proptest::prelude::*;
use rustix::io::Errno;
use std::collections::HashSet;

#[derive(Debug, Clone)]
enum Step {
    Open,
    Bind(usize),
    Close(usize),
    Stale(usize, u8),
    Turn,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::Open),
        2 => (0_usize..8).prop_map(Step::Bind),
        3 => (0_usize..8).prop_map(Step::Close),
        4 => (any::<usize>(), any::<u8>()).prop_map(|(which, kind)| Step::Stale(which, kind)),
        1 => Just(Step::Turn),
    ]
}

struct Scene {
    wired: Wired,
    program: Program,
    live: Vec<(Socket, Option<u16>)>,
    gone: Vec<SocketId>,
    tokens: HashSet<u32>,
}

impl Scene {
    fn new() -> Self {
        let mut limits = small_limits();
        (limits.connections, limits.listeners, limits.sessions) = (2, 1, 1);
        limits.datagrams = 0;
        let mut wired = Wired::new(limits);
        let program = wired.attach(0);
        Self {
            wired,
            program,
            live: Vec::new(),
            gone: Vec::new(),
            tokens: HashSet::new(),
        }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Open => match self.program.open(&mut self.wired) {
                Ok(socket) => {
                    assert!(!self.gone.contains(&socket.id), "a name came back");
                    self.live.push((socket, None));
                }
                Err(errno) => assert_eq!((errno, self.live.len()), (Errno::NFILE, 4)),
            },
            Step::Bind(which) => {
                if let Some((socket, port)) = self.live.get_mut(which) {
                    let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
                    let bound =
                        self.program
                            .try_call(&mut self.wired, socket.id, Op::Bind { local: any });
                    match port {
                        None => *port = Some(u16::try_from(bound.unwrap()).unwrap()),
                        Some(_) => assert_eq!(bound, Err(Errno::INVAL)),
                    }
                }
            }
            Step::Close(which) => {
                if which < self.live.len() {
                    let (socket, _) = self.live.swap_remove(which);
                    let op = Op::Close {
                        written: 0,
                        consumed: 0,
                    };
                    assert_eq!(self.program.try_call(&mut self.wired, socket.id, op), Ok(0));
                    self.gone.push(socket.id);
                }
            }
            Step::Stale(which, kind) => {
                if let Some(&socket) = self.gone.get(which % self.gone.len().max(1)) {
                    self.stale(socket, kind);
                }
            }
            Step::Turn => {
                self.wired.run_until_idle();
            }
        }
    }

    fn stale(&mut self, socket: SocketId, kind: u8) {
        let end = u64::from(kind) << (kind % 40);
        let address = SocketAddr::from((Ipv4Addr::new(10, 9, 0, 2), 9));
        let op = match kind % 8 {
            0 => Op::Bind { local: address },
            1 => Op::Listen { backlog: 1 },
            2 => Op::Connect {
                remote: address,
                local: None,
            },
            3 => Op::Accept { handle: 1 },
            4 => Op::Shutdown {
                how: ShutdownHow::Both,
                written: end,
            },
            5 => Op::Close {
                written: end,
                consumed: end,
            },
            6 => Op::SetOptions {
                changes: OptionChanges {
                    no_delay: Some(true),
                    ..OptionChanges::default()
                },
                written_low: 0,
            },
            _ => {
                // Positions are not answered; they must only do nothing.
                let note = Written {
                    socket,
                    start: 0,
                    end,
                    source: None,
                    mode: hostif::WriteMode::Plain,
                    in_place: false,
                    stamps: 0,
                };
                self.program.written.push(&note).unwrap();
                self.program
                    .consumed
                    .push(&Consumed {
                        socket,
                        end,
                        in_place: false,
                    })
                    .unwrap();
                self.wired.run_until_idle();
                return;
            }
        };
        assert_eq!(
            self.program.try_call(&mut self.wired, socket, op),
            Err(Errno::BADF)
        );
    }

    fn check(&mut self) {
        assert!(
            !self.wired.cores[0].programs.get(0).unwrap().is_faulty,
            "old names are no fault"
        );
        assert_eq!(self.wired.cores[0].layer.sockets.count(), self.live.len());
        for (socket, port) in &self.live {
            assert!(socket.header().is_of(socket.id));
            assert!(socket.flags().is_empty(), "a new socket was touched");
            let bound = socket.header().addresses().0.map(|address| address.port());
            assert_eq!(bound, *port);
        }
        self.program.reap();
        for completion in self.program.reaped.drain(..) {
            match completion {
                Completion::Done { token, .. } | Completion::Accepted { token, .. } => {
                    assert!(self.tokens.insert(token), "a token was answered twice");
                }
                Completion::Event { socket } => {
                    assert!(
                        !self.gone.contains(&socket),
                        "news of a socket that is gone"
                    );
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
    #[test]
    fn stale_names_are_refused_and_touch_nothing(
        steps in proptest::collection::vec(step(), 1..150)
    ) {
        let mut scene = Scene::new();
        for step in &steps {
            scene.step(step);
            scene.check();
        }
    }
}

#[test]
fn news_of_a_closed_socket_that_found_no_room_are_forgotten() {
    let mut wired = Wired::new(small_limits());
    let (mut active, mut passive) = (wired.attach(0), wired.attach(1));
    let listener = passive.listen(&mut wired, 8).unwrap();
    let (near, far) = Program::connected(&mut wired, [&mut active, &mut passive], &listener);
    active.reap();
    active.reaped.clear();
    // Nothing is reaped while the answers to these fill the ring.
    for _ in 0..80 {
        active.post(Some(near.id), Op::Listen { backlog: 1 });
        wired.run_until_idle();
    }
    passive.send(&far, b"news");
    wired.run_until_idle();
    assert!(wired.cores[0].programs.has_waiting_news());
    active.close(&near);
    wired.run_until_idle();
    active.reap();
    wired.run_until_idle();
    active.reap();
    let is_event = |completion: &Completion| matches!(completion, Completion::Event { socket } if *socket == near.id);
    assert!(!active.reaped.iter().any(is_event));
    assert_eq!(active.reaped.len(), 80);
    assert!(!wired.cores[0].programs.has_waiting_news());
}
