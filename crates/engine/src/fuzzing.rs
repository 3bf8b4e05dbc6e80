//! A hostile program beside an honest one, as a list of operations, for the fuzzer and property tests.
//!
//! The hostile one writes anything into its region, sends any command, position and control message,
//! dies and comes back. Checked: nothing panics or stays busy for ever, the honest program's connection
//! goes on byte by byte, and once both are gone the engine holds nothing.

use crate::harness::{Program, Socket, Wired, small_limits};
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use hostif::control::{QueryKind, Reply, Request, receive, send};
use hostif::descriptor::FileSource;
use hostif::{Command, Consumed, LaneNews, Op, OptionChanges, ShutdownHow, SocketId, Written};
use rustix::fd::AsFd as _;
use rustix::net::RecvFlags;
use std::cell::RefCell;
use tcp::Duration;

/// Bytes of one operation.
const OPERATION: usize = 8;

thread_local! {
    // Engines are used again from one input to the next, as each ends with nothing held: the memory of
    // their tables stays mapped until the process ends.
    static ENGINES: RefCell<Option<Wired>> = const { RefCell::new(None) };
}

struct Honest {
    programs: [Program; 2],
    sockets: [Socket; 2],
    next: u8,
}

struct Scene {
    wired: Wired,
    honest: Honest,
    hostile: Option<Program>,
    /// Names that the hostile program has seen.
    names: Vec<SocketId>,
    peer: SocketAddr,
}

/// Runs the operations that `bytes` spell.
pub fn hostile_program(bytes: &[u8]) {
    let kept = ENGINES.with(|engines| engines.borrow_mut().take());
    let mut scene = Scene::new(kept.unwrap_or_else(|| Wired::new(small_limits())));
    let (operations, _) = bytes.as_chunks::<OPERATION>();
    for operation in operations {
        scene.step(*operation);
        scene.wired.turn();
        scene.wired.serve();
        scene.hear();
        scene.see_end();
    }
    let wired = scene.end();
    ENGINES.with(|engines| engines.borrow_mut().replace(wired));
}

impl Honest {
    fn new(wired: &mut Wired) -> (Self, SocketAddr) {
        let mut active = wired.attach(0);
        let mut passive = wired.attach(1);
        let listener = passive.listen(wired, 8).expect("a port is free");
        let (near, far) = Program::connected(wired, [&mut active, &mut passive], &listener);
        let honest = Self {
            programs: [active, passive],
            sockets: [near, far],
            next: 0,
        };
        (honest, listener.1)
    }

    /// One byte there and one back.
    fn exchange(&mut self, wired: &mut Wired) {
        for [from, to] in [[0, 1], [1, 0]] {
            self.next = self.next.wrapping_add(1);
            let sent = self.programs[from].send(&self.sockets[from], &[self.next]);
            assert_eq!(sent, 1, "the honest program cannot send");
            wired.run_until_idle();
            let mut byte = [0];
            let received = self.programs[to].receive(&self.sockets[to], &mut byte);
            assert_eq!((received, byte[0]), (1, self.next), "a byte was lost");
        }
        wired.run_until_idle();
        for program in &mut self.programs {
            program.reap();
            program.reaped.clear();
        }
    }
}

impl Scene {
    fn new(mut wired: Wired) -> Self {
        let (honest, peer) = Honest::new(&mut wired);
        let hostile = Some(wired.attach(0));
        Self {
            wired,
            honest,
            hostile,
            names: Vec::new(),
            peer,
        }
    }

    /// The engine may have dropped the hostile program.
    fn see_end(&mut self) {
        let lives = |program: &mut Program| {
            let session = self.wired.cores[0].programs.get(program.slot);
            session.is_some_and(|session| session.number == program.session)
        };
        if !self.hostile.as_mut().is_some_and(lives) {
            self.hostile = None;
        }
    }

    fn step(&mut self, [kind, a, b, c, d, e, f, g]: [u8; OPERATION]) {
        let rest = [a, b, c, d, e, f, g];
        match kind % 16 {
            0 => self.advance(u64::from(u16::from_le_bytes([a, b])) * 997),
            1 => self.honest.exchange(&mut self.wired),
            2 => self.comes_back(),
            3 => self.scribble(rest),
            4 => self.open(),
            5 => self.control(rest),
            6 => self.position(rest),
            7 => self.reap(),
            _ => self.command(kind, rest),
        }
    }

    fn advance(&mut self, time_us: u64) {
        self.wired.advance(Duration::from_us(time_us));
    }

    fn comes_back(&mut self) {
        self.hostile = None;
        self.wired.run_until_idle();
        self.hostile = self.wired.try_attach(0).ok();
    }

    fn open(&mut self) {
        let Some(program) = &self.hostile else { return };
        let request = Request::Open { count: 1 };
        let backing = [program.backing.as_fd()];
        let _ = send(program.control.as_fd(), &request.encode(), &backing);
    }

    /// Takes every answer of the engine on the control channel.
    fn hear(&mut self) {
        let Some(program) = &self.hostile else { return };
        while let Ok(received) = receive(program.control.as_fd(), RecvFlags::DONTWAIT) {
            if received.bytes.is_empty() {
                return;
            }
            let reply = Reply::decode(&received.bytes).expect("the engine speaks well");
            if let Reply::Opened(opened) = reply {
                self.names.extend(opened.iter().map(|one| one.socket));
            }
        }
    }

    fn reap(&mut self) {
        if let Some(program) = &mut self.hostile {
            // The hostile program may have written nonsense into its own completions.
            while let Ok(Some(_)) = program.completions.pop() {}
        }
    }

    /// Bytes anywhere in front of the windows: ring indexes and slots, sleep words, headers.
    fn scribble(&mut self, [low, high, page, len, value, step, kind]: [u8; 7]) {
        let Some(program) = &self.hostile else { return };
        let offset =
            u64::from(u16::from_le_bytes([low, high])) / 8 * 8 % 4096 + u64::from(page % 16) * 4096;
        let bytes: Vec<u8> = (0..=len)
            .map(|n| match kind % 3 {
                0 => value.wrapping_add(n.wrapping_mul(step)),
                1 => u8::from(n % 8 == 0) * value,
                _ => 0xff,
            })
            .collect();
        let _ = rustix::io::pwrite(&program.file, &bytes, offset);
    }

    fn control(&mut self, [kind, a, b, c, d, e, f]: [u8; 7]) {
        let Some(program) = &self.hostile else { return };
        let channel = program.control.as_fd();
        let backing = [program.backing.as_fd()];
        let wrong = [program.file.as_fd()];
        let request = match kind % 13 {
            0 => Request::Hello {
                min_version: u16::from(a),
                max_version: u16::from(b),
                pid: u32::MAX,
            },
            1 => Request::Open { count: 1 },
            2 => Request::Prepare { count: 1 },
            3 => Request::Fork,
            4 if b % 2 == 0 => Request::MapArea {
                channel_region: u32::from(a % 4),
            },
            4 => Request::MapRegion {
                region: u32::from(a % 8),
            },
            5 => Request::Query {
                kind: QueryKind::Sockets,
            },
            6 => Request::Addresses,
            7 => Request::Join {
                core: u16::from(a % 4),
            },
            8 => Request::Adopt,
            11 => Request::OpenDatagram,
            12 => Request::ShareFile,
            9 => Request::Share {
                socket: self.name(b),
            },
            _ => {
                let _ = send(channel, &[a, b, c, d, e, f], &backing);
                return;
            }
        };
        let descriptors = match a % 4 {
            0 => &[][..],
            1 => &wrong[..],
            _ => &backing[..],
        };
        let mut bytes = request.encode();
        if c == 0 {
            let at = usize::from(d) % bytes.len();
            bytes[at] ^= e;
        }
        // A full channel is the program's own affair.
        let _ = send(channel, &bytes, descriptors);
    }

    fn name(&self, by: u8) -> Option<SocketId> {
        let seen = self.names.get(usize::from(by) % self.names.len().max(1));
        match by % 8 {
            // The names of others, and of sockets that never were.
            6 => Some(self.honest.sockets[0].id),
            7 => SocketId::new(u32::from(by), 1),
            _ => seen.copied(),
        }
    }

    fn position(&mut self, [which, kind, a, b, c, spread, _]: [u8; 7]) {
        let Some(socket) = self.name(which) else {
            return;
        };
        let Some(program) = &self.hostile else { return };
        let end = u64::from(u16::from_le_bytes([a, b])) << (c % 48);
        // A full or spoilt ring refuses; that is the program's own affair.
        if kind % 2 == 0 {
            let start = end.saturating_sub(u64::from(spread));
            let source = (kind % 8 == 0).then_some(FileSource {
                handle: u32::from(a % 4),
                offset: u64::from(b) << (c % 40),
            });
            let note = Written {
                socket,
                start,
                end,
                source,
                mode: hostif::WriteMode::Plain,
                in_place: false,
                stamps: 0,
            };
            let _ = program.written.push(&note);
        } else {
            let _ = program.consumed.push(&Consumed {
                socket,
                end,
                in_place: false,
            });
        }
    }

    fn command(&mut self, kind: u8, [which, a, b, c, d, e, f]: [u8; 7]) {
        let Some(program) = &self.hostile else { return };
        let local = IpAddr::V4(Ipv4Addr::new(10, 9, 0, a % 3));
        let bound = SocketAddr::new(
            local,
            if b % 2 == 0 {
                program.port()
            } else {
                u16::from(c)
            },
        );
        let far = u64::from(u16::from_le_bytes([c, d])) << (e % 48);
        let op = match kind % 8 {
            0 => Op::Bind { local: bound },
            1 => Op::Listen {
                backlog: u32::from(a) << (b % 25),
            },
            2 if d % 4 == 1 => Op::ConnectHeard {
                remote: if a % 4 == 0 { bound } else { self.peer },
                local: (b % 4 == 0).then_some(bound),
            },
            2 if d % 2 == 0 => Op::Connect {
                remote: if a % 4 == 0 { bound } else { self.peer },
                local: (b % 4 == 0).then_some(bound),
            },
            2 if d % 8 == 3 => Op::ConnectForCookie {
                remote: if a % 4 == 0 { bound } else { self.peer },
                local: (b % 4 == 0).then_some(bound),
            },
            2 => Op::ConnectFast {
                remote: if a % 4 == 0 { bound } else { self.peer },
                local: (b % 4 == 0).then_some(bound),
            },
            3 => Op::Accept {
                handle: u32::from(a % 4),
            },
            4 => Op::Shutdown {
                how: [ShutdownHow::Read, ShutdownHow::Write, ShutdownHow::Both][usize::from(a % 3)],
                written: far,
            },
            5 => Op::Close {
                written: far,
                consumed: u64::from(f),
            },
            6 => Op::SetOptions {
                written_low: u32::from(f),
                changes: OptionChanges {
                    keep_alive: Some(a % 2 == 0),
                    keep_idle_s: Some(u32::from(b)),
                    keep_interval_s: Some(u32::from(c % 2)),
                    keep_count: Some(u32::from(d)),
                    linger_s: Some((e % 2 == 0).then_some(u32::from(f))),
                    receive_buffer_bytes: Some(u32::from(e)),
                    ..OptionChanges::default()
                },
            },
            _ if b % 2 == 0 => Op::TellLane(
                LaneNews::from_code(a % 3).expect("invariant: there are three kinds of news"),
            ),
            _ => Op::CloseBacking {
                handle: u32::from(a % 4),
            },
        };
        let socket = match op {
            Op::CloseBacking { .. } => None,
            _ => self.name(which),
        };
        let token = u32::from(f);
        if socket.is_some() || matches!(op, Op::CloseBacking { .. }) {
            let _ = program.commands.push(&Command { token, socket, op });
        }
    }

    fn end(mut self) -> Wired {
        self.hostile = None;
        self.wired.run_until_idle();
        self.honest.exchange(&mut self.wired);
        // Connections to the honest listener that the hostile program made go with it.
        drop(self.honest);
        self.wired.advance(Duration::from_secs(3_600));
        assert_eq!(self.wired.holdings(), [[0; 6]; 2], "something is left");
        self.wired
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::default())]
        #[test]
        fn a_hostile_program_spoils_nothing_but_itself(
            operations in proptest::collection::vec(any::<[u8; super::OPERATION]>(), 0..120)
        ) {
            super::hostile_program(operations.as_flattened());
        }
    }
}
