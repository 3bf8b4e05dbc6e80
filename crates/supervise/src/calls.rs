//! getsockname(2), getpeername(2) and shutdown(2): calls on what is served that change no descriptor. What is not served goes on to the kernel.

pub mod addresses;
mod connect;
pub mod holders;
mod listen;
mod options;

use std::net::SocketAddr;

use hostif::supervision::{ANSWER, QUESTION};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;
use rustix::net::Shutdown;

use crate::caller::Caller;
use crate::relay::{PIECE_BYTES, Phase};
use crate::stopped_call::{Call, Outcome, low_half};
use crate::supervisor::{Served, Supervisor};
use switch::backing::{family_of, local_of};

impl Supervisor {
    /// getsockname(2), or getpeername(2).
    pub fn name(&mut self, call: &Call, is_local: bool) -> Result<Outcome, Errno> {
        let Some((_, cookie)) = self.socket_of(call) else {
            return Ok(Outcome::Continue);
        };
        let (socket, backing) = match self.served.get(&cookie) {
            Some(Served::Relay(relay)) => (&relay.socket, &relay.backing),
            Some(Served::Queue(queue)) => (&queue.socket, &queue.backing),
            Some(Served::Datagrams(datagrams)) => {
                let known = datagrams.name(is_local)?;
                let known = self.engine_access.scoped(known, datagrams.socket.session());
                let place = (call.arguments[1], call.arguments[2]);
                self.tell_address(call.caller, place, known, datagrams.backing.as_fd())?;
                return Ok(Outcome::Return(0));
            }
            None => return Ok(Outcome::Continue),
        };
        let known = if is_local {
            let known = socket.local_address();
            let known = known.filter(|address| !address.ip().is_unspecified());
            match known {
                Some(known) => known,
                None => local_of(backing.as_fd())?,
            }
        } else {
            let is_connected = matches!(self.served.get(&cookie),
                Some(Served::Relay(relay)) if relay.phase == Phase::Open && !relay.is_over());
            let peer = socket.peer_address().filter(|_| is_connected);
            peer.ok_or(Errno::NOTCONN)?
        };
        self.tell_address(
            call.caller,
            (call.arguments[1], call.arguments[2]),
            self.engine_access.scoped(known, socket.session()),
            backing.as_fd(),
        )?;
        Ok(Outcome::Return(0))
    }

    /// Writes an address where a call wants it: at the first place, its length at the second.
    pub fn tell_address(
        &self,
        caller: Caller,
        (at, len_at): (u64, u64),
        address: SocketAddr,
        backing: BorrowedFd<'_>,
    ) -> Result<(), Errno> {
        let family = family_of(backing)?;
        let emitted = client::address::emit_scoped(address, family);
        caller.write_name(at, len_at, emitted.as_bytes())
    }

    /// shutdown(2).
    pub fn shutdown(&mut self, call: &Call) -> Result<Outcome, Errno> {
        if call.fd == -1 && low_half(call.arguments[1]) == QUESTION.to_ne_bytes() {
            return Ok(Outcome::Return(ANSWER));
        }
        let Some((programs, cookie)) = self.socket_of(call) else {
            return Ok(Outcome::Continue);
        };
        let how = i32::from_ne_bytes(low_half(call.arguments[1]));
        match self.served.get_mut(&cookie) {
            Some(Served::Relay(relay)) => match relay.phase {
                // As `tcp_disconnect`: the socket may connect again.
                Phase::Connecting { .. } => self
                    .undo_connection(call, programs.as_fd(), cookie)
                    .map(|()| Outcome::Return(0)),
                Phase::Open | Phase::Over if relay.is_over() => Err(Errno::NOTCONN),
                Phase::Over if relay.ours.is_none() => Err(Errno::NOTCONN),
                Phase::Open | Phase::Over => {
                    relay.note_shutdown(how);
                    if how == libc::SHUT_RD || how == libc::SHUT_RDWR {
                        // What has come is read all the same; a pair takes nothing more then.
                        relay.drain_down(&mut vec![0; PIECE_BYTES]);
                    }
                    self.shut_pair((programs.as_fd(), cookie), how)
                }
            },
            Some(Served::Queue(_)) => self.shut_listener(call, programs.as_fd(), cookie),
            Some(Served::Datagrams(datagrams)) => {
                let shut = datagrams.shutdown(programs.as_fd(), how);
                datagrams.bell.ring();
                shut.map(Outcome::Return)
            }
            None if self.holders.is_shut(cookie) => Err(Errno::NOTCONN),
            None => Ok(Outcome::Continue),
        }
    }

    /// Shuts a program's end of a pair down, in its order among what is written. Done here, and its news taken before the program
    /// goes on: the hang-up of a close that follows at once would be one with that of the shutdown, and be taken for it.
    fn shut_pair(
        &mut self,
        (programs, key): (BorrowedFd<'_>, u64),
        how: i32,
    ) -> Result<Outcome, Errno> {
        let how = match how {
            libc::SHUT_RD => Shutdown::Read,
            libc::SHUT_WR => Shutdown::Write,
            libc::SHUT_RDWR => Shutdown::Both,
            _ => return Err(Errno::INVAL),
        };
        rustix::net::shutdown(programs, how)?;
        self.take_events();
        // The FIN leaves within the call, as in Linux, where what is before it fits the window.
        if let Some(Served::Relay(relay)) = self.served.get_mut(&key) {
            relay.drain_up();
        }
        Ok(Outcome::Return(0))
    }
}
