//! setsockopt(2) and getsockopt(2) on what is served.

mod given;
mod sys;

use std::net::SocketAddr;
use switch::backing;

use client::address::Family;
use client::options::{int, refusal_if_open};
use client::{Query, Session, Socket};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;

use self::given::Given;
use crate::options;
use crate::relay::{Phase, Relay};
use crate::stopped_call::{Call, Outcome, low_half};
use crate::supervisor::{Served, Supervisor};
use switch::backing::{family_of, family_of_tcp, family_of_udp};

/// Longest option value that a program can set.
const VALUE_MAX: usize = 1024;
/// SO_TIMESTAMPING under both of its numbers (asm-generic/socket.h), and its flags that ask for times of sending
/// (linux/net_tstamp.h): by the hardware, by software, queued, acknowledged, completed.
const STAMPING: [i32; 2] = [libc::SO_TIMESTAMPING, 65];
const OF_SENDING: i32 = 1 | 1 << 1 | 1 << 8 | 1 << 9 | 1 << 18;
/// Bytes of a structure by which something is asked for whose length was not told.
const ASKED: usize = 64;
const SAVED_SYN: (i32, i32) = (libc::IPPROTO_TCP, libc::TCP_SAVED_SYN);
/// asm-generic/socket.h.
const PEER_NAME: (i32, i32) = (libc::SOL_SOCKET, 28);

impl Supervisor {
    /// setsockopt(2).
    pub fn set_option(&mut self, call: &Call) -> Result<Outcome, Errno> {
        let Some((programs, cookie)) = self.socket_of(call) else {
            return Ok(Outcome::Continue);
        };
        let option = option_of(call);
        self.leave_groups_to_kernel(call, (programs.as_fd(), cookie), option)?;
        let len = usize::try_from(i32::from_ne_bytes(low_half(call.arguments[4])));
        let given = len.map_or(Err(Errno::INVAL), |len| {
            call.caller.read(call.arguments[3], len.min(VALUE_MAX))
        });
        self.refuse_told_later((programs.as_fd(), cookie), option, given.as_deref())?;
        let Some(served) = self.served.get_mut(&cookie) else {
            return Ok(Outcome::Continue);
        };
        let len = len.map_err(|_| Errno::INVAL)?;
        let is_none = call.arguments[3] == 0 && len == 0 && option.0 != libc::SOL_SOCKET;
        let Some(value) = given.ok().filter(|_| !is_none) else {
            // The kernel says what is wrong with that.
            let is_null = call.arguments[3] == 0;
            let listens = matches!(served, Served::Queue(_));
            let is_zero = is_null && option.0 == libc::IPPROTO_IPV6;
            if is_zero && !matches!(served, Served::Datagrams(_)) {
                // No value is 0 (`do_ipv6_setsockopt`).
                refuse_if_late(served.backing(), option, &[0; 4], listens)?;
            }
            self::sys::set_unreadable(served.backing(), option, is_null, len)?;
            return Ok(Outcome::Return(0));
        };
        let given = Given::of(call.caller, option, value)?;
        let value = given.value();
        let mut listens = false;
        let (socket, backing) = match served {
            Served::Relay(relay) => {
                // What was written before is sent as it was to be.
                relay.drain_up();
                (&relay.socket, &relay.backing)
            }
            Served::Queue(queue) => {
                listens = true;
                (&queue.socket, &queue.backing)
            }
            Served::Datagrams(datagrams) => {
                datagrams.set_option(programs.as_fd(), option, value)?;
                return Ok(Outcome::Return(0));
            }
        };
        refuse_if_late(backing.as_fd(), option, value, listens)?;
        options::set(socket, backing.as_fd(), programs.as_fd(), option, value)?;
        match served {
            Served::Queue(queue) => queue.settings.record(option, value),
            Served::Relay(relay)
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

    /// SO_ZEROCOPY, and times of sending: a pair reports neither, and a program that waited for them would wait for ever. Without
    /// the option there are none to wait for. What is no value of it the kernel refuses.
    fn refuse_told_later(
        &self,
        (fd, cookie): (BorrowedFd<'_>, u64),
        option: (i32, i32),
        value: Result<&[u8], &Errno>,
    ) -> Result<(), Errno> {
        let is_stream = || match self.served.get(&cookie) {
            Some(Served::Relay(_) | Served::Queue(_)) => true,
            Some(Served::Datagrams(_)) => false,
            None => family_of_tcp(fd).is_some(),
        };
        let Some(value) = value.ok().and_then(int) else {
            return Ok(());
        };
        let is_stamping = option.0 == libc::SOL_SOCKET && STAMPING.contains(&option.1);
        if option == (libc::SOL_SOCKET, libc::SO_ZEROCOPY) && value == 1 && is_stream() {
            return Err(Errno::OPNOTSUPP);
        }
        let is_datagrams = || match self.served.get(&cookie) {
            Some(served) => matches!(served, Served::Datagrams(_)),
            None => family_of_udp(fd).is_some(),
        };
        if is_stamping && value & OF_SENDING != 0 && (is_stream() || is_datagrams()) {
            return Err(Errno::INVAL);
        }
        Ok(())
    }

    /// getsockopt(2).
    pub fn option(&mut self, call: &Call) -> Result<Outcome, Errno> {
        let Some((programs, cookie)) = self.socket_of(call) else {
            return Ok(Outcome::Continue);
        };
        let option = option_of(call);
        let Some(served) = self.served.get_mut(&cookie) else {
            return Ok(Outcome::Continue);
        };
        let (at, len_at) = (call.arguments[3], call.arguments[4]);
        let room = call.caller.read_number(len_at)?.cast_signed();
        let room = match usize::try_from(room) {
            Ok(room) => room.min(VALUE_MAX),
            // It counts as unsigned (`do_ipv6_getsockopt`).
            Err(_) if OF_PATH.contains(&option) => VALUE_MAX,
            Err(_) => {
                let asked = call.caller.read(at, ASKED).unwrap_or_default();
                let value = self::sys::option_of_any_length(served.backing(), option, asked)?;
                return give(call, &value, value.len());
            }
        };
        if option == PEER_NAME
            && let Some((peer, session)) = peer_of(served)
        {
            let peer = self.engine_access.scoped(peer, session);
            return self.tell_peer_name(call, cookie, peer, room);
        }
        if option == ADDRESS_FORM && is_established_v6(served)? {
            return give(call, &libc::AF_INET6.to_ne_bytes(), room);
        }
        // What is asked for by a structure has it there.
        let asked = || {
            let asked = call.caller.read(at, room);
            asked.unwrap_or_else(|_| vec![0; room])
        };
        let value = match served {
            Served::Relay(relay) if option == (libc::SOL_SOCKET, libc::SO_ERROR) => {
                let error = relay.error.take().or_else(|| relay.socket.take_error());
                // The pair has an error of its own, with which it told that there is one.
                let _ = backing::option(programs.as_fd(), option.0, option.1, &mut [0; 4]);
                error.map_or(0, Errno::raw_os_error).to_ne_bytes().to_vec()
            }
            Served::Relay(relay) if option == SAVED_SYN => take_saved_syn(call, relay, room)?,
            Served::Relay(_) if option == options::PEEK_OFFSET => {
                let mut value = vec![0; size_of::<i32>()];
                backing::option(programs.as_fd(), option.0, option.1, &mut value)?;
                value
            }
            Served::Relay(relay) if option == options::V6_ONLY && relay.v6_only.is_some() => {
                relay.v6_only.unwrap_or_default().to_vec()
            }
            // What comes lies in a pair, whose pages nobody can have (linux/tcp.h without a memory manager says so too).
            Served::Relay(_) if option == ZEROCOPY_RECEIVE => return Err(Errno::NOPROTOOPT),
            Served::Relay(relay) => {
                options::ask(&relay.socket, relay.backing.as_fd(), option, asked())?
            }
            Served::Queue(queue) => {
                options::ask(&queue.socket, queue.backing.as_fd(), option, asked())?
            }
            Served::Datagrams(datagrams) => datagrams.option(programs.as_fd(), option, asked())?,
        };
        give(call, &value, room)
    }

    /// SO_PEERNAME: of a name less can be asked for, but not more.
    fn tell_peer_name(
        &self,
        call: &Call,
        cookie: u64,
        peer: SocketAddr,
        room: usize,
    ) -> Result<Outcome, Errno> {
        let served = self.served.get(&cookie).ok_or(Errno::NOTCONN)?;
        let scope_id = match peer {
            SocketAddr::V6(v6) => v6.scope_id(),
            SocketAddr::V4(_) => 0,
        };
        let name = client::address::emit(peer, family_of(served.backing())?, scope_id);
        let name = name.as_bytes().get(..room).ok_or(Errno::INVAL)?;
        give(call, name, room)
    }
}

/// linux/tcp.h.
const ZEROCOPY_RECEIVE: (i32, i32) = (libc::IPPROTO_TCP, libc::TCP_ZEROCOPY_RECEIVE);

/// linux/in6.h: IPV6_ADDRFORM, and what is told of the way to a peer.
const ADDRESS_FORM: (i32, i32) = (libc::IPPROTO_IPV6, 1);
const OF_PATH: [(i32, i32); 3] = [
    ADDRESS_FORM,
    (libc::IPPROTO_IPV6, libc::IPV6_MTU),
    (libc::IPPROTO_IPV6, libc::IPV6_PATHMTU),
];
/// net/tcp_states.h.
const ESTABLISHED: u64 = 1;

/// What Linux says of a value that comes too late.
fn refuse_if_late(
    backing: BorrowedFd<'_>,
    (level, name): (i32, i32),
    value: &[u8],
    listens: bool,
) -> Result<(), Errno> {
    match refusal_if_open(level, name, value, listens) {
        Some(_) if level == libc::IPPROTO_IPV6 && family_of(backing)? == Family::V4 => Ok(()),
        Some(refusal) => Err(refusal),
        None => Ok(()),
    }
}

/// Writes a value where the call wants it, as much as fits, and how much that is.
fn give(call: &Call, value: &[u8], room: usize) -> Result<Outcome, Errno> {
    let given = &value[..value.len().min(room)];
    let len = u32::try_from(given.len()).map_err(|_| Errno::INVAL)?;
    call.caller.write(call.arguments[3], given)?;
    call.caller.write(call.arguments[4], &len.to_ne_bytes())?;
    Ok(Outcome::Return(0))
}

fn peer_of(served: &Served) -> Option<(SocketAddr, &Session)> {
    match served {
        Served::Relay(relay) => {
            let is_connected = relay.phase == Phase::Open;
            let peer = relay.socket.peer_address().filter(|_| is_connected)?;
            Some((peer, relay.socket.session()))
        }
        Served::Queue(_) => None,
        Served::Datagrams(datagrams) => {
            let peer = datagrams.name(false).ok()?;
            Some((peer, datagrams.socket.session()))
        }
    }
}

/// TCP_SAVED_SYN; nothing once it was told.
fn take_saved_syn(call: &Call, relay: &mut Relay, room: usize) -> Result<Vec<u8>, Errno> {
    if relay.syn_told {
        return Ok(Vec::new());
    }
    let saved = relay.socket.query(Query::SavedSyn)?;
    if saved.len() > room {
        // Its length is told, and it stays (tcp(7)).
        let len = u32::try_from(saved.len()).map_err(|_| Errno::INVAL)?;
        call.caller.write(call.arguments[4], &len.to_ne_bytes())?;
        return Err(Errno::INVAL);
    }
    relay.syn_told = true;
    Ok(saved)
}

/// Whether the socket is one of IPv6 with a peer, and nothing has begun to end.
fn is_established_v6(served: &Served) -> Result<bool, Errno> {
    let is_v6 = family_of(served.backing())? == Family::V6;
    Ok(is_v6
        && match served {
            Served::Relay(relay) => relay.socket.figures()?.state == ESTABLISHED,
            Served::Queue(_) => false,
            Served::Datagrams(datagrams) => datagrams.name(false).is_ok(),
        })
}

fn option_of(call: &Call) -> (i32, i32) {
    let number = |at: usize| i32::from_ne_bytes(low_half(call.arguments[at]));
    (number(1), number(2))
}
