//! Explicit congestion notification: negotiation, what is echoed, and what an echo means for the window.
//! RFC 3168 first, then RFC 9768 (accurate ECN: how many packets and bytes were marked, not only that some
//! were), then RFC 8257 §3.2 for DCTCP's way of echoing in the old header.
//!
//! Data that is sent for the first time carries ECT(0); retransmissions, probes, bare ACKs and handshakes
//! do not (RFC 3168 §6.1.1, §6.1.4 to §6.1.6).

mod echo;
mod negotiation;
mod reaction;

use wire::tcp::{Flags, Header};
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
