//! Urgent data as a program sees it: one byte of the stream, outside of it unless the program
//! wants it in line (RFC 6093, `tcp_recv_urg` and `tcp_check_urg` of Linux).
//!
//! The byte stays at its place in the receive window. The engine says where the last one ends, the header
//! holds which was received out of band; everything else follows from the positions.

use core::sync::atomic::Ordering;

use rustix::io::Errno;

use crate::tcp::socket::TcpSocket;

/// The peer's last urgent byte, while the program has not read past it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UrgentByte {
    /// Its stream offset.
    pub position: u64,
    /// It has arrived and was not received out of band.
    pub is_readable: bool,
    /// It was received out of band.
    pub is_taken: bool,
}

impl TcpSocket {
    /// The urgent byte that lies ahead, if there is one.
    #[must_use]
    pub fn urgent(&self) -> Option<UrgentByte> {
        let header = self.header();
        let end = header.urgent_end();
        let position = end.checked_sub(1)?;
        let is_taken = header.urgent_taken() == end;
        (position >= header.consumed()).then(|| UrgentByte {
            position,
            is_readable: header.received_end() >= end && !is_taken,
            is_taken,
        })
    }

    /// Whether the byte at stream offset `position` is no part of what is read in line: the urgent one, or
    /// an older one that was received out of band.
    pub(crate) fn is_skipped(&self, position: u64) -> bool {
        let header = self.header();
        !self.urgent_in_line()
            && [header.urgent_end(), header.urgent_taken()].contains(&(position + 1))
    }

    /// Whether that byte was received out of band.
    pub(crate) fn is_taken(&self, position: u64) -> bool {
        self.header().urgent_taken() == position + 1
    }

    /// Whether the next byte to be read is the urgent one (SIOCATMARK).
    #[must_use]
    pub fn is_at_mark(&self) -> bool {
        self.urgent()
            .is_some_and(|byte| byte.position == self.header().consumed())
            && !self.is_byte_channel_next()
    }

    /// Whether it is, and has arrived.
    #[must_use]
    pub fn is_before_urgent(&self) -> bool {
        let header = self.header();
        self.is_at_mark() && header.received_end() >= header.urgent_end()
    }

    /// SO_OOBINLINE.
    #[must_use]
    pub fn urgent_in_line(&self) -> bool {
        self.urgent_in_line.load(Ordering::Relaxed)
    }

    /// Sets SO_OOBINLINE, for this process.
    pub fn set_urgent_in_line(&self, on: bool) {
        self.urgent_in_line.store(on, Ordering::Relaxed);
    }

    /// Receives the urgent byte out of band. EINVAL: there is none, or no more; EAGAIN: it is announced
    /// and has not arrived.
    pub fn try_recv_urgent(&self, peek: bool) -> Result<u8, Errno> {
        let byte = self
            .urgent()
            .filter(|byte| !byte.is_taken && !self.urgent_in_line())
            .ok_or(Errno::INVAL)?;
        if !byte.is_readable {
            return Err(Errno::AGAIN);
        }
        let (_, receive) = self.spans().ok_or(Errno::INVAL)?;
        let window = self.region().window(receive).ok_or(Errno::PROTO)?;
        let mut value = [0];
        let (place, _) = self.header().receive_place(byte.position, receive.size);
        window.copy_out(place, &mut value);
        if !peek {
            self.header().program_set_urgent_taken(byte.position + 1);
        }
        Ok(value[0])
    }
}
