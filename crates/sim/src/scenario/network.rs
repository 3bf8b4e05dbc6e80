//! The way between client and server, what it loses, and who repeats that.

use serde::{Deserialize, Serialize};

/// How transmission over several links adds up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transmission {
    /// As the paper's equation (2) prints it: length over the mean rate.
    Paper,
    /// Each hop receives the whole packet before it sends it on.
    StoreAndForward,
}

/// The way between client and server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Network {
    /// Rates of the links on the way.
    pub rates_mbps: Vec<f64>,
    /// Whole length of the way.
    pub distance_m: f64,
    /// Speed of the signal.
    pub speed_m_per_s: f64,
    /// How transmission over several links adds up.
    pub transmission: Transmission,
    /// Delays are multiplied by a random number between 1 and 1 + this.
    pub jitter: f64,
    /// Responses queue for the server's link.
    pub link_queue: bool,
    /// Bytes that may wait for the server's link; 0 is no limit.
    pub link_buffer_kib: f64,
}

impl Default for Network {
    fn default() -> Self {
        Self {
            rates_mbps: vec![100.0],
            distance_m: 100.0,
            speed_m_per_s: 2e8,
            transmission: Transmission::Paper,
            jitter: 0.1,
            link_queue: false,
            link_buffer_kib: 0.0,
        }
    }
}

/// What a loss makes do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Repeat {
    /// The whole exchange is done again, as equation (5) has it; a NIC does it without the host.
    Exchange,
    /// Lost requests come again from the client, lost responses from whoever owns the stack.
    Packet,
}

/// Loss.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Loss {
    /// Probability that a bit is wrong.
    pub bit_error_rate: f64,
    /// Bytes of a packet for the packet error rate.
    pub packet_bytes: f64,
    /// What a loss makes do.
    pub repeat: Repeat,
    /// Smallest retransmission time-out; doubles with every repetition. 0 repeats at once.
    pub timeout_ms: f64,
}

impl Default for Loss {
    fn default() -> Self {
        Self {
            bit_error_rate: 0.0,
            packet_bytes: 1024.0,
            repeat: Repeat::Exchange,
            timeout_ms: 0.0,
        }
    }
}
