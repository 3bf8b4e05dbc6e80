//! The parts of the page, and what of the other commands each of them measures.

use clap::ValueEnum;
use serde::Serialize;

use crate::micro::Subject;

/// A part of the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// Round trips
    Latency,
    /// One stream
    Bulk,
    /// Small requests
    Rate,
    /// Short connections
    Connect,
    /// Single calls
    Calls,
    /// Processor time at rest and of what is left to the kernel
    Cpu,
    /// Response time over clients and other load
    Response,
    /// What other programs have left
    Left,
    /// When a program is told
    Notify,
    /// Features off and on
    Matrix,
    /// Two programs and two engines
    Placement,
    /// Frames without a stack
    Driver,
    /// Quotes in, orders out
    Trading,
    /// More than a server can do
    Overload,
    /// Large files
    Mover,
    /// The way of a message, stage by stage
    Stages,
}

impl Part {
    /// Its heading.
    pub fn title(self) -> &'static str {
        self.known().0
    }

    /// Its share of the time that the page may take, in seconds of two processors: start of its programs included, by their number.
    pub fn share_s(self) -> u32 {
        self.known().1
    }

    /// Which rows are measured, all where none is named; a measurement that is not of rows has none. The part's own command measures
    /// every row.
    pub fn rows(self) -> &'static [&'static str] {
        self.known().2
    }

    fn known(self) -> (&'static str, u32, &'static [&'static str]) {
        let latency = &[
            "inline both ends (af_packet)",
            "sockperf inline, kernel sleeping, idle latency untouched",
            "same host, both inline, loopback spinning",
        ];
        let bulk = &[
            "shunt to kernel over veth",
            "kernel to shunt",
            "shunt to shunt over veth",
            "same host, both inline, against loopback",
        ];
        let rate = &[
            "64-byte messages",
            "redis get, 50 connections, same host, both inline",
        ];
        let connect = &[
            "connect, accept, close",
            "socket create + close, never connected",
            "1 request per connection",
            "10 requests per connection",
        ];
        let response = &[
            "response, 1 client",
            "response, 9 clients",
            "response beside other load, 9 clients",
        ];
        let placement = &[
            "two programs, an engine each",
            "two programs, one engine for both",
        ];
        let response_title = "Response time over clients and other load";
        match self {
            Self::Latency => ("Round trips of 64 bytes", 48, latency),
            Self::Bulk => ("One stream", 48, bulk),
            Self::Rate => ("Small requests", 32, rate),
            Self::Connect => ("Short connections", 56, connect),
            Self::Calls => ("Single calls", 60, &[]),
            Self::Cpu => ("Processor time", 12, &["idle engine with"]),
            Self::Response => (response_title, 36, response),
            Self::Left => ("What is left to other programs", 42, &["16,000 requests/s"]),
            Self::Notify => ("When a sleeping program is told", 32, &[]),
            Self::Matrix => ("Features of the device", 100, &[]),
            Self::Placement => ("Two programs, one engine or two", 20, placement),
            Self::Driver => ("Frames without a stack", 18, &[]),
            Self::Trading => ("Quotes in, orders out", 20, &[]),
            Self::Overload => ("More than a server can do", 20, &[]),
            Self::Mover => ("Large files", 35, &[]),
            Self::Stages => ("Where each microsecond goes", 20, &[]),
        }
    }

    /// The command whose rows they are: that of the same name.
    pub fn subject(self) -> Option<Subject> {
        let value = self.to_possible_value()?;
        Subject::from_str(value.get_name(), false).ok()
    }
}
