//! From the program to the peer: out of the pair into the send window.

use client::{SendSpace, ShutdownHow, WriteMode};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use super::{PIECE_BYTES, PIECES, Phase, ROUNDS_MAX, Relay};
use crate::filter::{FIONREAD, SIOCATMARK};
use crate::{pair, sys};

impl Relay {
    /// From the program to the peer. True: there may be more.
    ///
    /// What is taken out of a pair makes room, and its writer hears an edge of that, where TCP tells of space only after there was
    /// none. So a few bytes, which take little of the buffer, are only peeked at, and taken when more have come.
    pub(super) fn move_up(&mut self) -> bool {
        if self.fin_sent {
            return false;
        }
        for _ in 0..PIECES {
            let looks = self.is_brief && !self.urgent_up && self.seen < self.seen_max;
            if !looks {
                self.take_seen();
            }
            let Some(ours) = &self.ours else { return false };
            let (most, flags) = match looks {
                true => (self.seen_max - self.seen, libc::MSG_PEEK),
                false => (PIECE_BYTES, 0),
            };
            let room = most;
            let most = match self.with_more {
                0 => room,
                bytes => room.min(bytes),
            };
            let mut space = match self.socket.send_space(most) {
                Ok(space) => space,
                Err(Errno::AGAIN) => return false,
                // Nothing can be sent any more.
                Err(error) => {
                    self.failure = Some(error).filter(|error| *error != Errno::PIPE);
                    self.fin_sent = self.hung_up;
                    return self.failure.is_some();
                }
            };
            if self.with_more > 0 {
                space.set_mode(WriteMode::More);
            }
            let urgent = match self.urgent_up {
                true => take_urgent(ours.as_fd(), &mut space),
                false => None,
            };
            match urgent.unwrap_or_else(|| sys::receive_into(ours.as_fd(), &space, flags)) {
                Ok(0) => {
                    drop(space);
                    self.fin_sent = true;
                    // A close says itself whether a FIN goes: none does where SO_LINGER wants a reset.
                    self.hung_up = self.hung_up || self.is_closed();
                    if !self.hung_up {
                        // It fails only where the connection is over.
                        let _ = self.socket.shutdown(ShutdownHow::Write);
                    }
                    return false;
                }
                // More than may be looked at: no part of it becomes a segment of its own, which the next would wait for (RFC 1122 §4.2.3.4).
                Ok(bytes) if looks && bytes == room => {
                    drop(space);
                    self.is_brief = false;
                }
                Ok(bytes) => {
                    if space.commit(bytes).is_err() {
                        return false;
                    }
                    self.with_more = self.with_more.saturating_sub(bytes);
                    self.seen += if looks { bytes } else { 0 };
                    self.is_brief = bytes < room.min(self.seen_max);
                }
                Err(Errno::CONNRESET) => {
                    drop(space);
                    self.abandoned = true;
                    return true;
                }
                Err(_) => return false,
            }
        }
        true
    }

    /// What the program wrote before it closed goes before the reset, as far as it fits the window: TCP sends within write(2).
    pub(super) fn move_last_up(&mut self) {
        while !self.is_over() && self.written_bytes() > 0 && self.move_up() {}
    }

    /// The program writes so many bytes next, with MSG_MORE: they are held back until others follow (tcp(7)). Where the path is full they
    /// are sent like the rest. To say it twice, of a call that comes again, is to say it once.
    pub fn expect_more(&mut self, bytes: usize) {
        if self.drain_up() {
            self.with_more = bytes;
        }
    }

    /// Moves all that the program has written. False: the window is full, or the connection is not open yet.
    pub fn drain_up(&mut self) -> bool {
        if self.phase != Phase::Open {
            return false;
        }
        for _ in 0..ROUNDS_MAX {
            if self.is_over() || self.abandoned || !self.move_up() {
                break;
            }
        }
        !self.abandoned && self.ours.is_some() && self.written_bytes() == 0
    }

    /// Bytes in the pair that the program has written and that have not gone on.
    pub fn written_bytes(&self) -> i32 {
        let there = self
            .ours
            .as_ref()
            .map(|ours| sys::ask(ours.as_fd(), FIONREAD));
        let seen = i32::try_from(self.seen).unwrap_or(i32::MAX);
        there.and_then(Result::ok).map_or(0, |there| there - seen)
    }

    /// Takes out of the pair what has gone on.
    pub(super) fn take_seen(&mut self) {
        let seen = std::mem::take(&mut self.seen);
        if let Some(ours) = &self.ours
            && seen > 0
        {
            // What was looked at is there.
            let _ = recv(ours, &mut vec![0; seen][..], RecvFlags::DONTWAIT);
        }
    }

    /// Notes that the send buffer of the program's end has another size.
    pub fn note_size(&mut self, programs: BorrowedFd<'_>) {
        if let Some(ours) = &self.ours {
            self.seen_max = pair::seen_max(ours.as_fd(), programs);
        }
        if self.seen >= self.seen_max {
            self.take_seen();
        }
    }
}

/// The program's urgent byte, if that is next in the pair: read in line it would be one like all others, or none.
fn take_urgent(ours: BorrowedFd<'_>, space: &mut SendSpace<'_>) -> Option<Result<usize, Errno>> {
    if sys::ask(ours, SIOCATMARK) != Ok(1) {
        return None;
    }
    match sys::receive_into(ours, space, libc::MSG_OOB) {
        // It was taken, and its mark stands there still.
        Err(Errno::INVAL) => None,
        taken => {
            space.set_mode(WriteMode::Urgent);
            Some(taken)
        }
    }
}
