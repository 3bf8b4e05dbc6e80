//! The kernel's stamps of one connection, noted beside the marks of its program. See `Documentation/networking/timestamping.rst` of the kernel.

use std::{io, os::fd::BorrowedFd};

use hostif::stages::{self, Mark, mark_at};

use super::card::CardStamps;
use crate::{
    error_queue::ExtendedError,
    sys::{self, ControlMessage},
};

/// Stamps that are taken at once; a message has three.
const TAKEN_MAX: usize = 16;
/// linux/net_tstamp.h: SOF_TIMESTAMPING_TX_SOFTWARE, RX_SOFTWARE, SOFTWARE, OPT_ID, TX_SCHED, TX_ACK, OPT_TSONLY.
const WANTED: libc::c_int = 1 << 1 | 1 << 3 | 1 << 4 | 1 << 7 | 1 << 8 | 1 << 9 | 1 << 11;
/// SOF_TIMESTAMPING_TX_HARDWARE, RX_HARDWARE, RAW_HARDWARE: the kernel's stamp of a frame that leaves is not told then.
const WANTED_OF_CARD: libc::c_int = 1 << 0 | 1 << 2 | 1 << 6;
/// linux/errqueue.h: SO_EE_ORIGIN_TIMESTAMPING, and of what kind the stamp is.
const ORIGIN_TIMESTAMPING: u8 = 4;
const KINDS: [(u32, Mark); 3] = [
    (0, Mark::Left),
    (1, Mark::Transmit),
    (2, Mark::Acknowledged),
];

/// What the control messages of a call say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Stamp {
    /// When, in nanoseconds since 1970.
    real_ns: Option<u64>,
    /// When, by the card's clock.
    card_ns: Option<u64>,
    /// What a stamp of the error queue is of.
    mark: Option<Mark>,
}

impl Stamp {
    fn note(&mut self, message: &ControlMessage<'_>) {
        if message.of == (libc::SOL_SOCKET, libc::SCM_TIMESTAMPING) {
            // The first of three `struct timespec` is the software's, the last one the card's.
            let numbers = message.data.as_chunks::<8>().0;
            let number = |at: usize| numbers.get(at).map(|bytes| u64::from_ne_bytes(*bytes));
            let time = |at: usize| {
                let seconds = number(2 * at)?.checked_mul(1_000_000_000)?;
                let whole = seconds.checked_add(number(2 * at + 1)?)?;
                (whole > 0).then_some(whole)
            };
            (self.real_ns, self.card_ns) = (time(0), time(2));
        } else if let Some(error) = ExtendedError::of(message)
            && error.origin == ORIGIN_TIMESTAMPING
        {
            let of = KINDS.iter().find(|(number, _)| *number == error.info);
            self.mark = of.map(|(_, mark)| *mark);
        }
    }
}

/// Receives with flags of recvmsg(2): how much, and what is said of the time.
fn receive(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
    flags: libc::c_int,
) -> io::Result<(usize, Stamp)> {
    let mut stamp = Stamp::default();
    let count = sys::receive_message(socket, buffer, flags, |message| stamp.note(&message))?;
    Ok((count, stamp))
}

/// A connection whose stamps are noted.
#[derive(Debug)]
pub struct KernelStamps {
    card: Option<CardStamps>,
}

impl KernelStamps {
    /// Asks for the stamps of a connection, where this process notes stages and its sockets are the kernel's.
    ///
    /// # Errors
    /// The kernel has no such stamps.
    pub fn begin(socket: BorrowedFd<'_>) -> io::Result<Option<Self>> {
        if !stages::is_on() || std::env::var_os("LD_PRELOAD").is_some() {
            return Ok(None);
        }
        let card = CardStamps::of(socket);
        let wanted = WANTED | card.as_ref().map_or(0, |_| WANTED_OF_CARD);
        sys::set(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, wanted)?;
        Ok(Some(Self { card }))
    }

    /// Receives, and notes when it had come to this host.
    pub fn receive(
        &mut self,
        socket: BorrowedFd<'_>,
        buffer: &mut [u8],
        flags: libc::c_int,
    ) -> io::Result<usize> {
        let (count, stamp) = receive(socket, buffer, flags)?;
        self.note(Mark::Arrived, stamp);
        Ok(count)
    }

    /// Notes what is told of messages that were sent.
    pub fn take_sent(&mut self, socket: BorrowedFd<'_>) {
        for _ in 0..TAKEN_MAX {
            let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
            let Ok((_, stamp)) = receive(socket, &mut [], flags) else {
                return;
            };
            if let Some(mark) = stamp.mark {
                self.note(mark, stamp);
            }
        }
    }

    fn note(&mut self, mark: Mark, stamp: Stamp) {
        match &mut self.card {
            // The card has a time of its own for these two.
            Some(card) if matches!(mark, Mark::Left | Mark::Arrived) => {
                card.note(mark, stamp.real_ns, stamp.card_ns);
            }
            _ => mark_at(mark, stamp.real_ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_of_the_card_stands_beside_the_kernels() {
        let times: [u64; 6] = [1, 500, 0, 0, 7, 9];
        let data: Vec<u8> = times.into_iter().flat_map(u64::to_ne_bytes).collect();
        let read = |data: &[u8]| {
            let mut stamp = Stamp::default();
            stamp.note(&ControlMessage {
                of: (libc::SOL_SOCKET, libc::SCM_TIMESTAMPING),
                data,
            });
            (stamp.real_ns, stamp.card_ns)
        };
        assert_eq!(read(&data), (Some(1_000_000_500), Some(7_000_000_009)));
        assert_eq!(read(&data[..47]), (Some(1_000_000_500), None));
        assert_eq!(read(&[0; 48]), (None, None));
    }
}
