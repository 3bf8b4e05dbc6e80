//! The sender's side of ECN: marks on what is sent, and the reaction to the peer's echo.

use super::{ACE, Agreed, COUNTER, ace};
use crate::{congestion::CongestionEvent, connection::Connection, state::State};
use wire::{
    ecn::Ecn,
    tcp::{Flags, Header},
};

impl Connection {
    /// The codepoint for data that is sent for the first time.
    pub(crate) fn data_mark(&self) -> Ecn {
        if self.ecn.agreed == Agreed::None || self.ecn.no_ect {
            Ecn::NotEct
        } else {
            Ecn::Ect0
        }
    }

    /// Whether the next data must be one packet: a device that cuts a large segment keeps CWR in its
    /// first piece only, which RFC 3168 §6.1.2 wants, but neither with a bare ACK nor in ACE.
    pub(crate) fn must_send_singly(&self) -> bool {
        match self.ecn.agreed {
            Agreed::None => false,
            Agreed::Classic => self.ecn.cwr_owed,
            Agreed::Accurate => self.ecn.received_packets & 2 != 0,
        }
    }

    /// New data leaves: it says CWR if that is owed (RFC 3168 §6.1.2).
    pub(crate) fn tell_reduced(&mut self, header: &mut Header) {
        if self.ecn.agreed == Agreed::Classic && core::mem::take(&mut self.ecn.cwr_owed) {
            header.flags |= Flags::CWR;
        }
    }

    /// Bytes of `delivered` that were marked, by what an ACK says.
    pub(crate) fn marked_bytes(&mut self, header: &Header, delivered: u32) -> u32 {
        match self.ecn.agreed {
            Agreed::None => 0,
            Agreed::Classic if header.flags.contains(Flags::ECE) => delivered,
            Agreed::Classic => 0,
            Agreed::Accurate => self.accurately_marked(header, delivered),
        }
    }

    /// RFC 9768 §3.2.2.5 and appendix A.2: the option where there is one, otherwise ACE.
    fn accurately_marked(&mut self, header: &Header, delivered: u32) -> u32 {
        let mss = u32::from(self.snd.segment_payload.max(1));
        let ecn = &mut self.ecn;
        let mut packets = u32::from(ace(header)).wrapping_sub(ecn.sent_packets) % ACE;
        let options = header.options.accurate_ecn;
        if let Some(ce) = options.and_then(|counters| counters.ce) {
            ecn.peer_option = true;
            let bytes = ce.wrapping_sub(ecn.sent_ce) & COUNTER;
            ecn.sent_packets = ecn.sent_packets.wrapping_add(packets);
            // The upper half is a step back: an old ACK, or bytes that ACE has told already.
            if bytes > COUNTER / 2 {
                return 0;
            }
            ecn.sent_ce = ce;
            return if bytes == 0 && delivered == 0 {
                0
            } else {
                bytes.min(delivered.max(mss))
            };
        }
        let newly_acked = delivered.div_ceil(mss);
        if !ecn.peer_option && newly_acked >= ACE {
            // Nothing but three bits, and they may have gone round: assume the worst that fits.
            packets = newly_acked - (newly_acked - packets) % ACE;
        }
        ecn.sent_packets = ecn.sent_packets.wrapping_add(packets);
        let bytes = (packets * mss).min(delivered.max(mss));
        if packets == 0 {
            return 0;
        }
        ecn.sent_ce = (ecn.sent_ce + bytes) & COUNTER;
        bytes
    }

    /// Reacts to marks, at most once per window of data (RFC 3168 §6.1.2), and not to a window that loss
    /// has reduced already.
    pub(crate) fn react_to_marks(&mut self, in_recovery: bool, event: &CongestionEvent) {
        if in_recovery || self.snd.una < self.ecn.reduced_end || self.state == State::Closed {
            return;
        }
        self.ecn.reduced_end = self.snd.max;
        self.ecn.cwr_owed = self.ecn.agreed == Agreed::Classic;
        self.congestion.on_congestion_event(event);
    }

    /// Loss was found: a window that marks have reduced already is not reduced again.
    pub(crate) fn is_reduced_by_marks(&self) -> bool {
        self.snd.una < self.ecn.reduced_end
    }
}
