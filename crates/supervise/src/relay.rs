//! One connection: bytes between the supervisor's end of a pair and the engine's windows, and what the ends of
//! either direction mean on the other side.
//!
//! | on the pair | on the connection |
//! |---|---|
//! | the program's end is shut for writing | FIN behind what was written |
//! | it is closed | the same, and nobody reads any more |
//! | it is closed with bytes unread (unix(7): ECONNRESET) | RST, as tcp(7) does |
//! | shut for writing by us | the peer's FIN was reached |
//! | shut for reading by us: EPIPE | nothing can be sent any more, and what has come is still to be read |
//! | closed by us with a byte unread: ECONNRESET | RST, a time-out, an engine that is gone |
//! | an out-of-band byte (`queue_oob` of Linux) | the urgent byte, in both directions |

mod down;
mod up;

use std::sync::Arc;

use client::{Socket, State, TcpSocket};
use rustix::event::epoll::EventFlags;
use rustix::fd::{AsFd, OwnedFd, RawFd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};

use crate::bell::NewsBell;
use crate::caller::Caller;
use crate::filter::FIONREAD;
use crate::pair;
use crate::stopped_call::{Blocked, Waiting};
use crate::sys;

/// Pieces that are moved in one poll each way, so that every connection is served.
const PIECES: usize = 4;
/// Bytes that go into the send window at once.
pub const PIECE_BYTES: usize = 64 * 1024;
/// Pieces that are moved for the sake of one call: more than a pair holds, so that a program that writes on and on, or a
/// peer that does, holds up nobody else.
const ROUNDS_MAX: usize = 64;

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The connect is under way; so many bytes hold the program's end unwritable.
    Connecting {
        /// See `Pair::stuff`.
        stuffed: usize,
    },
    /// It stands.
    Open,
    /// It is over; the program has been told.
    Over,
}

/// What a poll led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing more to do until there is news.
    Idle,
    /// There is more to move.
    More,
    /// The connect was decided.
    Decided,
    /// Both sides have let go.
    Gone,
}

/// See the file's head.
pub struct Relay {
    /// The connection.
    pub socket: Arc<TcpSocket>,
    /// The kernel's socket that holds port and options.
    pub backing: OwnedFd,
    /// Our end; `None` once the program was told of a reset.
    pub ours: Option<OwnedFd>,
    /// The program's end, until it has it.
    pub programs: Option<OwnedFd>,
    /// The number that names the program's end.
    pub cookie: u64,
    /// How far it is.
    pub phase: Phase,
    /// What SO_ERROR tells.
    pub error: Option<Errno>,
    /// Calls that wait for the connect.
    pub waiting: Vec<Waiting>,
    /// connect has reported success: the next one is EISCONN.
    pub reported: bool,
    /// The answer to a connect that a signal had taken back.
    pub unheard: Option<Result<i64, Errno>>,
    /// Where the program's end was put.
    pub place: (Caller, RawFd),
    /// The program's end was shut down for reading, for writing, by the program.
    shut: (bool, bool),
    /// The next hang-up means that it was for both, and not a close.
    shut_both: bool,
    /// Rung where it has to be polled again.
    pub bell: Arc<NewsBell>,
    /// Calls that wait for free space, or for more bytes to peek at (`stream.rs`).
    pub blocked: Vec<Blocked>,
    /// So many of the bytes that the program writes next were sent with MSG_MORE.
    with_more: usize,
    /// An urgent byte of the program's may come out of the pair.
    pub urgent_up: bool,
    /// Bytes that went into the pair since the latest urgent byte did.
    pub since_urgent: Option<usize>,
    /// That byte, or its mark, may be in the pair still.
    is_marked: bool,
    /// TCP_SAVED_SYN was told, which is once.
    pub syn_told: bool,
    /// IPV6_V6ONLY before connect has bound the backing socket, perhaps to an address, which changes it.
    pub v6_only: Option<[u8; 4]>,
    /// Bytes of the program's that have gone on and are in the pair still (`move_up`), and how many may be.
    seen: usize,
    seen_max: usize,
    /// What the program writes is short.
    is_brief: bool,
    /// The connection's error, found on the way.
    pub failure: Option<Errno>,
    /// The program sends no more.
    pub fin_sent: bool,
    fin_told: bool,
    /// The program's end takes nothing more.
    refuses: bool,
    /// The program has closed its end, everywhere.
    hung_up: bool,
    /// It did so with bytes unread.
    abandoned: bool,
}

impl Relay {
    /// Of a pair and a connection.
    pub fn new(
        socket: Arc<TcpSocket>,
        backing: OwnedFd,
        pair: pair::Pair,
        phase: Phase,
        place: (Caller, RawFd),
        bell: Arc<NewsBell>,
    ) -> Relay {
        // Of which bytes the program sees apart, its end of the pair decides.
        socket.set_urgent_in_line(true);
        pair.name_after(backing.as_fd());
        let seen_max = pair::seen_max(pair.ours.as_fd(), pair.programs.as_fd());
        Relay {
            socket,
            backing,
            ours: Some(pair.ours),
            programs: Some(pair.programs),
            cookie: pair.cookie,
            phase,
            error: None,
            waiting: Vec::new(),
            reported: phase == Phase::Open,
            unheard: None,
            place,
            shut: (false, false),
            shut_both: false,
            bell,
            blocked: Vec::new(),
            with_more: 0,
            urgent_up: false,
            since_urgent: None,
            is_marked: false,
            syn_told: false,
            v6_only: None,
            seen: 0,
            seen_max,
            is_brief: true,
            failure: None,
            fin_sent: false,
            fin_told: false,
            refuses: false,
            hung_up: false,
            abandoned: false,
        }
    }

    /// Something happened on our end.
    pub fn on_events(&mut self, events: EventFlags) {
        if events.contains(EventFlags::ERR) {
            self.abandoned = true;
        }
        if events.contains(EventFlags::HUP) && !std::mem::take(&mut self.shut_both) {
            self.hung_up = self.hung_up || !self.is_only_shut();
        }
    }

    /// The program has closed its end, of which no event has told yet.
    fn is_closed(&self) -> bool {
        let ours = self.ours.as_ref();
        let is_hung_up = ours.is_some_and(|ours| pair::is_hung_up(ours.as_fd()));
        is_hung_up && !self.shut_both && !self.is_only_shut()
    }

    /// Our end is also hung up once either direction was shut, by whichever side.
    fn is_only_shut(&self) -> bool {
        let (caller, fd) = self.place;
        let is_shut = (self.shut.1 || self.refuses) && (self.shut.0 || self.fin_told);
        is_shut && caller.same_socket(fd, self.cookie).is_some()
    }

    /// The program shuts its end down.
    pub fn note_shutdown(&mut self, how: i32) {
        let (read, write) = self.shut;
        self.shut.0 |= how == libc::SHUT_RD || how == libc::SHUT_RDWR;
        self.shut.1 |= how == libc::SHUT_WR || how == libc::SHUT_RDWR;
        self.shut_both |= self.shut == (true, true) && !(read && write);
    }

    /// Moves what can be moved.
    pub fn poll(&mut self, buffer: &mut [u8]) -> Step {
        if self.hung_up && self.phase == Phase::Over {
            return Step::Gone;
        }
        if let Phase::Connecting { stuffed } = self.phase {
            return self.poll_connecting(stuffed);
        }
        if self.abandoned {
            self.move_last_up();
            self.socket.abort();
            return Step::Gone;
        }
        let (mut more_up, mut more_down) = self.move_both(buffer);
        if !more_up && !more_down && self.socket.await_other_program() {
            (more_up, more_down) = self.move_both(buffer);
        }
        if self.hung_up && self.fin_sent {
            // Everything that the program wrote is in the window.
            self.socket.close();
            return Step::Gone;
        }
        if self.is_over() && !more_down {
            return self.poll_closed(buffer);
        }
        if more_up || more_down {
            Step::More
        } else {
            Step::Idle
        }
    }

    /// From the program and to it: whether there may be more.
    fn move_both(&mut self, buffer: &mut [u8]) -> (bool, bool) {
        let more_up = !self.is_over() && self.move_up();
        let more_down = !self.hung_up && self.move_down(buffer);
        (more_up, more_down)
    }

    /// Whether nothing will be sent any more, nor come; what has come may still wait.
    pub fn is_over(&self) -> bool {
        self.failure.is_some() || self.socket.state() == State::Closed
    }

    fn poll_connecting(&mut self, stuffed: usize) -> Step {
        if self.hung_up {
            self.socket.close();
            return Step::Gone;
        }
        match self.socket.state() {
            State::Idle | State::Connecting => Step::Idle,
            State::Closed => {
                self.end(self.socket.take_error().unwrap_or(Errno::CONNABORTED));
                Step::Decided
            }
            State::Connected | State::Listening => {
                self.phase = Phase::Open;
                if let Some(ours) = &self.ours
                    && pair::unstuff(ours.as_fd(), stuffed).is_err()
                {
                    self.hung_up = true;
                }
                self.bell.ring();
                Step::Decided
            }
        }
    }

    /// The connection is over, and what had arrived is delivered or waits for the program to read.
    fn poll_closed(&mut self, buffer: &mut [u8]) -> Step {
        if self.hung_up {
            self.socket.close();
            return Step::Gone;
        }
        if self.socket.readable_bytes() > 0 {
            // What is written meanwhile will not be sent. It stays unread, so that the end is a reset all the same.
            if self.written_bytes() != 0 {
                self.refuse(buffer);
            }
            return Step::Idle;
        }
        match self.failure.take().or_else(|| self.socket.take_error()) {
            // A reset behind the end of the stream: what is read is the end (`tcp_reset`).
            Some(Errno::PIPE) if self.socket.fin_received() => {
                self.tell_fin();
                self.refuse(buffer);
                if let Some(ours) = &self.ours {
                    // Whom the program has signalled of events hears of this one by both directions together.
                    let _ = shutdown(ours, Shutdown::Both);
                }
                self.phase = Phase::Over;
                self.error = Some(Errno::PIPE);
            }
            Some(error) => self.end(error),
            // A call has been told the error, or there is none to tell.
            None => {
                self.tell_fin();
                self.refuse(buffer);
                self.phase = Phase::Over;
            }
        }
        Step::Idle
    }

    /// Nothing that the program writes will be sent: a call that waits for space in the pair, or writes now, gets EPIPE.
    fn refuse(&mut self, buffer: &mut [u8]) {
        self.take_seen();
        if let Some(ours) = &self.ours
            && !std::mem::replace(&mut self.refuses, true)
        {
            self.shut_both |= self.fin_told;
            // It fails only where the program's end is gone.
            let _ = shutdown(ours, Shutdown::Read);
            // Who polls for room finds it. A byte stays, so that our end, closed, is still a reset.
            while let Ok(unread @ 2..) = sys::ask(ours.as_fd(), FIONREAD) {
                let len = usize::try_from(unread - 1).unwrap_or(1).min(buffer.len());
                if !recv(ours, &mut buffer[..len], RecvFlags::DONTWAIT)
                    .is_ok_and(|(_, taken)| taken > 0)
                {
                    break;
                }
            }
            // It takes the room of the whole write that it belongs to: in a small buffer all.
            if let Some(programs) = self.place.0.same_socket(self.place.1, self.cookie) {
                let _ = pair::raise_send_buffer(programs.as_fd());
            }
        }
    }

    /// Tells the program that the connection was reset, and why to who asks.
    fn end(&mut self, error: Errno) {
        self.phase = Phase::Over;
        self.error = Some(error);
        if self.programs.is_some() {
            // Nobody has the other end yet.
            return;
        }
        if let Some(ours) = self.ours.take() {
            // A pair that is closed with a byte unread is a reset connection to its other end. Where the
            // program's end has moved out of sight it sees the end of the stream.
            if let Some(programs) = self.place.0.same_socket(self.place.1, self.cookie) {
                let _ = send(&programs, &[0], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
            }
            drop(ours);
        }
    }
}
