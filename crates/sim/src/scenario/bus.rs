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

/// The bus between host and NIC.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Bus {
    /// Who moves bytes.
    pub transfer: Transfer,
    /// One crossing of a command or its answer.
    pub command_us: f64,
    /// Host: announcing a descriptor (a posted write).
    pub doorbell_us: f64,
    /// Host: filling a descriptor; one per page touched.
    pub descriptor_us: f64,
    /// Host: taking a completion, per packet received.
    pub completion_us: f64,
    /// Host: the interrupt itself.
    pub interrupt_us: f64,
    /// Rate of the bus; 0 takes no time.
    pub rate_gbps: f64,
    /// Cost of each 256-byte transaction on the bus.
    pub transaction_ns: f64,
    /// Latency of the device's read of host memory.
    pub read_latency_ns: f64,
    /// Socket copies are replaced by the library call alone (`stack.kind = "nic"`).
    pub zero_copy: bool,
    /// Host: pinning a page of a buffer that is not registered.
    pub pin_us_per_page: f64,
    /// Buffers are registered once, before the run: nothing is pinned.
    pub registered: bool,
    /// Bytes at a buffer's head that are copied because they are not aligned.
    pub unaligned_bytes: f64,
    /// Host: copying one byte.
    pub copy_us_per_byte: f64,
}

impl Default for Bus {
    fn default() -> Self {
        Self {
            transfer: Transfer::Pio,
            command_us: 0.0,
            doorbell_us: 0.0,
            descriptor_us: 0.0,
            completion_us: 0.0,
            interrupt_us: 0.0,
            rate_gbps: 0.0,
            transaction_ns: 0.0,
            read_latency_ns: 0.0,
            zero_copy: false,
            pin_us_per_page: 0.0,
            registered: true,
            unaligned_bytes: 0.0,
            copy_us_per_byte: 0.0,
        }
    }
}
