//! What the engine that ends serves, and what has to hold of it: two engines of which the second is ended by nobody, programs, connections
//! and what they carry. Everything that is waited for has to come, whatever the engine was doing when it ended. What happens in which
//! order is in `stories/`.

use super::cable::{Cable, Losses, ends};
use super::kept::{Keeper, limits};
use crate::harness::{ADDRESSES, OTHER, Program, Socket, Wired, core_on};
use core::net::SocketAddr;
use hostif::Flags;
use rustix::io::Errno;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use tcp::{Duration, Instant};

/// Bytes that fill some segments of an ordinary link.
pub const SOME: usize = 4_000;
/// Whatever is waited for comes within that.
const PATIENCE: Duration = Duration::from_secs(100);

/// Two engines, programs at them, and what is between them.
pub struct Scene {
    pub wired: Wired,
    /// The first is at the first engine, the second at the other one; a story may add others.
    pub programs: Vec<Program>,
    pub losses: Arc<Losses>,
    /// Bytes that were made so far: no two in a row of a connection are the same as others there.
    made: u8,
    /// The engine before ended.
    pub has_ended: Rc<Cell<bool>>,
}

/// One end of a connection: a program's socket.
#[derive(Clone)]
pub struct End {
    /// Which of the programs.
    pub program: usize,
    pub socket: Socket,
}

/// Both ends of a connection.
pub type Pair = [End; 2];

/// A listening socket, and where it listens.
pub type Listener = (End, SocketAddr);

impl Scene {
    /// The engines, the first of which has so many cores, and what it goes on from.
    pub fn new(cores: usize) -> (Self, Keeper) {
        let now = Instant::from_us(1_000_000);
        let losses = Arc::<Losses>::default();
        let (queues, far_ends) = (0..cores).map(|_| ends().into()).unzip();
        let keeper = Keeper::new(queues);
        let far = Cable::new(far_ends, 2, Arc::clone(&losses));
        let mut cores: Vec<_> = keeper.cores(false, now).collect();
        cores.insert(OTHER, core_on(far, ADDRESSES[1], limits(), now));
        let mut wired = Wired::of(cores, now);
        wired.run_until_idle();
        let programs = vec![wired.attach(0), wired.attach(1)];
        let scene = Self {
            wired,
            programs,
            losses,
            made: 0,
            has_ended: Rc::default(),
        };
        (scene, keeper)
    }

    pub fn listen(&mut self, program: usize) -> Listener {
        let (socket, address) = self.programs[program].listen(&mut self.wired, 4).unwrap();
        (End { program, socket }, address)
    }

    pub fn connect(&mut self, program: usize, listener: &Listener) -> End {
        let socket = self.programs[program].connect(&mut self.wired, listener.1);
        let socket = socket.unwrap();
        self.until("a connection stands", |_| {
            socket.flags().contains(Flags::CONNECTED)
        });
        End { program, socket }
    }

    pub fn accept(&mut self, listener: &Listener) -> End {
        let program = listener.0.program;
        let mut socket = Err(Errno::AGAIN);
        // The last ACK of the handshake may be lost with the engine.
        self.until("a connection to accept", |scene| {
            socket = scene.programs[program].accept(&mut scene.wired, &listener.0.socket);
            matches!(socket, Err(errno) if errno != Errno::AGAIN) || socket.is_ok()
        });
        let socket = socket.unwrap();
        End { program, socket }
    }

    /// A connection that a program makes to a listener; its end, and the one that was accepted.
    pub fn connected(&mut self, program: usize, listener: &Listener) -> Pair {
        [self.connect(program, listener), self.accept(listener)]
    }

    /// Lets time pass until something has come.
    pub fn until(&mut self, what: &str, mut has_come: impl FnMut(&mut Self) -> bool) {
        let end = self.wired.now + PATIENCE;
        self.wired.run_until_idle();
        while !has_come(self) {
            assert!(self.wired.now < end, "this never comes: {what}");
            self.wired.advance(Duration::from_ms(50));
        }
    }

    /// Bytes that nobody has sent before.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let next = |_| {
            self.made = self.made.wrapping_mul(5).wrapping_add(1);
            self.made
        };
        (0..len).map(next).collect()
    }

    /// Bytes from one end to the other: those that were sent, each once.
    pub fn carry(&mut self, from: &End, to: &End, len: usize) {
        let bytes = self.bytes(len);
        let mut sent = 0;
        self.receive(from, to, &bytes, |scene| {
            sent += scene.programs[from.program].send(&from.socket, &bytes[sent..]);
        });
    }

    /// These bytes arrive, and no others, while `send` is called now and then.
    pub fn receive(&mut self, from: &End, to: &End, bytes: &[u8], mut send: impl FnMut(&mut Self)) {
        let mut received = Vec::new();
        let mut buffer = [0; SOME];
        self.until("bytes", |scene| {
            send(scene);
            let len = scene.programs[to.program].receive(&to.socket, &mut buffer);
            received.extend_from_slice(&buffer[..len]);
            assert!(
                received == bytes[..received.len()],
                "other bytes than were sent"
            );
            check(from, to);
            received.len() == bytes.len()
        });
        self.until("an acknowledgement", |_| {
            let header = from.socket.header();
            header.acknowledged() == header.written()
        });
        check(from, to);
    }

    /// The last bytes that come to an end, whose other end is closed.
    pub fn hears(&mut self, end: &End, bytes: &[u8]) {
        let mut received = Vec::new();
        let mut buffer = [0; SOME];
        self.until("the last bytes", |scene| {
            let len = scene.programs[end.program].receive(&end.socket, &mut buffer);
            received.extend_from_slice(&buffer[..len]);
            received.len() >= bytes.len()
        });
        assert!(received == bytes, "other bytes than were sent");
    }

    pub fn close(&mut self, end: &End) {
        self.programs[end.program].close(&end.socket);
        self.wired.run_until_idle();
    }

    /// An end hears that there is nothing more to come, and nothing else.
    pub fn hears_the_end(&mut self, end: &End) {
        self.until("a FIN", |_| end.socket.flags().contains(Flags::FIN));
        assert!(
            !end.socket.flags().contains(Flags::ERROR),
            "the connection failed"
        );
    }

    /// An end hears that its connection was reset. A reset is sent once: where the engine ended before it had left, or before it was
    /// taken, what the program sends brings another.
    pub fn hears_a_reset(&mut self, end: &End) {
        self.until("a reset", |scene| {
            if scene.has_ended.get() {
                scene.programs[end.program].send(&end.socket, b"?");
            }
            end.socket.flags().contains(Flags::ERROR)
        });
        assert_eq!(end.socket.header().error(), 104, "ECONNRESET");
    }

    /// One end is closed, the other one hears that, and closes too.
    pub fn end(&mut self, [first, second]: [&End; 2]) {
        self.close(first);
        self.hears_the_end(second);
        self.close(second);
    }

    /// All programs end.
    pub fn nothing_is_left(mut self) {
        self.wired.advance(Duration::from_secs(300));
        drop(self.programs);
        self.wired.run_until_idle();
        let holdings = self.wired.holdings();
        assert!(
            holdings.iter().all(|core| *core == [0; 6]),
            "something is left: {holdings:?}"
        );
        for core in &self.wired.cores {
            let channels = &core.layer.byte_channels;
            assert_eq!(channels.region_count(), 0, "memory between programs");
        }
    }
}

/// What each end says of the bytes, beside the other's: nothing was acknowledged that has not arrived, nothing arrived that was not
/// written, and nobody has heard of a failure.
pub fn check(one: &End, other: &End) {
    let headers = [one, other].map(|end| end.socket.header());
    for [from, to] in [[0, 1], [1, 0]].map(|sides| sides.map(|side: usize| &headers[side])) {
        assert!(
            from.acknowledged() <= to.received_end(),
            "what was acknowledged is not there"
        );
        assert!(
            to.received_end() <= from.written(),
            "more arrived than was written"
        );
        assert!(to.consumed() <= to.received_end());
    }
    let [near, far] = headers.map(|header| header.addresses());
    assert_eq!(near, (far.1, far.0), "the ends name others");
    for end in [one, other] {
        assert!(
            !end.socket.flags().intersects(Flags::ERROR | Flags::HUP),
            "{:?}: {}",
            end.socket.flags(),
            end.socket.header().error()
        );
    }
}
