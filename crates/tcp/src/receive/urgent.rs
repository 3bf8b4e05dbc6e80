//! The urgent pointer (RFC 9293 §3.8.5, RFC 6093). The urgent byte stays in the stream; whether a
//! program sees it out of band is decided at the socket.

use crate::{connection::Connection, events::Events, receive::Arrival};
use wire::tcp::Header;

impl Connection {
    /// RFC 9293 §3.10.7.4 sixth check; the pointer names the byte after the urgent one (RFC 6093 §3).
    pub(crate) fn handle_urgent(&mut self, header: &Header, arrival: &Arrival) -> Events {
        let end = arrival.seq + u64::from(header.urgent);
        if header.urgent == 0
            || end <= self.rcv.urgent
            || end <= self.rcv.consumed
            || !self.state.can_receive()
        {
            return Events::empty();
        }
        self.rcv.urgent = end;
        Events::URGENT
    }

    /// The urgent field of a segment that begins at `seq`, if urgent data lies ahead of it.
    pub(crate) fn urgent_field(&self, seq: u64) -> Option<u16> {
        let ahead = self
            .snd
            .urgent
            .checked_sub(seq)
            .filter(|&ahead| ahead > 0)?;
        Some(u16::try_from(ahead).unwrap_or(u16::MAX))
    }
}
