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
        match self {
            Self::Latency => "Round trips of 64 bytes",
            Self::Bulk => "One stream",
            Self::Rate => "Small requests",
            Self::Connect => "Short connections",
            Self::Calls => "Single calls",
            Self::Cpu => "Processor time",
            Self::Response => "Response time over clients and other load",
            Self::Left => "What is left to other programs",
            Self::Notify => "When a sleeping program is told",
            Self::Matrix => "Features of the device",
            Self::Driver => "Frames without a stack",
            Self::Trading => "Quotes in, orders out",
            Self::Overload => "More than a server can do",
            Self::Mover => "Large files",
            Self::Stages => "Where each microsecond goes",
        }
    }

    /// Which rows are measured, all where none is named; a measurement that is not of rows has none. The part's own command measures
    /// every row.
    pub fn rows(self) -> &'static [&'static str] {
        match self {
            Self::Latency => &[
                "inline both ends (af_packet)",
                "sockperf inline, kernel sleeping, idle latency untouched",
                "same host, both inline, loopback spinning",
            ],
            Self::Bulk => &[
                "shunt to kernel over veth",
                "kernel to shunt",
                "shunt to shunt over veth",
                "same host, both inline, against loopback",
            ],
            Self::Rate => &[
                "64-byte messages",
                "redis get, 50 connections, same host, both inline",
            ],
            Self::Connect => &[
                "connect, accept, close",
                "socket create + close, never connected",
                "1 request per connection",
                "10 requests per connection",
            ],
            Self::Cpu => &["idle engine with"],
            Self::Response => &[
                "response, 1 client",
                "response, 9 clients",
                "response beside other load, 9 clients",
            ],
            Self::Left => &["16,000 requests/s"],
            Self::Calls | Self::Notify | Self::Matrix | Self::Driver | Self::Trading => &[],
            Self::Overload | Self::Mover | Self::Stages => &[],
        }
    }

    /// Its share of the time that the page may take, in seconds of two processors: start of its programs included, by their number.
    pub fn share_s(self) -> u32 {
        match self {
            Self::Latency | Self::Bulk => 48,
            Self::Rate => 32,
            Self::Connect => 56,
            Self::Calls => 60,
            Self::Cpu => 12,
            Self::Response => 36,
            Self::Left => 42,
            Self::Notify => 32,
            Self::Matrix => 100,
            Self::Driver => 18,
            Self::Trading | Self::Overload | Self::Stages => 20,
            Self::Mover => 35,
        }
    }

    /// The command whose rows they are.
    pub fn subject(self) -> Option<Subject> {
        match self {
            Self::Latency => Some(Subject::Latency),
            Self::Bulk => Some(Subject::Bulk),
            Self::Rate => Some(Subject::Rate),
            Self::Connect => Some(Subject::Connect),
            Self::Cpu => Some(Subject::Cpu),
            Self::Calls => Some(Subject::Calls),
            Self::Response => Some(Subject::Response),
            Self::Left => Some(Subject::Left),
            Self::Notify => Some(Subject::Notify),
            Self::Matrix => Some(Subject::Matrix),
            Self::Driver => Some(Subject::Driver),
            Self::Trading => Some(Subject::Trading),
            Self::Overload | Self::Mover | Self::Stages => None,
        }
    }
}
