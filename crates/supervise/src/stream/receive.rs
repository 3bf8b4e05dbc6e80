//! Receiving calls on a connection that its pair would carry out otherwise than TCP: MSG_TRUNC throws bytes away, and
//! TCP_INQ tells with each message how many are left (tcp(7)). They are carried out here, at the program's own end of the pair.

use client::Control;
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use switch::backing;

use super::Attempt;
use crate::datagram::message::{self, MessageLayout};
use crate::filter::FIONREAD;
use crate::pair::is_nonblocking;
use crate::relay::{PIECE_BYTES, Relay};
use crate::stopped_call::{Blocked, Call};
use crate::sys;

impl Relay {
    /// Whether a call is one of those.
    pub fn receives_apart(&self, call: &Call, number: i64) -> bool {
        let flags = message::flags(call, number);
        let is_plain = flags & (libc::MSG_OOB | libc::MSG_ERRQUEUE) == 0;
        let is_one = !message::sends(number) && !message::has_several(number);
        let tells = || number == libc::SYS_recvmsg && self.tells_left();
        is_plain && is_one && (flags & libc::MSG_TRUNC != 0 || tells())
    }

    /// TCP_INQ, which the backing socket keeps.
    fn tells_left(&self) -> bool {
        let mut value = [0; 4];
        let backing = self.backing.as_fd();
        backing::option(backing, libc::IPPROTO_TCP, libc::TCP_INQ, &mut value).is_ok()
            && value != [0; 4]
    }

    /// Carries one out as far as it goes; what a call that waits has taken so far is `blocked.done`.
    pub(super) fn receive_apart(
        &mut self,
        blocked: &mut Blocked,
        programs: BorrowedFd<'_>,
    ) -> Result<Attempt, Errno> {
        let (call, number) = (blocked.call, blocked.number);
        let place = MessageLayout::of(&call, number, 0)?;
        let flags = message::flags(&call, number);
        let (peeks, throws) = (flags & libc::MSG_PEEK != 0, flags & libc::MSG_TRUNC != 0);
        let mut how = RecvFlags::DONTWAIT;
        how.set(RecvFlags::PEEK, peeks);
        let mut is_over = place.len() == 0;
        let mut bytes = vec![0; PIECE_BYTES];
        while !is_over && blocked.done < place.len() {
            self.drain_down(&mut bytes);
            let most = (place.len() - blocked.done).min(PIECE_BYTES);
            match recv(programs, &mut bytes[..most], how) {
                Ok((0, _)) => is_over = true,
                Ok((taken, _)) => {
                    if !throws {
                        place.write_payload(call.caller, blocked.done, &bytes[..taken])?;
                    }
                    blocked.done += taken;
                    is_over = peeks;
                }
                Err(Errno::AGAIN) => break,
                // What was taken before comes first.
                Err(_) if blocked.done > 0 => is_over = true,
                Err(error) => return Err(error),
            }
        }
        let waits_for_all = flags & (libc::MSG_WAITALL | libc::MSG_DONTWAIT) == libc::MSG_WAITALL
            && !is_nonblocking(programs);
        let is_enough = blocked.done > 0 && (!waits_for_all || blocked.done == place.len());
        let mut control = Control::new(usize::MAX);
        if number == libc::SYS_recvmsg && self.tells_left() {
            control.bytes_left(self.bytes_left(programs));
        }
        place.write_header(call.caller, (&[], control.bytes()), 0)?;
        if !is_over && !is_enough {
            return Ok(Attempt::NotYet);
        }
        i64::try_from(blocked.done)
            .map(Attempt::Done)
            .map_err(|_| Errno::INVAL)
    }

    /// What TCP_INQ tells: the end of the stream counts as one (`tcp_inq_hint`).
    fn bytes_left(&self, programs: BorrowedFd<'_>) -> i32 {
        let in_pair = sys::ask(programs, FIONREAD).unwrap_or(0);
        let behind = i32::try_from(self.socket.readable_bytes()).unwrap_or(i32::MAX);
        let end = i32::from(self.socket.fin_received());
        in_pair.saturating_add(behind).saturating_add(end)
    }
}
