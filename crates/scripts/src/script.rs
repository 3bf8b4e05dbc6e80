//! A script as data: its header, and its events in order. See docs/packet-scripts.md for the text form.

use std::{fmt, time::Duration};

use crate::expression::Expression;
use crate::frame::icmp;

/// Which stack is under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Side {
    /// The Linux kernel.
    Kernel,
    /// Shunt.
    Shunt,
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kernel => "kernel",
            Self::Shunt => "shunt",
        })
    }
}

/// Which version of IP carries the segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    /// IPv4.
    Ip4,
    /// IPv6.
    Ip6,
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ip4 => "ip4",
            Self::Ip6 => "ip6",
        })
    }
}

/// Something that holds for one side, one version of IP, or everywhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    /// Only on this side.
    pub side: Option<Side>,
    /// Only over this version.
    pub family: Option<Family>,
}

impl Scope {
    /// Whether it covers this run.
    pub fn covers(self, side: Side, family: Family) -> bool {
        self.side.is_none_or(|one| one == side) && self.family.is_none_or(|one| one == family)
    }
}

/// A reason that holds in a scope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// Where it holds.
    pub scope: Scope,
    /// The words.
    pub text: String,
}

/// A whole script.
#[derive(Clone, Debug, Default)]
pub struct Script {
    /// Folder and file without the ending, such as `close/active`.
    pub name: String,
    /// The comment on its first line: which behaviour it holds.
    pub about: String,
    /// Below /proc/sys/net/ipv4, and their values.
    pub sysctls: Vec<(String, String)>,
    /// The same, obeyed by an engine too: they are there before it starts.
    pub settings: Vec<(String, String)>,
    /// Flags for `shunt engine`.
    pub engine: Vec<String>,
    /// MTU of the cable.
    pub mtu: Option<u32>,
    /// The only version of IP it makes sense for.
    pub only: Option<Family>,
    /// Takes long: run by `make long`.
    pub slow: bool,
    /// Names of rows in docs/rfc.md that explain why a line holds for one side only.
    pub differs: Vec<String>,
    /// Known faults: the run is made and counted, but does not fail.
    pub open: Vec<Reason>,
    /// Not run there.
    pub skip: Vec<Reason>,
    /// What happens.
    pub events: Vec<Event>,
}

/// One line of a script.
#[derive(Clone, Debug)]
pub struct Event {
    /// Line in the file, from 1.
    pub line: usize,
    /// The line as written, or the line that it was made from.
    pub text: String,
    /// Where it happens.
    pub scope: Scope,
    /// When it happens.
    pub when: When,
    /// What happens.
    pub action: Action,
}

/// The time of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Without waiting for anything else.
    AtOnce,
    /// So long after the event before.
    After(Span),
    /// So long after the start.
    At(Span),
}

/// The earliest and the latest time; an event that we cause happens at `from`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// What the script names.
    pub nominal: Duration,
    /// Not before.
    pub from: Duration,
    /// Not after.
    pub until: Duration,
}

/// What happens.
#[derive(Clone, Debug)]
pub enum Action {
    /// A segment arrives at the host.
    In(Segment),
    /// An ICMP error arrives at the host.
    IcmpIn(Icmp),
    /// A segment leaves the host.
    Out {
        /// What it must look like.
        segment: Segment,
        /// How strictly.
        need: Need,
    },
    /// Nothing leaves for so long.
    Silence(Duration),
    /// A socket call.
    Call(Call),
    /// A call that blocked returns.
    Returns {
        /// Its name.
        name: String,
        /// Its socket.
        socket: String,
        /// What it must return.
        result: Wanted,
    },
    /// The host may choose a new initial sequence number on this flow.
    Renew(u16),
}

/// How strictly a segment is expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// It is the next one.
    Next,
    /// It is the next one, or does not come.
    Optional,
    /// Pure acknowledgments may come before it: how many is the host's affair.
    AfterAcks,
}

/// Numbers that must be equal, or lie in a range.
#[derive(Clone, Debug)]
pub enum Match {
    /// Whatever it is.
    Any,
    /// This number, give or take some.
    Is(Expression, Option<Expression>),
    /// More than this.
    Above(Expression),
    /// Whatever it is; the name stands for it from then on.
    Bind(String),
}

/// Code point of the ECN field (RFC 3168 §5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ecn {
    /// The sender does not use ECN.
    Not,
    /// ECT(1).
    Ect1,
    /// ECT(0).
    Ect0,
    /// Congestion experienced.
    Ce,
}

/// A segment that arrives or that is expected. What is left out is usual (arriving) or anything (expected).
#[derive(Clone, Debug, Default)]
pub struct Segment {
    /// Which of the peer's connections: its port.
    pub flow: u16,
    /// Control bits that are set.
    pub flags: u8,
    /// Control bits that must be clear; of the others PSH, ECE and CWR are free.
    pub clear: u8,
    /// First sequence number.
    pub seq: Option<Match>,
    /// Bytes of payload.
    pub len: Option<Match>,
    /// Cut into segments of this many bytes.
    pub train: Option<Expression>,
    /// Acknowledgment number.
    pub ack: Option<Match>,
    /// Window as in the header.
    pub window: Option<Match>,
    /// Urgent pointer.
    pub urgent: Option<Match>,
    /// Options; none: usual or anything.
    pub options: Option<Options>,
    /// The ECN field.
    pub ecn: Option<Ecn>,
    /// Whether "don't fragment" is set.
    pub df: Option<bool>,
    /// Give it a wrong checksum.
    pub bad_checksum: bool,
}

/// The options of a segment.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// In order as written; expected ones may come in any order.
    pub list: Vec<TcpOption>,
    /// Others than these may be there.
    pub open_ended: bool,
}

/// One option.
#[derive(Clone, Debug)]
pub enum TcpOption {
    /// Maximum segment size.
    Mss(Match),
    /// Window scale.
    WindowScale(Match),
    /// SACK permitted.
    SackPermitted,
    /// Timestamps: value and echo.
    Timestamps(Match, Match),
    /// Timestamps by the peer's clock, with what the host said last.
    TimestampsAuto,
    /// No timestamps, on a flow whose segments carry them otherwise.
    NoTimestamps,
    /// SACK blocks.
    Sack(Vec<(Match, Match)>),
    /// A Fast Open cookie.
    FastOpen(Cookie),
    /// No operation, for injected segments.
    Nop,
    /// Any option by its kind and the bytes after its length, for injected segments.
    Raw(u8, Vec<u8>),
}

/// A Fast Open cookie (RFC 7413 §4.1.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cookie {
    /// Asks for one.
    Request,
    /// These bytes.
    Bytes(Vec<u8>),
    /// Expected: any, remembered; arriving: the one that was remembered.
    Remembered,
}

/// An ICMP error about a segment that the host has sent.
#[derive(Clone, Debug)]
pub struct Icmp {
    /// Which connection.
    pub flow: u16,
    /// What it says.
    pub kind: icmp::Error,
    /// The MTU of [`icmp::Error::TooBig`].
    pub mtu: Option<Expression>,
    /// Sequence number of the quoted segment.
    pub about: Expression,
}

/// A socket call.
#[derive(Clone, Debug)]
pub struct Call {
    /// Socket that the call makes.
    pub makes: Option<String>,
    /// Name of the call.
    pub name: String,
    /// Socket that it is made on.
    pub socket: String,
    /// What follows the socket.
    pub arguments: Vec<String>,
    /// What it must return.
    pub result: CallResult,
}

/// What becomes of a call.
#[derive(Clone, Debug)]
pub enum CallResult {
    /// It does not return at once.
    Blocks,
    /// It returns this.
    Returns(Wanted),
}

/// What a call must return.
#[derive(Clone, Debug)]
pub enum Wanted {
    /// Anything but an error.
    Success,
    /// A number.
    Number(Match),
    /// The name of an error, a state or a set of events.
    Word(String),
}
