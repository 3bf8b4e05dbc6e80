//! Calls on a served connection that its pair would carry out otherwise than TCP (tcp(7), recv(2)): what is sent with
//! MSG_OOB, MSG_MORE or an address, bytes that are peeked at until there are enough, or thrown away (`receive`), questions about
//! bytes that wait.
//!
//! What is sent goes into the send window here and now, behind all that the program wrote before. Where the window is full
//! and the program does not wait, it goes into the pair like everything else: an urgent byte is one there too.

mod receive;

use std::io::IoSlice;
use std::time::Instant;

use client::WriteMode;
use client::addresses::netdevice;
use client::datagram_messages::parse_for_stream;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::sockopt;
use switch::backing;

use crate::datagram::message::{self, MessageLayout};
use crate::filter::{FIONREAD, LOOKING, SENDING, SIOCATMARK, SIOCOUTQ};
use crate::options;
use crate::pair::is_nonblocking;
use crate::relay::{PIECE_BYTES, Phase, Relay};
use crate::stopped_call::{BLOCKED_MAX, Blocked, Call, Outcome, low_half};
use crate::supervisor::{Served, Supervisor};
use crate::sys;

/// How far a call is.
enum Attempt {
    /// It returns this.
    Done(i64),
    /// The pair does it as TCP would.
    Kernel,
    /// There is no free space, or not enough to peek at.
    NotYet,
}

/// Whether a call means something to TCP that it does not to a pair.
fn is_rare(call: &Call, number: i64) -> bool {
    let flags = message::flags(call, number);
    if message::sends(number) {
        flags & SENDING != 0 || says_otherwise(call, number)
    } else {
        flags & LOOKING == LOOKING && flags & libc::MSG_OOB == 0
    }
}

/// Whether a call sends to an address, which TCP does not look at and a pair refuses.
fn names(call: &Call, number: i64) -> bool {
    let is_named = match number {
        libc::SYS_sendto => call.arguments[4] != 0,
        _ => sends_with(call, number, |place| place.name),
    };
    is_named && message::flags(call, number) & libc::MSG_FASTOPEN == 0
}

/// Whether control messages go along, which mean other things to a pair.
fn has_control(call: &Call, number: i64) -> bool {
    sends_with(call, number, |place| place.control)
}

/// Whether it is a sendmsg(2) or sendmmsg(2) of which a header names something, by its place and length.
fn sends_with(call: &Call, number: i64, part: impl Fn(MessageLayout) -> (u64, usize)) -> bool {
    let has_headers = [libc::SYS_sendmsg, libc::SYS_sendmmsg].contains(&number);
    let is_there = |index| {
        MessageLayout::of(call, number, index).is_ok_and(|place| {
            let (at, len) = part(place);
            at != 0 && len != 0
        })
    };
    has_headers && (0..message::count(call, number)).any(is_there)
}

/// Whether a pair would say of what goes along what TCP does not.
fn says_otherwise(call: &Call, number: i64) -> bool {
    names(call, number) || has_control(call, number)
}

impl Supervisor {
    /// A call that sends to a connection or a listener, or receives of one, and was stopped.
    pub fn stream_message(
        &mut self,
        call: &Call,
        number: i64,
        (programs, key): (OwnedFd, u64),
    ) -> Result<Outcome, Errno> {
        let (flags, sends) = (message::flags(call, number), message::sends(number));
        if let Some(Served::Relay(relay)) = self.served.get_mut(&key)
            && relay.hears_end(programs.as_fd(), (flags, sends))
            && let Some(error) = relay.take_end(programs.as_fd())
        {
            return Err(error);
        }
        let relay = match self.served.get_mut(&key) {
            _ if !sends && flags & libc::MSG_ERRQUEUE != 0 => return Err(Errno::AGAIN),
            Some(Served::Relay(relay))
                if is_rare(call, number) || relay.receives_apart(call, number) =>
            {
                relay
            }
            // TCP does not look at the address; a pair does.
            Some(Served::Queue(_)) if names(call, number) => return Err(Errno::PIPE),
            Some(Served::Queue(_)) if !sends => return Err(Errno::NOTCONN),
            _ => return Ok(Outcome::Continue),
        };
        // However it goes on: it is in the pair, or tried again.
        relay.urgent_up |= sends && flags & libc::MSG_OOB != 0;
        let has_several = message::has_several(number);
        if has_several && !sends {
            return Ok(Outcome::Continue);
        }
        // The program writes the bytes itself: a signal that takes this answer away makes nothing go twice.
        if sends
            && flags & (SENDING | libc::MSG_OOB) == libc::MSG_MORE
            && !has_several
            && !says_otherwise(call, number)
        {
            relay.expect_more(MessageLayout::of(call, number, 0)?.len());
            relay.bell.ring();
            return Ok(Outcome::Continue);
        }
        let mut blocked = Blocked {
            call: *call,
            number,
            done: 0,
            partial: 0,
            deadline: None,
        };
        let attempt = relay.attempt(&mut blocked, programs.as_fd());
        relay.bell.ring();
        match attempt? {
            Attempt::Done(value) => return Ok(Outcome::Return(value)),
            Attempt::Kernel => return Ok(Outcome::Continue),
            Attempt::NotYet => {}
        }
        let waits = flags & libc::MSG_DONTWAIT == 0 && !is_nonblocking(programs.as_fd());
        if !waits && let Ok(done) = blocked.given_up() {
            return Ok(Outcome::Return(done));
        }
        if !waits || relay.blocked.len() >= BLOCKED_MAX {
            let is_device_detached =
                says_otherwise(call, number) || relay.receives_apart(call, number);
            return if is_device_detached {
                Err(Errno::AGAIN)
            } else {
                Ok(Outcome::Continue)
            };
        }
        let name = if sends {
            libc::SO_SNDTIMEO
        } else {
            libc::SO_RCVTIMEO
        };
        let timeout = options::timeout(relay.backing.as_fd(), name);
        blocked.deadline = timeout.map(|timeout| Instant::now() + timeout);
        relay.blocked.push(blocked);
        self.waited_for.insert(key);
        Ok(Outcome::Later)
    }

    /// Tries the calls that wait on a connection once more.
    pub fn serve_blocked_stream(&mut self, key: u64) {
        let Some(Served::Relay(relay)) = self.served.get_mut(&key) else {
            return;
        };
        let mut answers = Vec::new();
        for mut blocked in std::mem::take(&mut relay.blocked) {
            let call = blocked.call;
            if !sys::waits(self.listener.as_fd(), call.id) {
                self.unheard.lapse(&blocked);
                continue;
            }
            let is_late = blocked.deadline.is_some_and(|late| late <= Instant::now());
            let attempt = match call.caller.same_socket(call.fd, key) {
                None => Err(Errno::BADF),
                Some(programs) => match relay.attempt(&mut blocked, programs.as_fd()) {
                    Ok(Attempt::NotYet) if is_late => blocked.late(programs.as_fd()),
                    attempt => attempt,
                },
            };
            match attempt {
                Ok(Attempt::NotYet) => relay.blocked.push(blocked),
                Ok(Attempt::Kernel) => answers.push((blocked, None)),
                Ok(Attempt::Done(value)) => answers.push((blocked, Some(Ok(value)))),
                Err(error) => answers.push((blocked, Some(Err(error)))),
            }
        }
        for (blocked, answer) in answers {
            self.reply_blocked(&blocked, answer);
        }
    }

    /// ioctl(2) with one of the requests that are stopped.
    pub fn ioctl(&mut self, call: &Call) -> Result<Outcome, Errno> {
        let request = u32::from_ne_bytes(low_half(call.arguments[1]));
        if netdevice::is_asked(request.into()) {
            return self.ask_for_addresses(call, request);
        }
        let Some((programs, key)) = self.socket_of(call) else {
            return Ok(Outcome::Continue);
        };
        let relay = match self.served.get_mut(&key) {
            Some(Served::Datagrams(_)) if request == SIOCATMARK => return Err(Errno::NOTTY),
            // The pair has a mark where the connection has, and none that listens.
            _ if request == SIOCATMARK => return Ok(Outcome::Continue),
            Some(Served::Relay(relay)) => relay,
            // A listener has neither bytes to read nor to send (`tcp_ioctl`).
            Some(Served::Queue(_)) => return Err(Errno::INVAL),
            Some(Served::Datagrams(_)) | None => return Ok(Outcome::Continue),
        };
        let bytes = match request {
            FIONREAD if relay.since_urgent.is_none() => return Ok(Outcome::Continue),
            FIONREAD => relay.queued_bytes(programs.as_fd())?,
            SIOCOUTQ => relay.unacknowledged_bytes(),
            _ => relay.unsent_bytes(),
        };
        let place = call.arguments[2];
        call.caller.write(place, &bytes.to_ne_bytes())?;
        Ok(Outcome::Return(0))
    }
}

impl Blocked {
    /// What becomes of the call when its time is over.
    fn late(&self, programs: BorrowedFd<'_>) -> Result<Attempt, Errno> {
        if !message::sends(self.number) && sys::ask(programs, FIONREAD)? > 0 {
            return Ok(Attempt::Kernel);
        }
        self.given_up().map(Attempt::Done)
    }
}

impl Relay {
    fn attempt(
        &mut self,
        blocked: &mut Blocked,
        programs: BorrowedFd<'_>,
    ) -> Result<Attempt, Errno> {
        let (call, number) = (blocked.call, blocked.number);
        if message::sends(number) && message::has_several(number) {
            self.send_several(blocked, programs)
        } else if message::sends(number) {
            let place = MessageLayout::of(&call, number, 0)?;
            self.send_apart((&call, number), &place, &mut blocked.done, programs)
        } else if self.receives_apart(&blocked.call, blocked.number) {
            self.receive_apart(blocked, programs)
        } else {
            self.look(blocked, programs)
        }
    }

    /// sendmmsg(2): as many messages as can be sent, one after the other. An error is told where none was (`__sys_sendmmsg`).
    fn send_several(
        &mut self,
        blocked: &mut Blocked,
        programs: BorrowedFd<'_>,
    ) -> Result<Attempt, Errno> {
        let (call, number) = (blocked.call, blocked.number);
        while blocked.done < message::count(&call, number) {
            let place = MessageLayout::of(&call, number, blocked.done);
            let attempt = place.and_then(|place| {
                let sent = &mut blocked.partial;
                let attempt = self.send_apart((&call, number), &place, sent, programs);
                if *sent > 0 || matches!(attempt, Ok(Attempt::Done(_))) {
                    place.write_len(call.caller, *sent)?;
                }
                attempt
            });
            match attempt {
                Ok(Attempt::Done(_)) => {
                    blocked.done += 1;
                    blocked.partial = 0;
                }
                Ok(Attempt::NotYet) => return Ok(Attempt::NotYet),
                ended if blocked.given_up().is_err() => return ended,
                _ => break,
            }
        }
        blocked.given_up().or(Ok(0)).map(Attempt::Done)
    }

    /// Sends a message with flags that a pair would not pass on, or more of it: `sent` bytes are.
    fn send_apart(
        &mut self,
        (call, number): (&Call, i64),
        place: &MessageLayout,
        sent: &mut usize,
        programs: BorrowedFd<'_>,
    ) -> Result<Attempt, Errno> {
        let flags = message::flags(call, number);
        let mode = if flags & libc::MSG_OOB != 0 {
            WriteMode::Urgent
        } else if flags & libc::MSG_MORE != 0 {
            WriteMode::More
        } else {
            WriteMode::Plain
        };
        let is_named = says_otherwise(call, number);
        if is_named {
            place.read_name(call.caller)?;
            // What it asks to be told a pair cannot tell.
            parse_for_stream(&place.read_control(call.caller)?)?;
        }
        let refused = if is_named {
            Err(Errno::PIPE)
        } else {
            Ok(Attempt::Kernel)
        };
        loop {
            // However fast the peer's answer came.
            if *sent > 0 && *sent == place.len() {
                return i64::try_from(*sent)
                    .map(Attempt::Done)
                    .map_err(|_| Errno::INVAL);
            }
            let is_drained = self.drain_up();
            if let Some(error) = self.failure.take().or_else(|| self.take_end(programs)) {
                return Err(error);
            }
            if is_named && matches!(self.phase, Phase::Connecting { .. }) {
                return Ok(Attempt::NotYet);
            }
            if self.phase != Phase::Open || self.fin_sent || self.is_over() {
                // With its errno, and the signal that belongs to it.
                return refused;
            }
            if place.len() == 0 {
                return Ok(Attempt::Done(0));
            }
            if !is_drained {
                return Ok(Attempt::NotYet);
            }
            let piece = place.read_piece(call.caller, *sent, PIECE_BYTES)?;
            let is_last = *sent + piece.len() == place.len();
            let mode = if is_last { mode } else { WriteMode::Plain };
            match self.socket.try_send_as(&[IoSlice::new(&piece)], mode) {
                Ok(0) | Err(Errno::AGAIN) => return Ok(Attempt::NotYet),
                Ok(more) => *sent += more,
                Err(Errno::PIPE) => return refused,
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether a call is told the error of a connection that has ended.
    fn hears_end(&self, programs: BorrowedFd<'_>, (flags, sends): (i32, bool)) -> bool {
        if self.error.is_none() || flags & (libc::MSG_ERRQUEUE | libc::MSG_FASTOPEN) != 0 {
            return false;
        }
        // What has come is read first, and behind the end of the stream there is only the end (`SOCK_DONE`).
        sends
            || flags & libc::MSG_OOB == 0
                && !self.socket.fin_received()
                && sys::ask(programs, FIONREAD) == Ok(0)
    }

    /// The error of a connection that has ended, which the first call is told, of whatever kind it is.
    fn take_end(&mut self, programs: BorrowedFd<'_>) -> Option<Errno> {
        let error = self.error.take_if(|_| self.phase == Phase::Over)?;
        // The pair has an error of its own, with which it told that there is one.
        let _ = backing::option(programs, libc::SOL_SOCKET, libc::SO_ERROR, &mut [0; 4]);
        Some(error)
    }

    /// MSG_PEEK with MSG_WAITALL: until there is as much as was asked for, or no more can come.
    fn look(&mut self, blocked: &Blocked, programs: BorrowedFd<'_>) -> Result<Attempt, Errno> {
        self.drain_down(&mut vec![0; PIECE_BYTES]);
        let wanted = MessageLayout::of(&blocked.call, blocked.number, 0)?.len();
        let there = usize::try_from(sys::ask(programs, FIONREAD)?).unwrap_or(0);
        let events = libc::POLLRDHUP | libc::POLLPRI;
        let is_all = there >= wanted
            || sys::poll_for(programs.as_raw_fd(), events) != 0
            // The pair is full.
            || self.socket.readable_bytes() > 0
            || self.phase != Phase::Open;
        Ok(if is_all {
            Attempt::Kernel
        } else {
            Attempt::NotYet
        })
    }

    /// Bytes that the program has written and the peer has not acknowledged (SIOCOUTQ).
    fn unacknowledged_bytes(&self) -> i32 {
        self.with_written(self.socket.unacknowledged_bytes())
    }

    /// Bytes that have not been sent (SIOCOUTQNSD).
    fn unsent_bytes(&self) -> i32 {
        let figures = self.socket.figures();
        let unsent = figures.map_or(0, |figures| figures.notsent_bytes);
        self.with_written(usize::try_from(unsent).unwrap_or(usize::MAX))
    }

    /// Adds to `bytes` those that are still in the pair.
    fn with_written(&self, bytes: usize) -> i32 {
        let in_pair = match self.phase {
            Phase::Open => self.written_bytes(),
            _ => 0,
        };
        in_pair.saturating_add(i32::try_from(bytes).unwrap_or(i32::MAX))
    }

    /// Of the bytes that wait in the pair: how many the program reads before it comes to the urgent one (`tcp_inq`).
    fn queued_bytes(&self, programs: BorrowedFd<'_>) -> Result<i32, Errno> {
        let there = sys::ask(programs, FIONREAD)?;
        let behind = match self.since_urgent {
            Some(behind) if !sockopt::socket_oobinline(programs)? => behind,
            _ => return Ok(there),
        };
        let before = there.saturating_sub(i32::try_from(behind).unwrap_or(i32::MAX));
        let events = sys::poll_for(programs.as_raw_fd(), libc::POLLPRI);
        let is_there = i32::from(events & libc::POLLPRI != 0);
        if before > 0 || sys::ask(programs, SIOCATMARK)? != 0 {
            Ok((before - is_there).max(0))
        } else {
            Ok(there)
        }
    }
}
