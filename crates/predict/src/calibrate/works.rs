//! What servers are asked in trials, and over how many connections.

use std::time::Duration;

use load::trial::{Stack, Work};

/// Connections of the trials: a lone one, few, many, and twice as many.
pub const CONNECTIONS: [usize; 5] = [1, 3, 8, 24, 48];
/// As many as keep everybody busy.
pub const MANY: usize = 24;
/// Time of one batch: a stack is to be seen before the machine becomes another one.
pub const BATCH: Duration = Duration::from_millis(120);
/// Computation that makes the server the bottleneck.
pub const COMPUTE_NS: u64 = 12_000;
/// How much shorter where server and clients share a processor.
pub const CROWDED_SHORTER: u64 = 6;
/// Packets' payload on a lab's ordinary cable.
pub const MSS_BYTES: usize = 1448;
pub const SMALL: Work = Work {
    request_bytes: 64,
    response_bytes: 64,
    compute_ns: 0,
    together: false,
};
/// What is asked: a server that does nothing else, one that computes, one that writes at the end of a turn, larger answers, and
/// answers of a few and of many packets.
pub const WORKS: [Work; 6] = [
    SMALL,
    Work {
        compute_ns: COMPUTE_NS,
        ..SMALL
    },
    Work {
        compute_ns: COMPUTE_NS,
        together: true,
        ..SMALL
    },
    Work {
        response_bytes: 1024,
        compute_ns: COMPUTE_NS / 2,
        ..SMALL
    },
    Work {
        response_bytes: 4 << 10,
        compute_ns: COMPUTE_NS / 2,
        ..SMALL
    },
    Work {
        response_bytes: 16 << 10,
        compute_ns: 3 * COMPUTE_NS,
        ..SMALL
    },
];
/// What nothing is fitted to: it says how far the fitted model is off a work of another kind, between those above.
pub const CHECKS: [Work; 2] = [
    Work {
        request_bytes: 128,
        response_bytes: 512,
        compute_ns: COMPUTE_NS / 3,
        together: false,
    },
    Work {
        request_bytes: 128,
        response_bytes: 2500,
        compute_ns: COMPUTE_NS / 4,
        together: false,
    },
];

/// The work as it is asked of a stack. Beside an engine server and clients share a processor, so that their
/// sum is the bottleneck with any computation; a short one lets them take as many requests at a time as real
/// programs do.
pub fn asked_of(stack: Stack, work: Work) -> Work {
    let shorter = match stack {
        Stack::Engine => CROWDED_SHORTER,
        Stack::Kernel | Stack::Inline | Stack::AfXdp => 1,
    };
    Work {
        compute_ns: work.compute_ns / shorter,
        ..work
    }
}

/// Messages of an exchange that are more than one packet.
pub fn of_several_packets(work: Work) -> f64 {
    let messages = [work.request_bytes, work.response_bytes];
    messages.iter().filter(|bytes| **bytes > MSS_BYTES).count() as f64
}

pub fn bytes(work: Work) -> f64 {
    (work.request_bytes + work.response_bytes) as f64
}
