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

table! {
    /// The way between client and server.
    Network in "network." {
        /// Rates of the links on the way.
        rates_mbps: Vec<f64> = vec![100.0], all_above_zero(1, 64);
        /// Whole length of the way.
        distance_m: f64 = 100.0, not_negative;
        /// Speed of the signal.
        speed_m_per_s: f64 = 2e8, above_zero;
        /// How transmission over several links adds up.
        transmission: Transmission = Transmission::Paper;
        /// Delays are multiplied by a random number between 1 and 1 + this.
        jitter: f64 = 0.1, not_negative;
        /// Responses queue for the server's link.
        link_queue: bool = false;
        /// Bytes that may wait for the server's link; 0 is no limit.
        link_buffer_kib: f64 = 0.0, not_negative;
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

table! {
    /// Loss.
    Loss in "loss." {
        /// Probability that a bit is wrong.
        bit_error_rate: f64 = 0.0, share;
        /// Bytes of a packet for the packet error rate.
        packet_bytes: f64 = 1024.0, above_zero;
        /// What a loss makes do.
        repeat: Repeat = Repeat::Exchange;
        /// Smallest retransmission time-out; doubles with every repetition. 0 repeats at once.
        timeout_ms: f64 = 0.0, not_negative;
    }
}
