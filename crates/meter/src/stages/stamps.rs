//! The kernel's stamps of one connection, noted beside the marks of its program. See `Documentation/networking/timestamping.rst` of the kernel.

use std::{io, os::fd::BorrowedFd};

use hostif::stages::{self, Mark, mark_at};

use crate::{
    error_queue::ExtendedError,
    stages::card::Card,
    sys::{self, ControlMessage},
};

/// Stamps that are taken at once; a message has three.
const TAKEN_MAX: usize = 16;
/// linux/net_tstamp.h: SOF_TIMESTAMPING_RX_SOFTWARE, SOFTWARE, OPT_ID, TX_SCHED, TX_ACK, OPT_TSONLY.
const WANTED: libc::c_int = 1 << 3 | 1 << 4 | 1 << 7 | 1 << 8 | 1 << 9 | 1 << 11;
/// Who says when a message leaves: the kernel (TX_SOFTWARE), or the card (TX_HARDWARE, RAW_HARDWARE).
const LEFT_BY_KERNEL: libc::c_int = 1 << 1;
const LEFT_BY_CARD: libc::c_int = 1 << 0 | 1 << 6;
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
    /// When by the clock of the card.
    card_ns: Option<u64>,
    /// What a stamp of the error queue is of.
    mark: Option<Mark>,
}

impl Stamp {
    fn note(&mut self, message: &ControlMessage<'_>) {
        if message.of == (libc::SOL_SOCKET, libc::SCM_TIMESTAMPING) {
            // Of three `struct timespec` the first is the software's, the last the card's.
            self.real_ns = time(message.data, 0);
            self.card_ns = time(message.data, 2);
        } else if let Some(error) = ExtendedError::of(message)
            && error.origin == ORIGIN_TIMESTAMPING
        {
            let of = KINDS.iter().find(|(number, _)| *number == error.info);
            self.mark = of.map(|(_, mark)| *mark);
        }
    }
}

/// One of several `struct timespec`, in nanoseconds; all zeros are none.
fn time(data: &[u8], index: usize) -> Option<u64> {
    let numbers = data.as_chunks::<8>().0;
    let number = |at: usize| numbers.get(at).map(|bytes| u64::from_ne_bytes(*bytes));
    let whole = number(2 * index)?.checked_mul(1_000_000_000)?;
    let ns = whole.checked_add(number(2 * index + 1)?)?;
    (ns > 0).then_some(ns)
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
    /// Says when messages leave, where there is one that stamps them.
    card: Option<Card>,
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
        let card = sys::ends(socket).and_then(|[own, peer]| Card::between(own, peer));
        let left = match card {
            Some(_) => LEFT_BY_CARD,
            None => LEFT_BY_KERNEL,
        };
        sys::set(
            socket,
            libc::SOL_SOCKET,
            libc::SO_TIMESTAMPING,
            WANTED | left,
        )?;
        Ok(Some(Self { card }))
    }

    /// Before a message is sent, or its stamps are taken: the clock of the card is read.
    pub fn look(&mut self) {
        if let Some(card) = &mut self.card {
            card.look();
        }
    }

    /// Receives, and notes when it had come to this host.
    pub fn receive(
        &self,
        socket: BorrowedFd<'_>,
        buffer: &mut [u8],
        flags: libc::c_int,
    ) -> io::Result<usize> {
        let (count, stamp) = receive(socket, buffer, flags)?;
        mark_at(Mark::Arrived, stamp.real_ns);
        Ok(count)
    }

    /// Notes what is told of messages that were sent.
    pub fn take_sent(&self, socket: BorrowedFd<'_>) {
        for _ in 0..TAKEN_MAX {
            let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
            let Ok((_, stamp)) = receive(socket, &mut [], flags) else {
                return;
            };
            if let Some(mark) = stamp.mark {
                let by_card = || self.card.as_ref()?.real_ns(stamp.card_ns?);
                mark_at(mark, stamp.real_ns.or_else(by_card));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_the_kernels_or_the_cards() {
        let message = |times: [[u64; 2]; 3]| {
            let data: Vec<u8> = times
                .iter()
                .flatten()
                .flat_map(|n| n.to_ne_bytes())
                .collect();
            let mut stamp = Stamp::default();
            stamp.note(&ControlMessage {
                of: (libc::SOL_SOCKET, libc::SCM_TIMESTAMPING),
                data: &data,
            });
            (stamp.real_ns, stamp.card_ns)
        };
        let none = [0, 0];
        assert_eq!(message([[1, 5], none, none]), (Some(1_000_000_005), None));
        // A card's clock may begin with its machine.
        assert_eq!(message([none, none, [0, 7]]), (None, Some(7)));
        assert_eq!(message([none, none, none]), (None, None));
    }
}
