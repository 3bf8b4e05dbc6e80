//! The receiver's side of ECN: what arrived marked is told to the peer.

use super::{ACE, Agreed, COUNTER, FIRST_BYTES, handshake_code, set_ace};
use crate::{congestion::Algorithm, connection::Connection};
use wire::{
    ecn::Ecn,
    tcp::{AccurateEcn, Flags, Header},
};

impl Connection {
    /// An acceptable segment came with `mark` and `len` bytes.
    pub(crate) fn on_marked_arrival(&mut self, mark: Ecn, header: &Header, len: usize) {
        match self.ecn.agreed {
            Agreed::None => {}
            Agreed::Classic if self.congestion.algorithm() == Algorithm::Dctcp => {
                // RFC 8257 §3.2: the echo is that of the last packet, told at once when it changes.
                let is_marked = mark == Ecn::Ce;
                if len > 0 && is_marked != self.ecn.echo {
                    self.ecn.echo = is_marked;
                    self.rcv.ack_now = true;
                }
            }
            Agreed::Classic => {
                // RFC 3168 §6.1.3: echo until the sender says that it has reacted.
                if header.flags.contains(Flags::CWR) {
                    self.ecn.echo = false;
                }
                if mark == Ecn::Ce {
                    self.ecn.echo = true;
                }
            }
            Agreed::Accurate => self.count_arrival(mark, len),
        }
    }

    fn count_arrival(&mut self, mark: Ecn, len: usize) {
        let len = u32::try_from(len).unwrap_or(0);
        let ecn = &mut self.ecn;
        match mark {
            Ecn::NotEct => {}
            Ecn::Ect0 => ecn.received_ect0 = (ecn.received_ect0 + len) & COUNTER,
            Ecn::Ect1 => ecn.received_ect1 = (ecn.received_ect1 + len) & COUNTER,
            Ecn::Ce => {
                // A merged segment stands for as many packets as were merged.
                let packets = len.div_ceil(u32::from(self.rcv.segment_payload.max(1)));
                ecn.received_packets = ecn.received_packets.wrapping_add(packets.max(1));
                ecn.received_ce = (ecn.received_ce + len) & COUNTER;
            }
        }
    }

    /// What every segment after the handshake says.
    pub(crate) fn echo_ecn(&mut self, header: &mut Header) {
        match self.ecn.agreed {
            Agreed::None => {}
            Agreed::Classic => header.flags.set(Flags::ECE, self.ecn.echo),
            Agreed::Accurate => {
                let [low, ..] = self.ecn.received_packets.to_le_bytes();
                let code = if core::mem::take(&mut self.ecn.handshake_owed) {
                    handshake_code(self.ecn.handshake_mark)
                } else {
                    low & 7
                };
                set_ace(header, code);
            }
        }
    }

    /// The option of a bare ACK: there while marks arrive, and in the first one, so that the peer knows
    /// that options get through (RFC 9768 §3.2.3.3). Also where the ACK is for so many packets that ACE may have
    /// gone round: without it the peer would have to assume marks that there were none of (§3.2.2.5.2).
    pub(crate) fn accurate_ecn_option(&mut self) -> Option<AccurateEcn> {
        let many = ACE * u32::from(self.rcv.segment_payload);
        let ecn = &mut self.ecn;
        let news = ecn.received_ce != ecn.reported_ce
            || ecn.handshake_owed
            || self.rcv.unacknowledged >= many;
        if ecn.agreed != Agreed::Accurate || !news {
            return None;
        }
        ecn.reported_ce = ecn.received_ce;
        Some(AccurateEcn {
            ect0: Some(ecn.received_ect0),
            ce: Some(ecn.received_ce),
            ect1: (ecn.received_ect1 != FIRST_BYTES).then_some(ecn.received_ect1),
        })
    }
}
