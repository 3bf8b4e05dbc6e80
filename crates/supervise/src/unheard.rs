//! What calls have done that a signal took back: seccomp_unotify(2) lets every signal end the wait for an answer, also once the
//! supervisor has acted. Where the handler restarts calls (SA_RESTART) the same call comes again at once; where it does not, the program
//! hears EINTR and mostly makes the same call again. Either way it gets its answer, and nothing is sent or taken twice.
//!
//! An answer that the kernel takes in the very moment in which the caller leaves because of a signal goes with the call, and nobody is
//! told (`seccomp_do_user_notification` looks whether there is one, and locks afterwards). So a thread is looked at before its first
//! answers, and one of which a signal has taken a call back before each, and not answered while a signal is on its way to it.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

use rustix::fd::{AsFd as _, BorrowedFd};
use rustix::io::Errno;

use crate::caller::Caller;
use crate::datagram::message::{self, MessageLayout};
use crate::stopped_call::{Blocked, Call, low_half};
use crate::supervisor::{Served, Supervisor};
use crate::sys;

/// Threads of which something is remembered, and sockets.
const REMEMBERED_MAX: usize = 256;
/// Of a payload that was sent so much is compared, and of one that was received so much is kept.
const PAYLOAD_BYTES_MAX: usize = 64 * 1024;
/// Threads whose answers are counted.
const THREADS_MAX: usize = 4096;
/// Answers of a thread that are preceded by a look, which takes some 10 µs, until one is known to be interrupted.
const FIRST_LOOKS: u32 = 64;
/// So long a thread may take to leave its call.
const LEAVING_MAX: Duration = Duration::from_millis(1);
/// Bytes of `struct msghdr`, and those words of it that a receiving call does not change.
const HEADER_BYTES: usize = 56;
const KEPT_WORDS: [usize; 4] = [0, 2, 3, 4];

/// See the file's head.
#[derive(Default)]
pub struct Unheard {
    /// By thread: each makes one call at a time, but for handlers of signals.
    answers: HashMap<u32, Answer>,
    /// Sockets that the kernel has bound for a call that came no further.
    bound: HashSet<u64>,
    /// Threads, and how many of their answers are still preceded by a look; of those of which a signal has taken a call back, all.
    looks: HashMap<u32, u32>,
    /// Threads whose latest call was a connect of that descriptor, and which a signal may have kept from hearing its answer.
    connects: HashMap<u32, RawFd>,
}

struct Answer {
    number: i64,
    arguments: [u64; 6],
    /// The cookie of the socket: its number may be another's since.
    socket: u64,
    /// A hash that names what was sent.
    sent: Option<u64>,
    /// What was received: its buffer may have been used for something else since.
    received: Vec<u8>,
    /// What a receiving call has written besides the payload: its header, or the length of the name.
    told: Option<(u64, Vec<u8>)>,
    value: Result<i64, Errno>,
}

impl Unheard {
    /// A call was answered and is gone.
    pub fn keep(&mut self, call: &Call, number: i64, value: Result<i64, Errno>) {
        if is_undone(value) || !has_effect(call, number) {
            return;
        }
        let socket = call.caller.descriptor(call.fd).and_then(sys::cookie);
        let Ok(socket) = socket else {
            return;
        };
        if self.answers.len() >= REMEMBERED_MAX {
            self.answers.clear();
        }
        let answer = Answer {
            number,
            arguments: call.arguments,
            socket,
            sent: sent(call, number),
            received: received(call, number, value),
            told: told(call, number),
            value,
        };
        self.answers.insert(call.caller.tid, answer);
    }

    /// A call that waited is gone: what it has done until then is what it returns.
    pub fn lapse(&mut self, blocked: &Blocked) {
        if let Ok(done) = blocked.given_up() {
            self.keep(&blocked.call, blocked.number, Ok(done));
        }
    }

    /// The answer for a call that comes again.
    pub fn take(&mut self, call: &Call, number: i64) -> Option<Result<i64, Errno>> {
        let answer = self.answers.get(&call.caller.tid)?;
        let is_same = answer.number == number
            && answer.arguments == call.arguments
            && answer.sent == sent(call, number)
            && answer.is_where_it_was(call)
            && call.caller.same_socket(call.fd, answer.socket).is_some();
        if !is_same {
            return None;
        }
        let answer = self.answers.remove(&call.caller.tid)?;
        if !answer.received.is_empty()
            && let Ok(place) = MessageLayout::of(call, number, 0)
        {
            // As below.
            let _ = place.write_payload(call.caller, 0, &answer.received);
        }
        if let Some((at, bytes)) = answer.told {
            // It was there a moment ago.
            let _ = call.caller.write(at, &bytes);
        }
        Some(answer.value)
    }

    fn looks_left(&mut self, caller: Caller) -> &mut u32 {
        if self.looks.len() >= THREADS_MAX {
            self.looks.clear();
        }
        self.looks.entry(caller.tid).or_insert(FIRST_LOOKS)
    }

    /// A connect was answered. The kernel may have lost the answer where signals take calls of the thread back.
    pub fn doubt_connect(&mut self, tid: u32, fd: RawFd) {
        if self.connects.len() >= THREADS_MAX {
            self.connects.clear();
        }
        if self.looks.get(&tid) == Some(&u32::MAX) {
            self.connects.insert(tid, fd);
        }
    }

    /// The thread makes another call; the descriptor that its latest call was to connect, as above.
    pub fn take_doubted(&mut self, tid: u32) -> Option<RawFd> {
        self.connects.remove(&tid)
    }

    /// A socket was bound for a call, which comes again.
    pub fn keep_bound(&mut self, cookie: u64) {
        if self.bound.len() >= REMEMBERED_MAX {
            self.bound.clear();
        }
        self.bound.insert(cookie);
    }

    /// Whether it is that socket.
    pub fn take_bound(&mut self, cookie: u64) -> bool {
        self.bound.remove(&cookie)
    }
}

impl Answer {
    /// Whether the name, the payload and the control messages have the same buffers as before.
    fn is_where_it_was(&self, call: &Call) -> bool {
        match &self.told {
            Some((at, bytes)) if bytes.len() == HEADER_BYTES => {
                let now = call.caller.read(*at, HEADER_BYTES).unwrap_or_default();
                let (now, before) = (now.as_chunks::<8>().0, bytes.as_chunks::<8>().0);
                KEPT_WORDS
                    .iter()
                    .all(|word| now.get(*word) == before.get(*word))
            }
            _ => true,
        }
    }
}

/// Whether a signal takes a call back that waits. One for the whole process goes to any of its threads: whether to this one is
/// waited for.
fn is_leaving(listener: BorrowedFd<'_>, id: u64, caller: Caller) -> bool {
    let begin = Instant::now();
    loop {
        match caller.signalled() {
            Some(true) => return true,
            None => return false,
            Some(false) if begin.elapsed() > LEAVING_MAX => return false,
            Some(false) if !sys::waits(listener, id) => return true,
            Some(false) => std::thread::yield_now(),
        }
    }
}

/// Whether the answer says that nothing was done: a call that was gone (ENOENT, ESRCH) could not be given a descriptor.
pub fn is_undone(value: Result<i64, Errno>) -> bool {
    matches!(
        value,
        Err(Errno::AGAIN | Errno::NOENT | Errno::SRCH | Errno::INTR)
    )
}

/// Whether a call that is made twice does something twice.
fn has_effect(call: &Call, number: i64) -> bool {
    match number {
        libc::SYS_sendto
        | libc::SYS_sendmsg
        | libc::SYS_sendmmsg
        | libc::SYS_recvfrom
        | libc::SYS_recvmsg
        | libc::SYS_recvmmsg
        | libc::SYS_bind => true,
        libc::SYS_getsockopt => {
            let option = [call.arguments[1], call.arguments[2]];
            option.map(|word| i32::from_ne_bytes(low_half(word)))
                == [libc::SOL_SOCKET, libc::SO_ERROR]
        }
        _ => false,
    }
}

/// Names what a call sends; `None`: nothing, or it cannot be read.
fn sent(call: &Call, number: i64) -> Option<u64> {
    if !message::sends(number) {
        return None;
    }
    let place = MessageLayout::of(call, number, 0).ok()?;
    let mut hasher = DefaultHasher::new();
    place.len().hash(&mut hasher);
    payload(call, &place, PAYLOAD_BYTES_MAX)?.hash(&mut hasher);
    Some(hasher.finish())
}

/// What a call has received; of one that throws bytes away (MSG_TRUNC of tcp(7)), and of one that takes several messages, nothing.
fn received(call: &Call, number: i64, value: Result<i64, Errno>) -> Vec<u8> {
    let takes_one = matches!(number, libc::SYS_recvfrom | libc::SYS_recvmsg);
    let len = value.ok().and_then(|len| usize::try_from(len).ok());
    let Some(len) = len.filter(|_| takes_one) else {
        return Vec::new();
    };
    if message::flags(call, number) & libc::MSG_TRUNC != 0 {
        return Vec::new();
    }
    let place = MessageLayout::of(call, number, 0).ok();
    place
        .and_then(|place| payload(call, &place, len.min(PAYLOAD_BYTES_MAX)))
        .unwrap_or_default()
}

/// The first bytes of a payload, from all its pieces.
fn payload(call: &Call, place: &MessageLayout, max: usize) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    while bytes.len() < max.min(place.len()) {
        let piece = place.read_piece(call.caller, bytes.len(), max - bytes.len());
        let piece = piece.ok().filter(|piece| !piece.is_empty())?;
        bytes.extend(piece);
    }
    Some(bytes)
}

fn told(call: &Call, number: i64) -> Option<(u64, Vec<u8>)> {
    let (at, len) = match number {
        libc::SYS_recvmsg => (call.arguments[1], HEADER_BYTES),
        libc::SYS_recvfrom => (call.arguments[5], 4),
        _ => return None,
    };
    let bytes = (at != 0)
        .then(|| call.caller.read(at, len).ok())
        .flatten()?;
    Some((at, bytes))
}

impl Supervisor {
    /// Answers a call. ENOENT: a signal has taken it back, or does; it comes again, or not.
    pub fn tell(
        &mut self,
        id: u64,
        caller: Caller,
        answer: Option<Result<i64, Errno>>,
    ) -> Result<(), Errno> {
        let listener = self.listener.as_fd();
        let left = self.unheard.looks_left(caller);
        if *left > 0 && is_leaving(listener, id, caller) {
            *left = u32::MAX;
            return Err(Errno::NOENT);
        }
        let told = sys::answer(listener, id, answer);
        *left = match told {
            Err(_) => u32::MAX,
            Ok(()) if *left == u32::MAX => u32::MAX,
            Ok(()) => left.saturating_sub(1),
        };
        told
    }

    /// Answers a call that has waited, which gets the answer later where a signal has taken it back.
    pub fn reply_blocked(&mut self, blocked: &Blocked, answer: Option<Result<i64, Errno>>) {
        let told = self.tell(blocked.call.id, blocked.call.caller, answer);
        if let (Err(_), Some(answer)) = (told, answer) {
            self.unheard.keep(&blocked.call, blocked.number, answer);
        }
    }

    /// The answer for a call that waited on a socket until a signal took it back; `None`: it has done nothing, or there is none.
    pub fn lapsed(&mut self, call: &Call, number: i64, key: u64) -> Option<Result<i64, Errno>> {
        let blocked = match self.served.get_mut(&key)? {
            Served::Relay(relay) => &mut relay.blocked,
            Served::Datagrams(datagrams) => &mut datagrams.blocked,
            Served::Queue(_) => return None,
        };
        // A thread that calls waits in no other call.
        let at = blocked
            .iter()
            .position(|one| one.call.caller == call.caller)?;
        let lapsed = blocked.remove(at);
        self.unheard.lapse(&lapsed);
        self.unheard.take(call, number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fd::{AsRawFd as _, OwnedFd};
    use rustix::net::{AddressFamily, SocketType};

    fn call(arguments: [u64; 6]) -> Call {
        let tid = rustix::thread::gettid().as_raw_nonzero().get();
        Call {
            id: 1,
            caller: Caller {
                tid: tid.cast_unsigned(),
            },
            fd: i32::try_from(arguments[0]).unwrap(),
            arguments,
        }
    }

    fn socket() -> OwnedFd {
        rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None).unwrap()
    }

    fn number(socket: &OwnedFd) -> u64 {
        u64::try_from(socket.as_raw_fd()).unwrap()
    }

    fn address<T>(of: &T) -> u64 {
        u64::try_from(std::ptr::from_ref(of).addr()).unwrap()
    }

    #[test]
    fn a_send_that_comes_again_is_told_what_it_was_to_be_told_once() {
        let socket = socket();
        let message = std::cell::Cell::new(*b"one");
        let again = call([number(&socket), address(&message), 3, 0, 0, 0]);
        let mut unheard = Unheard::default();
        unheard.keep(&again, libc::SYS_sendto, Ok(3));
        assert_eq!(unheard.take(&again, libc::SYS_recvfrom), None);
        assert_eq!(unheard.take(&again, libc::SYS_sendto), Some(Ok(3)));
        assert_eq!(unheard.take(&again, libc::SYS_sendto), None);
        unheard.keep(&again, libc::SYS_sendto, Ok(3));
        message.set(*b"two");
        let other = unheard.take(&again, libc::SYS_sendto);
        assert_eq!(other, None, "another message at the same place");
    }

    #[test]
    fn a_connect_is_doubted_by_the_next_call_of_a_thread_that_signals_interrupt() {
        let mut unheard = Unheard::default();
        unheard.doubt_connect(7, 3);
        assert_eq!(unheard.take_doubted(7), None, "no signal has come");
        unheard.looks.insert(7, u32::MAX);
        unheard.doubt_connect(7, 3);
        assert_eq!(unheard.take_doubted(8), None);
        assert_eq!(unheard.take_doubted(7), Some(3));
        assert_eq!(unheard.take_doubted(7), None, "another call was made");
    }

    #[test]
    fn what_a_receiving_call_left_beside_the_payload_is_put_there_again() {
        let socket = socket();
        let len = std::cell::Cell::new(16_u32);
        let again = call([number(&socket), 0, 0, 0, 0, address(&len)]);
        let mut unheard = Unheard::default();
        unheard.keep(&again, libc::SYS_recvfrom, Ok(7));
        len.set(128);
        assert_eq!(unheard.take(&again, libc::SYS_recvfrom), Some(Ok(7)));
        assert_eq!(len.get(), 16);
    }

    #[test]
    fn what_did_nothing_is_done_when_it_comes_again() {
        let socket = socket();
        let mut unheard = Unheard::default();
        let again = call([number(&socket), 0, 0, 0, 0, 0]);
        unheard.keep(&again, libc::SYS_recvfrom, Err(Errno::AGAIN));
        assert_eq!(unheard.take(&again, libc::SYS_recvfrom), None);
        unheard.keep(&again, libc::SYS_setsockopt, Ok(0));
        assert_eq!(unheard.take(&again, libc::SYS_setsockopt), None);
        let blocked = Blocked {
            call: again,
            number: libc::SYS_recvfrom,
            done: 0,
            partial: 0,
            deadline: None,
        };
        unheard.lapse(&blocked);
        assert_eq!(unheard.take(&again, libc::SYS_recvfrom), None);
        unheard.lapse(&Blocked { done: 9, ..blocked });
        assert_eq!(unheard.take(&again, libc::SYS_recvfrom), Some(Ok(9)));
    }

    #[test]
    fn another_socket_of_the_same_number_is_told_nothing() {
        let message = std::cell::Cell::new(*b"ping");
        let mut first = socket();
        let again = call([number(&first), address(&message), 4, 0, 0, 0]);
        let mut unheard = Unheard::default();
        unheard.keep(&again, libc::SYS_sendto, Ok(4));
        rustix::io::dup2(socket(), &mut first).unwrap();
        assert_eq!(unheard.take(&again, libc::SYS_sendto), None);
    }

    #[test]
    fn all_pieces_of_a_message_are_compared_and_what_was_received_is_put_there_again() {
        let socket = socket();
        let pieces = [
            std::cell::Cell::new(*b"head"),
            std::cell::Cell::new(*b"body"),
        ];
        let listed = [address(&pieces[0]), 4, address(&pieces[1]), 4];
        let header = std::cell::Cell::new([0, 0, address(&listed), 2, 0, 0, 0]);
        let again = call([number(&socket), address(&header), 0, 0, 0, 0]);
        let mut unheard = Unheard::default();
        unheard.keep(&again, libc::SYS_sendmsg, Ok(8));
        pieces[1].set(*b"next");
        assert_eq!(unheard.take(&again, libc::SYS_sendmsg), None);
        unheard.keep(&again, libc::SYS_recvmsg, Ok(6));
        pieces[0].set(*b"else");
        pieces[1].set(*b"0123");
        assert_eq!(unheard.take(&again, libc::SYS_recvmsg), Some(Ok(6)));
        assert_eq!((pieces[0].get(), pieces[1].get()), (*b"head", *b"ne23"));
    }
}
