//! What is sent and what comes back: one file for each kind. A probe knows its socket and its messages; when something
//! is sent, and what counts, is `session.rs`'s.

pub mod datagram;
pub mod frames;
pub mod icmp;
pub mod link;
pub mod message;
pub mod tcp_connect;
pub mod tcp_echo;
pub mod udp;

use std::{io, net::IpAddr, time::Duration};

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use message::Check;

/// How long a call that waits in the kernel does so at most: then the session looks at its deadlines.
pub const BLOCK: Duration = Duration::from_millis(20);

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// ICMP echo, RFC 792 and 4443: no server is needed
    Icmp,
    /// UDP to an echo; where nothing listens the port-unreachable is the answer
    Udp,
    /// Messages and their echoes on one TCP connection
    Tcp,
    /// A TCP connection: SYN to SYN-ACK or RST
    Connect,
    /// Ethernet frames between two ports, or to `shunt echo --raw`
    Raw,
}

impl Kind {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Icmp => "icmp",
            Self::Udp => "udp",
            Self::Tcp => "tcp",
            Self::Connect => "connect",
            Self::Raw => "raw",
        }
    }

    /// What is measured, for people.
    pub fn title(self) -> &'static str {
        match self {
            Self::Icmp => "ICMP echo",
            Self::Udp => "UDP echo",
            Self::Tcp => "TCP echo on one connection",
            Self::Connect => "TCP connect",
            Self::Raw => "Ethernet frames",
        }
    }
}

/// What answered a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// The message itself.
    Echo,
    /// An ICMP message that nothing listens on the port.
    PortUnreachable,
    /// A SYN-ACK.
    Accepted,
    /// An RST.
    Refused,
    /// A router on the way: the hop limit was used up.
    TimeExceeded,
}

impl Answer {
    pub fn name(self) -> &'static str {
        match self {
            Self::Echo => "echo",
            Self::PortUnreachable => "port unreachable",
            Self::Accepted => "accepted",
            Self::Refused => "refused",
            Self::TimeExceeded => "time exceeded",
        }
    }
}

/// What came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Arrival {
    /// An answer to a probe; to which one is unknown where a router quoted too little of it.
    Answer {
        sequence: Option<u64>,
        answer: Answer,
        /// Who did, where it was not the target.
        from: Option<IpAddr>,
    },
    /// A message of this run whose bytes are not those that were sent.
    Corrupted,
    /// A message that answers nothing of this run.
    Foreign,
    /// An error that is no answer.
    Failed {
        /// The probe, where it is known.
        sequence: Option<u64>,
        /// What went wrong.
        reason: String,
    },
}

impl From<Check> for Arrival {
    fn from(check: Check) -> Self {
        match check {
            Check::Whole(sequence) => Self::Answer {
                sequence: Some(sequence),
                answer: Answer::Echo,
                from: None,
            },
            Check::Changed => Self::Corrupted,
            Check::Foreign => Self::Foreign,
        }
    }
}

/// How long `receive` waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    Not,
    /// In the receiving call itself, for [`BLOCK`] at most: one call for each answer.
    Blocked,
    /// For this time at most, which is kept to some microseconds.
    AtMost(Duration),
}

/// A way to send messages and take their answers.
pub trait Probe {
    /// Sends a probe.
    ///
    /// # Errors
    /// The probe was not sent. Where [`Probe::is_over`] says so no later one will be.
    fn send(&mut self, sequence: u64) -> io::Result<()>;

    /// Takes what has come, one at a time.
    ///
    /// # Errors
    /// The socket is of no use any more.
    fn receive(&mut self, wait: Wait) -> io::Result<Option<Arrival>>;

    /// Nobody waits for this probe any more.
    fn forget(&mut self, _sequence: u64) {}

    /// Sets the time to live, or hop limit, of what is sent from now on.
    ///
    /// # Errors
    /// This kind cannot, or the stack refuses.
    fn set_hop_limit(&mut self, _hops: u8) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// The connection has ended.
    fn is_over(&self) -> bool {
        false
    }

    /// Whether answers can come twice or after the end.
    fn is_datagram(&self) -> bool;
}
