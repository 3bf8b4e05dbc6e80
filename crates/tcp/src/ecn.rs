//! Explicit congestion notification: negotiation, what is echoed, and what an echo means for the window.
//! RFC 3168 first, then RFC 9768 (accurate ECN: how many packets and bytes were marked, not only that some
//! were), then RFC 8257 §3.2 for DCTCP's way of echoing in the old header.
//!
//! Data that is sent for the first time carries ECT(0); retransmissions, probes, bare ACKs and handshakes
//! do not (RFC 3168 §6.1.1, §6.1.4 to §6.1.6).

use crate::{
    congestion::{Algorithm, CongestionEvent},
    connection::Connection,
    state::State,
};
use wire::ecn::Ecn;
use wire::tcp::{AccurateEcn, Flags, Header};
use zerocopy::{FromZeros, Immutable, KnownLayout};

/// What to ask for and what to grant; the numbers are those of Linux's `net.ipv4.tcp_ecn`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromZeros, Immutable, KnownLayout)]
#[repr(u8)]
pub enum EcnMode {
    /// Neither.
    Off = 0,
    /// Ask for RFC 3168 and grant it.
    Request = 1,
    /// Grant RFC 3168 when asked.
    #[default]
    Accept = 2,
    /// Ask for accurate ECN and grant either.
    RequestAccurate = 3,
    /// Ask for RFC 3168 and grant either.
    RequestAcceptAccurate = 4,
    /// Grant either when asked.
    AcceptAccurate = 5,
}

impl EcnMode {
    /// The mode of that number.
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Off),
            1 => Some(Self::Request),
            2 => Some(Self::Accept),
            3 => Some(Self::RequestAccurate),
            4 => Some(Self::RequestAcceptAccurate),
            5 => Some(Self::AcceptAccurate),
            _ => None,
        }
    }

    const fn grants_accurate(self) -> bool {
        matches!(
            self,
            Self::RequestAccurate | Self::RequestAcceptAccurate | Self::AcceptAccurate
        )
    }
}

/// What both sides have agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromZeros, Immutable, KnownLayout)]
#[repr(u8)]
pub(crate) enum Agreed {
    None = 0,
    /// RFC 3168.
    Classic,
    /// RFC 9768.
    Accurate,
}

/// r.cep and s.cep begin with five (RFC 9768 §3.2.1), so that zero means a broken middlebox.
const FIRST_PACKETS: u32 = 5;
/// r.e0b and r.e1b begin with one, r.ceb with zero.
const FIRST_BYTES: u32 = 1;
const COUNTER: u32 = 0x00ff_ffff;
/// No value of a counter: no option was sent yet.
const UNREPORTED: u32 = u32::MAX;
/// Packets that the three bits of ACE can tell apart.
const ACE: u32 = 8;

/// State of ECN: both roles.
#[derive(Clone, Copy, Debug, FromZeros, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct EcnState {
    /// What is in flight up to here was sent before the last reduction (RFC 3168 §6.1.2).
    reduced_end: u64,
    /// r.cep: CE-marked packets received.
    received_packets: u32,
    /// r.e0b, r.ceb, r.e1b: payload bytes received, modulo 2^24.
    received_ect0: u32,
    received_ce: u32,
    received_ect1: u32,
    /// r.ceb when the last option was sent.
    reported_ce: u32,
    /// s.cep and s.ceb: as the peer last said.
    sent_packets: u32,
    sent_ce: u32,
    agreed: Agreed,
    /// Echo congestion until the peer says CWR; for DCTCP: the last packet was marked.
    echo: bool,
    /// The next new data says CWR.
    cwr_owed: bool,
    /// Our SYN asked for it.
    asked: bool,
    /// The codepoint of the peer's SYN or SYN-ACK.
    handshake_mark: u8,
    /// Our next segment tells `handshake_mark` (RFC 9768 §3.2.2.1).
    handshake_owed: bool,
    /// The path spoils marks: send without.
    no_ect: bool,
    /// The peer's options get through.
    peer_option: bool,
}

impl EcnState {
    /// Whether ECN is in use, and whether a packet came that could have been marked.
    pub(crate) const fn in_use(&self) -> (bool, bool) {
        let seen = self.received_ect0 > FIRST_BYTES
            || self.received_ect1 > FIRST_BYTES
            || self.received_ce > 0
            || self.received_packets > FIRST_PACKETS;
        (!matches!(self.agreed, Agreed::None), seen)
    }

    /// Whether congestion is echoed: of DCTCP whether the last packet was marked.
    pub(crate) const fn is_echoing(&self) -> bool {
        self.echo
    }

    fn start_accurate(&mut self) {
        self.agreed = Agreed::Accurate;
        self.received_packets = FIRST_PACKETS;
        self.sent_packets = FIRST_PACKETS;
        self.received_ect0 = FIRST_BYTES;
        self.received_ect1 = FIRST_BYTES;
        self.reported_ce = UNREPORTED;
        self.sent_ce = 0;
    }
}

/// The three bits of ACE: AE, CWR, ECE.
fn ace(header: &Header) -> u8 {
    u8::from(header.ae) << 2
        | u8::from(header.flags.contains(Flags::CWR)) << 1
        | u8::from(header.flags.contains(Flags::ECE))
}

fn set_ace(header: &mut Header, ace: u8) {
    header.ae = ace & 4 != 0;
    header.flags.set(Flags::CWR, ace & 2 != 0);
    header.flags.set(Flags::ECE, ace & 1 != 0);
}

/// How a codepoint of the handshake is told (RFC 9768 §3.1.1 table 2, §3.2.2.1 table 3).
const fn handshake_code(mark: u8) -> u8 {
    match mark & 3 {
        0 => 0b010,
        1 => 0b011,
        2 => 0b100,
        _ => 0b110,
    }
}

/// Negotiation.
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

/// The receiver's side: what arrived marked is told to the peer.
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

/// The sender's side: marks on what is sent, and the reaction to the peer's echo.
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
