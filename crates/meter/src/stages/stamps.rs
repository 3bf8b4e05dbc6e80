//! The kernel's stamps of one connection, noted beside the marks of its program. See `Documentation/networking/timestamping.rst` of the kernel.

use std::{io, os::fd::BorrowedFd};

use hostif::stages::{self, Mark, mark_at};

use crate::{
    error_queue::ExtendedError,
    sys::{self, ControlMessage},
};

/// Stamps that are taken at once; a message has three.
const TAKEN_MAX: usize = 16;
/// linux/net_tstamp.h: SOF_TIMESTAMPING_TX_SOFTWARE, RX_SOFTWARE, SOFTWARE, OPT_ID, TX_SCHED, TX_ACK, OPT_TSONLY.
const WANTED: libc::c_int = 1 << 1 | 1 << 3 | 1 << 4 | 1 << 7 | 1 << 8 | 1 << 9 | 1 << 11;
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
    /// What a stamp of the error queue is of.
    mark: Option<Mark>,
}

impl Stamp {
    fn note(&mut self, message: &ControlMessage<'_>) {
        if message.of == (libc::SOL_SOCKET, libc::SCM_TIMESTAMPING) {
            // The first of three `struct timespec` is the software's.
            let numbers = message.data.as_chunks::<8>().0;
            let number = |at: usize| numbers.get(at).map(|bytes| u64::from_ne_bytes(*bytes));
            let seconds = number(0).and_then(|seconds| seconds.checked_mul(1_000_000_000));
            let real_ns = seconds
                .zip(number(1))
                .and_then(|(whole, rest)| whole.checked_add(rest));
            self.real_ns = real_ns.filter(|ns| *ns > 0);
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
#[derive(Debug, Clone, Copy)]
pub struct KernelStamps(());

impl KernelStamps {
    /// Asks for the stamps of a connection, where this process notes stages and its sockets are the kernel's.
    ///
    /// # Errors
    /// The kernel has no such stamps.
    pub fn begin(socket: BorrowedFd<'_>) -> io::Result<Option<Self>> {
        if !stages::is_on() || std::env::var_os("LD_PRELOAD").is_some() {
            return Ok(None);
        }
        sys::set(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, WANTED)?;
        Ok(Some(Self(())))
    }

    /// Receives, and notes when it had come to this host.
    pub fn receive(
        self,
        socket: BorrowedFd<'_>,
        buffer: &mut [u8],
        flags: libc::c_int,
    ) -> io::Result<usize> {
        let (count, stamp) = receive(socket, buffer, flags)?;
        mark_at(Mark::Arrived, stamp.real_ns);
        Ok(count)
    }

    /// Notes what is told of messages that were sent.
    pub fn take_sent(self, socket: BorrowedFd<'_>) {
        for _ in 0..TAKEN_MAX {
            let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
            let Ok((_, stamp)) = receive(socket, &mut [], flags) else {
                return;
            };
            if let Some(mark) = stamp.mark {
                mark_at(mark, stamp.real_ns);
            }
        }
    }
}
