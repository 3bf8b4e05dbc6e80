//! Questions for the host's addresses, to whose answers the engines' own are added (`client::addresses`): dumps of rtnetlink(7),
//! and the requests of netdevice(7).
//!
//! The question goes to the kernel as it is; the engines' answer is received first, and the kernel's ends the list. Seen are
//! calls that are stopped: those with a message header, and sendto and recvfrom with an address. So glibc and Go ask.
//! iproute2 and busybox ask by a plain send, which is not seen, and receive with a header: of what was asked the kernel's answer
//! tells the family then. musl's getifaddrs(3) does both by plain calls, and hears the kernel alone.

mod sys;

use std::collections::{HashMap, VecDeque};
use std::mem::offset_of;

use client::addresses::netdevice::{self, ENTRY};
use client::addresses::netlink::{Answered, QUESTION_MAX, Question, SENDER, port};
use client::addresses::{self, Own};
use libc::{ifconf, ifreq};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, sockopt};

use crate::datagram::message::{self, MessageLayout};
use crate::stopped_call::{Call, Outcome};
use crate::supervisor::Supervisor;

/// Sockets whose questions are remembered; beyond, all are forgotten.
const QUESTIONS_MAX: usize = 64;
/// Longest datagram of an answer (`netlink_recvmsg`).
const DATAGRAM_MAX: usize = 32 * 1024;
/// Longest list of interfaces that is written: more than a thousand.
const LIST_MAX: usize = 64 * 1024;

/// What netlink sockets have asked, by their cookies.
#[derive(Default)]
pub struct Questions(HashMap<u64, Asked>);

/// A question, and the engines' answers that the program has not received yet.
struct Asked {
    sequence: u32,
    /// The families that were answered; 0: all.
    families: Vec<u8>,
    answer: VecDeque<Vec<u8>>,
}

impl Questions {
    fn note(&mut self, cookie: u64, asked: Asked) {
        if self.0.len() >= QUESTIONS_MAX {
            self.0.clear();
        }
        self.0.insert(cookie, asked);
    }
}

impl Supervisor {
    /// A call that sends or receives on a socket that is not served; `None`: it is the kernel's as it stands.
    pub fn netlink_message(
        &mut self,
        call: &Call,
        number: i64,
        (fd, cookie): (BorrowedFd<'_>, u64),
    ) -> Result<Option<Outcome>, Errno> {
        let is_for_routes = sockopt::socket_domain(fd) == Ok(AddressFamily::NETLINK)
            && sockopt::socket_protocol(fd) == Ok(None);
        if !is_for_routes || message::flags(call, number) & libc::MSG_ERRQUEUE != 0 {
            return Ok(None);
        }
        if message::sends(number) {
            self.note_question(call, number, (fd, cookie));
            return Ok(None);
        }
        self.look_at_answer(call, (fd, cookie));
        self.tell_addresses(call, number, cookie)
    }

    fn note_question(&mut self, call: &Call, number: i64, (fd, cookie): (BorrowedFd<'_>, u64)) {
        let asked = MessageLayout::of(call, number, 0)
            .and_then(|place| place.read_piece(call.caller, 0, QUESTION_MAX));
        // What is wrong with the call the kernel says.
        let Some(question) = asked.ok().and_then(|bytes| Question::of(&bytes)) else {
            return;
        };
        let asked = Asked {
            sequence: question.sequence,
            families: vec![question.family],
            answer: question.answer(port(fd), &self.own_addresses(call, fd)),
        };
        self.questions.note(cookie, asked);
    }

    /// The kernel's answer to a question that was not seen: it lies there when the question has been sent.
    fn look_at_answer(&mut self, call: &Call, (fd, cookie): (BorrowedFd<'_>, u64)) {
        let mut datagram = vec![0; DATAGRAM_MAX];
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let Ok((len, _)) = rustix::net::recv(fd, &mut datagram[..], flags) else {
            return;
        };
        let Some(answered) = Answered::of(&datagram[..len]) else {
            return;
        };
        let mut asked = self.questions.0.remove(&cookie);
        if asked.as_ref().map(|asked| asked.sequence) != Some(answered.sequence) {
            asked = None;
        }
        let mut asked = asked.unwrap_or_else(|| Asked {
            sequence: answered.sequence,
            families: Vec::new(),
            answer: VecDeque::new(),
        });
        for family in answered.families {
            if asked.families.iter().any(|told| [0, family].contains(told)) {
                continue;
            }
            asked.families.push(family);
            let question = Question {
                sequence: answered.sequence,
                family,
                index: 0,
            };
            let own = self.own_addresses(call, fd);
            asked.answer.extend(question.answer(answered.port, &own));
        }
        self.questions.note(cookie, asked);
    }

    fn own_addresses(&mut self, call: &Call, fd: BorrowedFd<'_>) -> Vec<Own> {
        // Without an engine there are none; whether sockets may be made then is not asked here.
        let _ = self.engine_access.open(call.caller);
        let networks = self.engine_access.networks();
        networks.map_or_else(Vec::new, |networks| addresses::own(&networks, fd))
    }

    /// Gives the program the engines' answer, before the kernel's.
    fn tell_addresses(
        &mut self,
        call: &Call,
        number: i64,
        cookie: u64,
    ) -> Result<Option<Outcome>, Errno> {
        let asked = self.questions.0.get_mut(&cookie);
        let Some(answer) = asked.map(|asked| &mut asked.answer) else {
            return Ok(None);
        };
        let Some(bytes) = answer.front() else {
            return Ok(None);
        };
        let place = MessageLayout::of(call, number, 0)?;
        let flags = message::flags(call, number);
        let given = bytes.len().min(place.len());
        let told = if given < bytes.len() {
            libc::MSG_TRUNC
        } else {
            0
        };
        place.write(call.caller, &bytes[..given], (&SENDER, &[]), told)?;
        let len = if flags & libc::MSG_TRUNC != 0 {
            bytes.len()
        } else {
            given
        };
        if flags & libc::MSG_PEEK == 0 {
            answer.pop_front();
        }
        if message::has_several(number) {
            place.write_len(call.caller, len)?;
            return Ok(Some(Outcome::Return(1)));
        }
        i64::try_from(len)
            .map(|len| Some(Outcome::Return(len)))
            .map_err(|_| Errno::INVAL)
    }

    /// ioctl(2) with a request for addresses.
    pub fn ask_for_addresses(&mut self, call: &Call, request: u32) -> Result<Outcome, Errno> {
        let Ok(fd) = call.caller.descriptor(call.fd) else {
            return Ok(Outcome::Continue);
        };
        if u64::from(request) == libc::SIOCGIFCONF {
            return self.list_addresses(call, fd.as_fd());
        }
        let place = call.arguments[2];
        let Ok(mut asked) = call.caller.read(place, ENTRY) else {
            return Ok(Outcome::Continue);
        };
        if sys::ask_interface(fd.as_fd(), request, &mut asked) != Err(Errno::ADDRNOTAVAIL) {
            return Ok(Outcome::Continue);
        }
        let all = self.own_addresses(call, fd.as_fd());
        let Some(value) = netdevice::answer(request.into(), &asked, &all) else {
            return Ok(Outcome::Continue);
        };
        let offset = u64::try_from(offset_of!(ifreq, ifr_ifru)).map_err(|_| Errno::INVAL)?;
        call.caller.write(place.wrapping_add(offset), &value)?;
        Ok(Outcome::Return(0))
    }

    /// SIOCGIFCONF: the kernel's entries, then the engines'; without a place for them only how much they need.
    fn list_addresses(&mut self, call: &Call, fd: BorrowedFd<'_>) -> Result<Outcome, Errno> {
        let place = call.arguments[2];
        let Ok(list) = call.caller.read(place, size_of::<ifconf>()) else {
            return Ok(Outcome::Continue);
        };
        let room = list.first_chunk().map_or(0, |len| i32::from_ne_bytes(*len));
        let start = list[offset_of!(ifconf, ifc_ifcu)..].first_chunk();
        let start = start.map_or(0, |bytes| u64::from_ne_bytes(*bytes));
        let Ok(room) = usize::try_from(room) else {
            return Ok(Outcome::Continue);
        };
        let own = self.own_addresses(call, fd);
        let own = netdevice::entries(&own);
        let used = if start == 0 {
            sys::list(fd, None)? + own.count() * ENTRY
        } else {
            let mut entries = vec![0; room.min(LIST_MAX)];
            let used = sys::list(fd, Some(&mut entries))?;
            entries.truncate(used);
            for entry in own {
                if room.min(LIST_MAX) - entries.len() >= ENTRY {
                    entries.extend(entry);
                }
            }
            call.caller.write(start, &entries)?;
            entries.len()
        };
        let used = i32::try_from(used).map_err(|_| Errno::INVAL)?;
        call.caller.write(place, &used.to_ne_bytes())?;
        Ok(Outcome::Return(0))
    }
}
