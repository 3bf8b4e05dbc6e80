//! recvfrom(2) with an address, recvmsg(2) and recvmmsg(2): what waits in the pair, and the file with it that tells
//! where it came from.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::time::Instant;

use client::{Control, address};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, recvmsg};

use super::Datagrams;
use super::message::{MessageLayout, flags, has_several};
use crate::pair::is_nonblocking;
use crate::stopped_call::Blocked;

/// Longest file of facts.
const FACTS_BYTES: usize = 1024;
/// Of each message that a program sends to itself by another way there are none.
const STRANGERS_MAX: usize = 64;

/// The sender's name and the control messages of a datagram, as the program is told them: the length of the name,
/// the name, the messages.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Facts(Vec<u8>);

impl Facts {
    /// The facts of one datagram.
    pub fn new(name: &[u8], control: &[u8]) -> Facts {
        let len = u8::try_from(name.len()).unwrap_or(0);
        Facts([&[len], &name[..usize::from(len)], control].concat())
    }

    /// Writes them to a new file.
    pub fn write(&self) -> Result<OwnedFd, Errno> {
        let file = memfd_create("shunt-datagram", MemfdFlags::CLOEXEC)?;
        match rustix::io::write(&file, &self.0) {
            Ok(written) if written == self.0.len() => Ok(file),
            Ok(_) => Err(Errno::IO),
            Err(error) => Err(error),
        }
    }

    fn read(file: BorrowedFd<'_>) -> Result<Facts, Errno> {
        let mut bytes = vec![0; FACTS_BYTES];
        let read = rustix::io::pread(file, &mut bytes[..], 0)?;
        bytes.truncate(read);
        let has_name = bytes.first().is_some_and(|len| usize::from(*len) < read);
        has_name.then_some(Facts(bytes)).ok_or(Errno::IO)
    }

    fn parts(&self) -> (&[u8], &[u8]) {
        let (len, rest) = self.0.split_first().unwrap_or((&0, &[]));
        rest.split_at(usize::from(*len).min(rest.len()))
    }
}

struct Taken {
    payload: Vec<u8>,
    /// How long it is, however much of it was copied.
    len: usize,
    facts: Facts,
}

impl Datagrams {
    /// Carries a receiving call out, as far as it goes without waiting: what it returns, or EAGAIN.
    pub fn receive(
        &mut self,
        blocked: &mut Blocked,
        programs: BorrowedFd<'_>,
    ) -> Result<i64, Errno> {
        let (call, number) = (blocked.call, blocked.number);
        let flags = flags(&call, number);
        let count = super::message::count(&call, number);
        while blocked.done < count {
            let place = MessageLayout::of(&call, number, blocked.done)?;
            let received = match self.receive_one(blocked, &place, flags, programs) {
                Err(error) if blocked.done > 0 && error != Errno::AGAIN => {
                    // The next call tells (recvmmsg(2)).
                    self.error = Some(error);
                    break;
                }
                received => received?,
            };
            if !has_several(number) {
                return i64::try_from(received).map_err(|_| Errno::INVAL);
            }
            place.write_len(call.caller, received)?;
            blocked.done += 1;
        }
        i64::try_from(blocked.done).map_err(|_| Errno::INVAL)
    }

    fn receive_one(
        &mut self,
        blocked: &Blocked,
        place: &MessageLayout,
        flags: i32,
        programs: BorrowedFd<'_>,
    ) -> Result<usize, Errno> {
        let caller = blocked.call.caller;
        if flags & libc::MSG_ERRQUEUE != 0 {
            let received = self.receive_failure(blocked, place, flags);
            if received.is_ok() && !self.socket.has_failures() {
                // With the last entry the pending error is gone too (`sock_dequeue_err_skb`).
                let _ = self.take_error(programs);
            }
            return received;
        }
        if let Some(error) = self.take_error(programs) {
            return Err(error);
        }
        let taken = match take(programs, place.len(), flags) {
            // Only who would wait is told of the end (`__skb_wait_for_more_packets`).
            Err(Errno::AGAIN)
                if self.is_shut && flags & libc::MSG_DONTWAIT == 0 && !is_nonblocking(programs) =>
            {
                place.write(caller, &[], (&[], &[]), 0)?;
                return Ok(0);
            }
            taken => taken?,
        };
        self.bell.ring();
        let is_cut = taken.len > taken.payload.len();
        let told = if is_cut { libc::MSG_TRUNC } else { 0 } | flags & libc::MSG_CMSG_CLOEXEC;
        place.write(caller, &taken.payload, taken.facts.parts(), told)?;
        let whole = flags & libc::MSG_TRUNC != 0;
        Ok(if whole {
            taken.len
        } else {
            taken.payload.len()
        })
    }

    /// An entry of the error queue (ip(7), IP_RECVERR).
    fn receive_failure(
        &mut self,
        blocked: &Blocked,
        place: &MessageLayout,
        flags: i32,
    ) -> Result<usize, Errno> {
        let mut buffer = vec![0; place.len().min(usize::from(u16::MAX))];
        let parts = &mut [IoSliceMut::new(&mut buffer)];
        let (len, copied, facts) = match self.socket.take_failure(parts)? {
            Some(delivered) => {
                let failure = delivered.record;
                let mut control = Control::new(usize::MAX);
                control.stamp(failure.timestamp_ns, self.options.wanted);
                control.explain(&failure, self.family, 0);
                let name = address::emit(failure.destination, self.family, 0);
                let len = usize::try_from(failure.len).unwrap_or(0);
                let facts = Facts::new(name.as_bytes(), control.bytes());
                (len, delivered.copied, facts)
            }
            None => {
                let from = self.backing.as_fd();
                let found = super::sys::receive(from, &mut buffer, libc::MSG_ERRQUEUE)?;
                (
                    found.len,
                    found.len,
                    Facts::new(&found.name, &found.control),
                )
            }
        };
        let cut = if len > copied { libc::MSG_TRUNC } else { 0 };
        let told = libc::MSG_ERRQUEUE | cut | flags & libc::MSG_CMSG_CLOEXEC;
        place.write(blocked.call.caller, &buffer[..copied], facts.parts(), told)?;
        let whole = flags & libc::MSG_TRUNC != 0;
        Ok(if whole { len } else { copied })
    }

    /// Until when a call waits that has to.
    pub fn deadline(&self, number: i64) -> Option<Instant> {
        let name = if super::message::sends(number) {
            libc::SO_SNDTIMEO
        } else {
            libc::SO_RCVTIMEO
        };
        let timeout = crate::options::timeout(self.backing.as_fd(), name);
        timeout.map(|timeout| Instant::now() + timeout)
    }
}

/// Takes a datagram out of the program's end, or looks at it.
fn take(programs: BorrowedFd<'_>, room: usize, flags: i32) -> Result<Taken, Errno> {
    let peek = flags & libc::MSG_PEEK != 0;
    let mut how = RecvFlags::DONTWAIT | RecvFlags::TRUNC | RecvFlags::CMSG_CLOEXEC;
    how.set(RecvFlags::PEEK, peek);
    let mut payload = vec![0; room.min(usize::from(u16::MAX))];
    for _ in 0..STRANGERS_MAX {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let parts = &mut [IoSliceMut::new(&mut payload)];
        let message = recvmsg(programs, parts, &mut control, how)?;
        let file = control.drain().find_map(|item| match item {
            RecvAncillaryMessage::ScmRights(mut files) => files.next(),
            _ => None,
        });
        let facts = file.and_then(|file| Facts::read(file.as_fd()).ok());
        let Some(facts) = facts else {
            // Nobody but us puts datagrams there, but for who has guessed the name of an end that is connected to
            // nobody.
            if peek {
                let _ = rustix::net::recv(programs, &mut [0; 1][..], RecvFlags::DONTWAIT);
            }
            continue;
        };
        let len = message.bytes;
        let copied = if message.flags.contains(ReturnFlags::TRUNC) {
            payload.len()
        } else {
            len.min(payload.len())
        };
        payload.truncate(copied);
        return Ok(Taken {
            payload,
            len,
            facts,
        });
    }
    Err(Errno::AGAIN)
}
