//! Signals for events of sockets: SIGIO, or what the program has named with F_SETSIG, and SIGURG. See fcntl(2), socket(7)
//! and, for when Linux sends which, `sock_wake_async` and its callers.
//!
//! The engine sends no signal. A socket for which a program wants some has a pair of Unix sockets here, and the program
//! says on one end of it who is to hear what, as it has said on its own descriptor. What happens to the
//! socket the engine makes happen on that end, and the kernel does the rest, with the rights of the
//! program: docs/decisions/0044-signals-by-a-pair.md.

use super::Sockets;
use super::rows::{Marks, SocketRow};
use crate::programs::Refusal;
use crate::programs::users::{ProgramFd, User};
use core::sync::atomic::{AtomicU32, Ordering};
use hostif::{Flags, HeaderPlace, SocketId, host_hooks};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, send, socketpair, sockopt,
};
use std::sync::Arc;

/// Pairs of one core at most: two descriptors each.
const PAIRS_MAX: usize = 4_096;
/// A piece of what fills the program's end. Linux grants the smallest buffer a few thousand bytes.
const PIECE: [u8; 2_048] = [0; 2_048];
/// Pieces and messages that are moved at most; whoever keeps the end may have given it a large buffer.
const PIECES_MAX: usize = 16;

/// What has happened to a socket since its program was signalled last.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct News {
    urgent: bool,
    input: bool,
    room: bool,
    end: bool,
}

/// What the program was signalled of.
#[derive(Clone, Copy, Debug)]
struct Seen {
    rx_events: u32,
    tx_events: u32,
    flags: Flags,
    has_urgent: bool,
}

/// The two ends of a pair. The program's is closed first: nobody hears of that.
struct Ends {
    program_end: ProgramFd,
    engine_end: OwnedFd,
    /// How many polls with news have been told of, and where the socket's holders read it.
    told: AtomicU32,
    header: Option<(HeaderPlace, SocketId)>,
}

/// The pair of a socket.
pub(crate) struct Pair {
    ends: Arc<Ends>,
    seen: Seen,
    /// Polls in which something was published.
    due: u32,
    /// This poll is one of them.
    is_due: bool,
    /// A thread waited for data before something was published in this poll: no signal is to be sent for it.
    is_awaited: bool,
    /// Pairs are counted by it.
    _counted: Arc<()>,
}

impl Pair {
    fn new(
        record: &SocketRow,
        user: &Arc<User>,
        counted: Arc<()>,
        header: Option<(HeaderPlace, SocketId)>,
    ) -> Result<Self, Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let pair = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        let (engine_end, program_end) = (
            host_hooks::relocate_fd(pair.0),
            host_hooks::relocate_fd(pair.1),
        );
        sockopt::set_socket_send_buffer_size(&program_end, 1)?;
        Ok(Self {
            ends: Arc::new(Ends {
                program_end: user.keep(program_end),
                engine_end,
                told: AtomicU32::new(0),
                header,
            }),
            due: 0,
            is_due: false,
            is_awaited: false,
            _counted: counted,
            seen: Seen {
                rx_events: record.rx_events,
                tx_events: record.tx_events,
                flags: Flags::from_bits_truncate(record.published),
                has_urgent: false,
            },
        })
    }

    /// What is new, which is seen from now on. `is_awaited`: a thread waits for data and needs no signal.
    fn take_news(&mut self, record: &SocketRow, is_awaited: bool) -> News {
        let flags = Flags::from_bits_truncate(record.published);
        let before = core::mem::replace(
            &mut self.seen,
            Seen {
                rx_events: record.rx_events,
                tx_events: record.tx_events,
                flags,
                has_urgent: false,
            },
        );
        let is_over = flags.contains(Flags::CLOSED);
        // Of the last acknowledgement nobody is told: the peer's end was the news.
        let new = flags.difference(before.flags);
        let end = is_over && new.intersects(Flags::FIN | Flags::ERROR);
        News {
            urgent: before.has_urgent,
            input: !is_over && !is_awaited && before.rx_events != record.rx_events,
            room: !flags.intersects(Flags::CLOSED | Flags::FIN_DONE)
                && before.tx_events != record.tx_events,
            end,
        }
    }

    /// Makes it happen on the program's end, on its user's thread: a program that reads there keeps others waiting.
    fn tell(&self, news: News) {
        let due = self.due;
        let is_up_to_date = due.wrapping_sub(self.ends.told.load(Ordering::Acquire)) <= 1;
        if news == News::default() && is_up_to_date {
            return self.ends.note_told(due);
        }
        let ends = Arc::clone(&self.ends);
        let user = Arc::clone(ends.program_end.user());
        user.run(move || {
            ends.tell(news);
            ends.note_told(due);
        });
    }
}

impl Ends {
    /// A thread that waits for its signals goes on.
    fn note_told(&self, due: u32) {
        self.told.store(due, Ordering::Release);
        if let Some((place, id)) = &self.header
            && place.header().is_of(*id)
        {
            place.header().engine_set_signals_sent(due);
        }
    }

    /// What cannot be done is the affair of whoever keeps the program's end.
    fn tell(&self, news: News) {
        let quiet = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        if news.urgent {
            let _ = send(&self.engine_end, b"!", quiet | SendFlags::OOB);
            let _ = rustix::net::recv(
                &*self.program_end,
                &mut [0; 1],
                RecvFlags::DONTWAIT | RecvFlags::OOB,
            );
        }
        // An urgent byte is input too.
        if news.input && !news.urgent {
            let _ = send(&self.engine_end, b".", quiet);
            drain(&self.program_end);
        }
        if news.room {
            // There is free space again where there was none.
            let is_full = || send(&*self.program_end, &PIECE, quiet).is_err();
            let _ = (0..PIECES_MAX).any(|_| is_full());
            drain(&self.engine_end);
        }
        if news.end {
            let _ = rustix::net::shutdown(&self.engine_end, rustix::net::Shutdown::Both);
        }
    }
}

fn drain(end: &OwnedFd) {
    let mut bytes = [0; 2 * PIECE.len()];
    for _ in 0..PIECES_MAX {
        if !matches!(
            rustix::net::recv(end, &mut bytes, RecvFlags::DONTWAIT),
            Ok((1.., _))
        ) {
            return;
        }
    }
}

impl Sockets {
    /// An urgent byte was announced: it overtakes moderation, and SIGURG needs no O_ASYNC.
    pub(crate) fn note_urgent(&mut self, row: u32) {
        let companion = self.companion(row);
        companion.is_urgent = true;
        if let Some(pair) = &mut companion.signals {
            pair.seen.has_urgent = true;
        }
    }

    /// The end of a socket's pair on which one of its holders, of that user, says what it wants to hear.
    ///
    /// # Errors
    /// Too many sockets have pairs, or the system refuses; what the program is told.
    pub(crate) fn signals_of(&mut self, row: u32, user: &Arc<User>) -> Result<OwnedFd, Refusal> {
        let system = |errno| (errno, "cannot make a pair of sockets".to_owned());
        if self.companion(row).signals.is_none() {
            let counted = Arc::clone(&self.pairs);
            if Arc::strong_count(&counted) > PAIRS_MAX + 1 {
                return Err((Errno::NFILE, "too many sockets have signals".to_owned()));
            }
            let place = self.companion(row).place.clone();
            let header = place.zip(self.id(row));
            let pair = Pair::new(self.row(row), user, counted, header).map_err(system)?;
            self.companion(row).signals = Some(Box::new(pair));
            self.forget_signals(row);
        }
        let pair = self.companion(row).signals.as_ref();
        let pair = pair.ok_or((Errno::BADF, String::new()))?;
        rustix::io::fcntl_dupfd_cloexec(&*pair.ends.program_end, 0).map_err(system)
    }

    /// Of a socket that has no pair, or a new one, nothing is due.
    pub(crate) fn forget_signals(&self, row: u32) {
        self.with_header(row, |header| {
            header.engine_set_signals_due(0);
            header.engine_set_signals_sent(0);
        });
    }

    /// Something is about to be published of a socket. Its holders may see it before they are signalled at the end of the
    /// poll: those who take it wait for that.
    #[inline]
    pub(crate) fn expect_signal(&mut self, row: u32) {
        if self.companion(row).signals.is_some() {
            self.count_signal(row);
        }
    }

    #[cold]
    fn count_signal(&mut self, row: u32) {
        let is_awaited = self.with_header(row, |header| {
            header.marks() & hostif::header::AWAITS_DATA != 0
        });
        let Some(pair) = &mut self.companion(row).signals else {
            return;
        };
        pair.is_awaited = is_awaited == Some(true) && (pair.is_awaited || !pair.is_due);
        if core::mem::replace(&mut pair.is_due, true) {
            return;
        }
        pair.due = pair.due.wrapping_add(1);
        let due = pair.due;
        self.with_header(row, |header| header.engine_set_signals_due(due));
        self.signalled.push(row);
    }

    /// Has the program signalled of what has happened to a socket, if it wants to be.
    pub(crate) fn signal(&mut self, row: u32) {
        let record = *self.row(row);
        let companion = self.companion(row);
        // Of what its last holder has closed nobody hears.
        if companion.holders.is_empty() && !record.has(Marks::ORPHAN) {
            companion.signals = None;
        }
        if let Some(pair) = &mut companion.signals
            && core::mem::take(&mut pair.is_due)
        {
            let is_awaited = pair.is_awaited;
            let news = pair.take_news(&record, is_awaited);
            pair.tell(news);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::FromZeros as _;

    fn record(rx_events: u32, tx_events: u32, flags: Flags) -> SocketRow {
        SocketRow {
            rx_events,
            tx_events,
            published: flags.bits(),
            ..SocketRow::new_zeroed()
        }
    }

    #[test]
    fn each_event_is_news_once() {
        let stands = Flags::CONNECTED;
        let mut pair = Pair::new(
            &record(3, 3, stands),
            &crate::harness::user(),
            Arc::default(),
            None,
        )
        .unwrap();
        let mut news = |rx, tx, flags| pair.take_news(&record(rx, tx, flags), false);
        let nothing = News::default();
        let input = News {
            input: true,
            ..nothing
        };
        let room = News {
            room: true,
            ..nothing
        };
        assert_eq!(news(3, 3, stands), nothing);
        assert_eq!(news(4, 3, stands), input);
        assert_eq!(news(4, 4, stands), room);
        assert_eq!(news(5, 4, stands | Flags::FIN), input, "the peer's end");
        let over = stands | Flags::FIN | Flags::FIN_DONE | Flags::CLOSED;
        assert_eq!(news(6, 5, over), nothing, "our end is acknowledged");
    }

    #[test]
    fn a_turn_is_told_of_when_the_users_thread_has_spoken_and_none_overtakes_another() {
        let users = crate::programs::users::Users::with_threads(100);
        let user = users.user(1_000).unwrap();
        let (go, held) = std::sync::mpsc::channel::<()>();
        let mut pair = Pair::new(&record(0, 0, Flags::CONNECTED), &user, Arc::default(), None);
        let pair = pair.as_mut().unwrap();
        user.run(move || assert!(held.recv().is_err()));
        let input = News {
            input: true,
            ..News::default()
        };
        let told = |pair: &Pair| pair.ends.told.load(Ordering::Acquire);
        pair.due = 1;
        pair.tell(input);
        assert_eq!(told(pair), 0, "the thread waits");
        pair.due = 2;
        pair.tell(News::default());
        assert_eq!(told(pair), 0, "what came before was not told");
        drop(go);
        let (done, all) = std::sync::mpsc::channel();
        user.run(move || done.send(()).unwrap());
        all.recv().unwrap();
        assert_eq!(told(pair), 2);
        pair.due = 3;
        pair.tell(News::default());
        assert_eq!(told(pair), 3, "nobody has to be told of it");
    }

    #[test]
    fn an_error_is_an_end_whoever_waits_and_data_is_not_told_to_who_waits_for_it() {
        let stands = Flags::CONNECTED;
        let mut pair = Pair::new(
            &record(0, 0, stands),
            &crate::harness::user(),
            Arc::default(),
            None,
        )
        .unwrap();
        assert_eq!(pair.take_news(&record(1, 0, stands), true), News::default());
        pair.seen.has_urgent = true;
        let news = pair.take_news(&record(1, 0, stands), true);
        assert!(news.urgent && !news.input);
        let failed = stands | Flags::ERROR | Flags::CLOSED;
        let news = pair.take_news(&record(2, 1, failed), true);
        assert!(news.end && !news.input && !news.room && !news.urgent);
    }
}
