//! What the engine that ends is doing: connections of both kinds, bytes in and out of order, timers, ends and resets, datagrams. Its peer
//! is another engine, which nothing ends. Everything that is waited for has to come, whatever the engine was doing when it ended.

use super::cable::{Cable, Losses, ends};
use super::kept::{Keeper, limits};
use crate::harness::{ADDRESSES, Program, Socket, Wired, core_on};
use core::net::SocketAddr;
use hostif::{Flags, Op, OptionChanges};
use rustix::io::Errno;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tcp::{Duration, Instant};

/// Bytes that fill some segments of an ordinary link.
const SOME: usize = 4_000;
/// Whatever is waited for comes within that.
const PATIENCE: Duration = Duration::from_secs(100);

/// Two engines, a program at each, and what is between them.
pub struct Scene {
    pub wired: Wired,
    programs: [Program; 2],
    losses: Arc<Losses>,
    /// Bytes that were made so far: no two in a row of a connection are the same as others there.
    made: u8,
    /// The engine before ended.
    pub has_ended: Rc<Cell<bool>>,
}

/// Both ends of a connection.
type Pair = [Socket; 2];

impl Scene {
    /// The engines, and what the first goes on from.
    pub fn new() -> (Self, Keeper) {
        let now = Instant::from_us(1_000_000);
        let losses = Arc::<Losses>::default();
        let [end, far_end] = ends();
        let keeper = Keeper::new(end);
        let far = Cable::new(far_end, 2, Arc::clone(&losses));
        let cores = [
            keeper.core(false, now),
            core_on(far, ADDRESSES[1], limits(), now),
        ];
        let mut wired = Wired::of(cores, now);
        wired.run_until_idle();
        let programs = [wired.attach(0), wired.attach(1)];
        let scene = Self {
            wired,
            programs,
            losses,
            made: 0,
            has_ended: Rc::default(),
        };
        (scene, keeper)
    }

    /// Everything in turn.
    pub fn play(mut self) {
        let listener = self.listen(0);
        let accepted = self.accepted(&listener);
        self.carry(&accepted, 1, SOME);
        self.carry(&accepted, 0, SOME);
        self.losses.leaving.store(1, Ordering::Relaxed);
        self.carry(&accepted, 1, SOME);
        self.losses.coming.store(2, Ordering::Relaxed);
        self.carry(&accepted, 0, SOME);
        self.datagrams();
        self.peer_closes(&accepted);

        let far_listener = self.listen(1);
        let connected = self.connected(&far_listener);
        self.carry(&connected, 0, 10);
        self.carry(&connected, 1, 10);
        self.program_closes(&connected);
        let connected = self.connected(&far_listener);
        self.carry(&connected, 1, 10);
        self.peer_resets(&connected);
        self.close(0, &listener.0);
        self.close(1, &far_listener.0);
        self.nothing_is_left();
    }

    fn listen(&mut self, side: usize) -> (Socket, SocketAddr) {
        self.programs[side].listen(&mut self.wired, 4).unwrap()
    }

    /// A connection that the program takes.
    fn accepted(&mut self, listener: &(Socket, SocketAddr)) -> Pair {
        let far = self.connect(1, listener);
        [self.accept(0, listener), far]
    }

    /// One that it makes.
    fn connected(&mut self, listener: &(Socket, SocketAddr)) -> Pair {
        [self.connect(0, listener), self.accept(1, listener)]
    }

    fn connect(&mut self, side: usize, listener: &(Socket, SocketAddr)) -> Socket {
        let socket = self.programs[side].connect(&mut self.wired, listener.1);
        let socket = socket.unwrap();
        self.until("a connection stands", |_| {
            socket.flags().contains(Flags::CONNECTED)
        });
        socket
    }

    fn accept(&mut self, side: usize, listener: &(Socket, SocketAddr)) -> Socket {
        let mut socket = Err(Errno::AGAIN);
        // The last ACK of the handshake may be lost with the engine.
        self.until("a connection to accept", |scene| {
            socket = scene.programs[side].accept(&mut scene.wired, &listener.0);
            matches!(socket, Err(errno) if errno != Errno::AGAIN) || socket.is_ok()
        });
        socket.unwrap()
    }

    /// Lets time pass until something has come.
    fn until(&mut self, what: &str, mut has_come: impl FnMut(&mut Self) -> bool) {
        let end = self.wired.now + PATIENCE;
        self.wired.run_until_idle();
        while !has_come(self) {
            assert!(self.wired.now < end, "this never comes: {what}");
            self.wired.advance(Duration::from_ms(50));
        }
    }

    /// Bytes from one side to the other: those that were sent, each once.
    fn carry(&mut self, pair: &Pair, from: usize, len: usize) {
        let bytes: Vec<u8> = (0..len)
            .map(|_| {
                self.made = self.made.wrapping_mul(5).wrapping_add(1);
                self.made
            })
            .collect();
        let (mut sent, mut received) = (0, Vec::new());
        let mut buffer = [0; SOME];
        self.until("bytes", |scene| {
            sent += scene.programs[from].send(&pair[from], &bytes[sent..]);
            let len = scene.programs[1 - from].receive(&pair[1 - from], &mut buffer);
            received.extend_from_slice(&buffer[..len]);
            assert_eq!(
                received,
                bytes[..received.len()],
                "other bytes than were sent"
            );
            check(pair);
            received.len() == bytes.len()
        });
        self.until("an acknowledgement", |_| {
            let header = pair[from].header();
            header.acknowledged() == header.written()
        });
        check(pair);
    }

    /// Datagrams both ways. One may be lost, or come twice, where an engine ends.
    fn datagrams(&mut self) {
        let mut sockets = Vec::new();
        for program in &mut self.programs {
            sockets.push(program.datagram_socket(&mut self.wired).unwrap());
        }
        for (socket, address) in &sockets {
            assert!(
                socket.flags().contains(Flags::DATAGRAM),
                "nobody was told of the socket"
            );
            let named = socket.header().addresses().0.map(|local| local.port());
            assert_eq!(named, Some(address.port()));
        }
        for from in [1, 0] {
            let payload = [7 + u8::from(from == 0); 100];
            let destination = sockets[1 - from].1;
            let mut waited = 0;
            self.until("a datagram", |scene| {
                if waited % 8 == 0 {
                    scene.programs[from].send_datagram(
                        &sockets[from].0,
                        Some(destination),
                        &payload,
                    );
                }
                waited += 1;
                let received = scene.programs[1 - from].receive_datagram(&sockets[1 - from].0);
                received.is_some_and(|(_, bytes)| {
                    assert_eq!(bytes, payload);
                    true
                })
            });
        }
        for (side, (socket, _)) in sockets.iter().enumerate() {
            self.close(side, socket);
        }
    }

    /// The peer closes, the program reads that, and closes too.
    fn peer_closes(&mut self, pair: &Pair) {
        self.close(1, &pair[1]);
        self.until("a FIN", |_| pair[0].flags().contains(Flags::FIN));
        assert!(
            !pair[0].flags().contains(Flags::ERROR),
            "the connection failed"
        );
        self.close(0, &pair[0]);
    }

    /// The program closes first, right after it has written: the engine waits in TIME-WAIT.
    fn program_closes(&mut self, pair: &Pair) {
        let words = b"last words";
        assert_eq!(self.programs[0].send(&pair[0], words), words.len());
        self.programs[0].close(&pair[0]);
        let mut received = Vec::new();
        self.until("the last bytes", |scene| {
            let mut buffer = [0; 32];
            let len = scene.programs[1].receive(&pair[1], &mut buffer);
            received.extend_from_slice(&buffer[..len]);
            received.len() >= words.len()
        });
        assert_eq!(received, words);
        self.until("a FIN", |_| pair[1].flags().contains(Flags::FIN));
        assert!(
            !pair[1].flags().contains(Flags::ERROR),
            "the connection failed"
        );
        self.close(1, &pair[1]);
    }

    fn peer_resets(&mut self, pair: &Pair) {
        let changes = OptionChanges {
            linger_s: Some(Some(0)),
            ..OptionChanges::default()
        };
        let op = Op::SetOptions {
            written_low: 0,
            changes,
        };
        self.programs[1]
            .try_call(&mut self.wired, pair[1].id, op)
            .unwrap();
        self.close(1, &pair[1]);
        self.until("a reset", |scene| {
            // A reset is sent once. Where the engine ended before it took it, what the program sends brings another.
            if scene.has_ended.get() {
                scene.programs[0].send(&pair[0], b"?");
            }
            pair[0].flags().contains(Flags::ERROR)
        });
        assert_eq!(pair[0].header().error(), 104, "ECONNRESET");
        self.close(0, &pair[0]);
    }

    fn close(&mut self, side: usize, socket: &Socket) {
        self.programs[side].close(socket);
        self.wired.run_until_idle();
    }

    fn nothing_is_left(mut self) {
        self.wired.advance(Duration::from_secs(300));
        drop(self.programs);
        self.wired.run_until_idle();
        assert_eq!(self.wired.holdings(), [[0; 6]; 2], "something is left");
    }
}

/// What each end says of the bytes, beside the other's: nothing was acknowledged that has not arrived, nothing arrived that was not
/// written, and nobody has heard of a failure.
fn check(pair: &Pair) {
    for [from, to] in [[0, 1], [1, 0]].map(|sides| sides.map(|side: usize| pair[side].header())) {
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
    let [near, far] = [0, 1].map(|side| pair[side].header().addresses());
    assert_eq!(near, (far.1, far.0), "the ends name others");
    for end in pair {
        assert!(
            !end.flags().intersects(Flags::ERROR | Flags::HUP),
            "{:?}",
            end.flags()
        );
    }
}
