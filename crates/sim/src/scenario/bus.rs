//! How bytes come over the bus between host and NIC, and what the host pays for it.

use serde::{Deserialize, Serialize};

/// Who moves bytes over the bus.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transfer {
    /// The host's processor, inside the driver's cost.
    Pio,
    /// The device; the host pays for doorbells, descriptors and completions.
    Dma,
}

table! {
    /// The bus between host and NIC.
    Bus in "bus." {
        /// Who moves bytes.
        transfer: Transfer = Transfer::Pio;
        /// One crossing of a command or its answer.
        command_us: f64 = 0.0, not_negative;
        /// Host: announcing a descriptor (a posted write).
        doorbell_us: f64 = 0.0, not_negative;
        /// Host: filling a descriptor; one per page touched.
        descriptor_us: f64 = 0.0, not_negative;
        /// Host: taking a completion, per packet received.
        completion_us: f64 = 0.0, not_negative;
        /// Host: the interrupt itself.
        interrupt_us: f64 = 0.0, not_negative;
        /// Rate of the bus; 0 takes no time.
        rate_gbps: f64 = 0.0, not_negative;
        /// Cost of each 256-byte transaction on the bus.
        transaction_ns: f64 = 0.0, not_negative;
        /// Latency of the device's read of host memory.
        read_latency_ns: f64 = 0.0, not_negative;
        /// Socket copies are replaced by the library call alone (`stack.kind = "nic"`).
        zero_copy: bool = false;
        /// Host: pinning a page of a buffer that is not registered.
        pin_us_per_page: f64 = 0.0, not_negative;
        /// Buffers are registered once, before the run: nothing is pinned.
        registered: bool = true;
        /// Bytes at a buffer's head that are copied because they are not aligned.
        unaligned_bytes: f64 = 0.0, not_negative;
        /// Host: copying one byte.
        copy_us_per_byte: f64 = 0.0, not_negative;
    }
}
