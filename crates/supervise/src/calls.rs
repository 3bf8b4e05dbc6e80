//! getsockname(2), getpeername(2), setsockopt(2), getsockopt(2) and shutdown(2): calls on what is
//! served that change no descriptor. What is not served goes on to the kernel.

pub mod addresses;
mod connect;
pub mod holders;
mod listen;

use std::net::SocketAddr;

use client::options::refusal_if_open;
use client::{Query, Socket};
use hostif::supervision::{ANSWER, QUESTION};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;

use crate::caller::{Caller, Told};
use crate::kernel_socket::{family_of, family_of_tcp, local_of};
use crate::options;
use crate::relay::{PIECE_BYTES, Phase, Relay};
use crate::stopped_call::{Call, Outcome, low_half};
use crate::supervisor::{Served, Supervisor};
use crate::sys;

/// Longest option value that a program can set.
const VALUE_MAX: usize = 1024;
const SAVED_SYN: (i32, i32) = (libc::IPPROTO_TCP, libc::TCP_SAVED_SYN);

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
                Some(Served::Relay(relay)) if relay.phase == Phase::Open);
            let peer = socket.peer_address().filter(|_| is_connected);
            peer.ok_or(Errno::NOTCONN)?
        };
        self.tell_address(
            call.caller,
            (call.arguments[1], call.arguments[2]),
            known,
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
        let scope_id = match address {
            SocketAddr::V6(v6) => v6.scope_id(),
            SocketAddr::V4(_) => 0,
        };
        let emitted = client::address::emit(address, family, scope_id);
        caller.write_sized(at, len_at, emitted.as_bytes(), Told::Whole)
    }

    /// setsockopt(2).
    pub fn set_option(&mut self, call: &Call) -> Result<Outcome, Errno> {
        let Some((programs, cookie)) = self.socket_of(call) else {
            return Ok(Outcome::Continue);
        };
        let option = option_of(call);
        self.leave_groups_to_kernel(call, (programs.as_fd(), cookie), option)?;
        self.refuse_zero_copy(call, (programs.as_fd(), cookie), option)?;
        if !self.served.contains_key(&cookie) {
            return Ok(Outcome::Continue);
        }
        let len = usize::try_from(i32::from_ne_bytes(low_half(call.arguments[4])))
            .map_err(|_| Errno::INVAL)?;
        let value = call.caller.read(call.arguments[3], len.min(VALUE_MAX))?;
        let mut listens = false;
        let (socket, backing) = match self.served.get_mut(&cookie) {
            Some(Served::Relay(relay)) => {
                // What was written before is sent as it was to be.
                relay.drain_up();
                (&relay.socket, &relay.backing)
            }
            Some(Served::Queue(queue)) => {
                listens = true;
                (&queue.socket, &queue.backing)
            }
            Some(Served::Datagrams(datagrams)) => {
                datagrams.set_option(programs.as_fd(), option, &value)?;
                return Ok(Outcome::Return(0));
            }
            None => return Ok(Outcome::Continue),
        };
        if let Some(refusal) = refusal_if_open(option.0, option.1, &value, listens) {
            return Err(refusal);
        }
        options::set(socket, backing.as_fd(), programs.as_fd(), option, &value)?;
        match self.served.get_mut(&cookie) {
            Some(Served::Queue(queue)) => queue.settings.record(option, &value),
            Some(Served::Relay(relay))
                if relay.phase == Phase::Open && options::bounds_sending(option) =>
            {
                options::bound_sending(relay.backing.as_fd(), programs.as_fd());
                relay.note_size(programs.as_fd());
                relay.bell.ring();
            }
            _ => {}
        }
        Ok(Outcome::Return(0))
    }

    /// SO_ZEROCOPY: a pair tells of no completions, and a program that waited for them would wait for ever. Without the
    /// option there are none to wait for.
    fn refuse_zero_copy(
        &self,
        call: &Call,
        (fd, cookie): (BorrowedFd<'_>, u64),
        option: (i32, i32),
    ) -> Result<(), Errno> {
        let is_stream = || match self.served.get(&cookie) {
            Some(Served::Relay(_) | Served::Queue(_)) => true,
            Some(Served::Datagrams(_)) => false,
            None => family_of_tcp(fd).is_some(),
        };
        let asks = || {
            call.caller
                .read_number(call.arguments[3])
                .is_ok_and(|on| on != 0)
        };
        if option == (libc::SOL_SOCKET, libc::SO_ZEROCOPY) && is_stream() && asks() {
            return Err(Errno::OPNOTSUPP);
        }
        Ok(())
    }

    /// getsockopt(2).
    pub fn option(&mut self, call: &Call) -> Result<Outcome, Errno> {
        let Some((programs, cookie)) = self.socket_of(call) else {
            return Ok(Outcome::Continue);
        };
        let option = option_of(call);
        let room = call.caller.read_number(call.arguments[4]);
        let value = match self.served.get_mut(&cookie) {
            Some(Served::Relay(relay)) if option == (libc::SOL_SOCKET, libc::SO_ERROR) => {
                let error = relay.error.take().or_else(|| relay.socket.take_error());
                // The pair has an error of its own, with which it told that there is one.
                let _ = sys::option(programs.as_fd(), option.0, option.1, &mut [0; 4]);
                error.map_or(0, Errno::raw_os_error).to_ne_bytes().to_vec()
            }
            Some(Served::Relay(relay)) if option == SAVED_SYN => {
                let saved = saved_syn(relay)?;
                let room = usize::try_from(room?).map_err(|_| Errno::INVAL)?;
                if saved.len() > room {
                    // Its length is told, and it stays (tcp(7)).
                    let len = u32::try_from(saved.len()).map_err(|_| Errno::INVAL)?;
                    call.caller.write(call.arguments[4], &len.to_ne_bytes())?;
                    return Err(Errno::INVAL);
                }
                relay.syn_told = true;
                saved
            }
            Some(Served::Relay(_)) if option == options::PEEK_OFFSET => {
                let mut value = vec![0; size_of::<i32>()];
                crate::sys::option(programs.as_fd(), option.0, option.1, &mut value)?;
                let room = usize::try_from(room?).map_err(|_| Errno::INVAL)?;
                value.truncate(room);
                value
            }
            Some(Served::Relay(relay)) => {
                let room = usize::try_from(room?).map_err(|_| Errno::INVAL)?;
                options::ask(
                    &relay.socket,
                    relay.backing.as_fd(),
                    option,
                    room.min(VALUE_MAX),
                )?
            }
            Some(Served::Queue(queue)) => {
                let room = usize::try_from(room?).map_err(|_| Errno::INVAL)?;
                options::ask(
                    &queue.socket,
                    queue.backing.as_fd(),
                    option,
                    room.min(VALUE_MAX),
                )?
            }
            Some(Served::Datagrams(datagrams)) => {
                let room = usize::try_from(room?).map_err(|_| Errno::INVAL)?;
                datagrams.option(programs.as_fd(), option, room.min(VALUE_MAX))?
            }
            None => return Ok(Outcome::Continue),
        };
        let (at, len_at) = (call.arguments[3], call.arguments[4]);
        call.caller.write_sized(at, len_at, &value, Told::Given)?;
        Ok(Outcome::Return(0))
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
                    // The pair's own shutdown has the same order among what is written.
                    Ok(Outcome::Continue)
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
}

/// TCP_SAVED_SYN; nothing once it was told.
fn saved_syn(relay: &Relay) -> Result<Vec<u8>, Errno> {
    if relay.syn_told {
        Ok(Vec::new())
    } else {
        relay.socket.query(Query::SavedSyn)
    }
}

fn option_of(call: &Call) -> (i32, i32) {
    let number = |at: usize| i32::from_ne_bytes(low_half(call.arguments[at]));
    (number(1), number(2))
}
