//! ECN in the handshake: what is asked for, and what is granted.

use super::{Agreed, EcnMode, FIRST_PACKETS, ace, handshake_code, set_ace};
use crate::{congestion::Algorithm, connection::Connection};
use wire::{ecn::Ecn, tcp::Header};

impl Connection {
    /// Our SYN: what it asks for. One that had to be sent again asks for nothing, in case a middlebox
    /// drops what asks (RFC 3168 §6.1.1.1, RFC 9768 §3.1.4).
    pub(crate) fn ask_for_ecn(&mut self, header: &mut Header) {
        let mode = self.options.ecn;
        let accurate = mode == EcnMode::RequestAccurate;
        let wants = accurate
            || matches!(mode, EcnMode::Request | EcnMode::RequestAcceptAccurate)
            // RFC 8257 needs ECN: the algorithm asks for it.
            || (self.options.congestion == Algorithm::Dctcp && mode != EcnMode::Off);
        self.ecn.asked = wants && !self.timers.syn_retransmitted;
        if self.ecn.asked {
            set_ace(header, if accurate { 0b111 } else { 0b011 });
        }
    }

    /// The peer's SYN asks.
    pub(crate) fn grant_ecn(&mut self, syn: &Header) {
        let mode = self.options.ecn;
        match ace(syn) {
            _ if mode == EcnMode::Off => {}
            0 => {}
            0b011 => self.ecn.agreed = Agreed::Classic,
            // RFC 9768 §3.1.3: whatever else comes asks for accurate ECN or its successors.
            _ if mode.grants_accurate() => self.ecn.start_accurate(),
            0b111 => self.ecn.agreed = Agreed::Classic,
            _ => {}
        }
    }

    /// Our SYN-ACK: what we grant.
    pub(crate) fn tell_ecn(&self, header: &mut Header) {
        match self.ecn.agreed {
            Agreed::None => {}
            Agreed::Classic => set_ace(header, 0b001),
            Agreed::Accurate => set_ace(header, handshake_code(self.ecn.handshake_mark)),
        }
    }

    /// The peer's SYN-ACK, which came with `mark`: what it grants.
    pub(crate) fn take_granted_ecn(&mut self, syn_ack: &Header) {
        if !core::mem::take(&mut self.ecn.asked) {
            return;
        }
        let accurate = self.options.ecn == EcnMode::RequestAccurate;
        match ace(syn_ack) {
            // RFC 9768 §3.1.2 table 2: no ECN, or our own bits reflected.
            0 | 0b111 => {}
            // RFC 3168 only; or a nonce, which was never used.
            0b001 | 0b101 => self.ecn.agreed = Agreed::Classic,
            0b010 | 0b011 | 0b100 | 0b110 if accurate => {
                self.ecn.start_accurate();
                self.ecn.handshake_owed = true;
                if self.ecn.handshake_mark == Ecn::Ce as u8 {
                    self.ecn.received_packets += 1;
                }
            }
            _ => {}
        }
    }

    /// The codepoint that a SYN or SYN-ACK came with, before it is answered.
    pub fn note_handshake_mark(&mut self, mark: Ecn) {
        self.ecn.handshake_mark = mark as u8;
    }

    /// The first ACK of a passive open tells what became of our SYN-ACK (RFC 9768 §3.2.2.1 table 4).
    pub(crate) fn take_handshake_ace(&mut self, header: &Header) {
        if self.ecn.agreed != Agreed::Accurate {
            return;
        }
        match ace(header) {
            0 => self.ecn.no_ect = true,
            0b110 => self.ecn.sent_packets = FIRST_PACKETS + 1,
            _ => {}
        }
    }
}
