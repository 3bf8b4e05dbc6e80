//! Offloads that are left off, for measurement and for devices or peers with which they do not work.

use clap::{Args, ValueEnum};
use nic::OffloadOverride;

/// What an engine does in software although its device could do it.
#[derive(Debug, Clone, Copy, Args)]
pub struct Offloads {
    /// Send no segments larger than the path's MTU for the device to cut (TSO).
    #[arg(long)]
    no_tso: bool,
    /// Take received segments one by one, not merged (GRO).
    #[arg(long)]
    no_gro: bool,
    /// Fill and verify checksums in software; includes --no-tso.
    #[arg(long)]
    no_checksum_offload: bool,
    /// Hand payload to the device from multiples of so many bytes only, as some devices want it: the unaligned head of
    /// each segment is copied, and files are not sent from where they are mapped.
    #[arg(long, value_enum, value_name = "BYTES")]
    payload_align: Option<PayloadAlign>,
}

/// Of what payload has to begin at a multiple.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PayloadAlign {
    /// A word of 32 bits.
    #[value(name = "4")]
    Word,
    /// A cache line.
    #[value(name = "64")]
    Line,
}

impl Offloads {
    /// Everything on.
    #[cfg(test)]
    pub const NONE_OFF: Self = Self {
        no_tso: false,
        no_gro: false,
        no_checksum_offload: false,
        payload_align: None,
    };

    /// What the driver is told.
    pub fn overrides(self) -> OffloadOverride {
        OffloadOverride {
            segmentation: self.no_tso,
            merging: self.no_gro,
            checksums: self.no_checksum_offload,
            align: match self.payload_align {
                None => 0,
                Some(PayloadAlign::Word) => 4,
                Some(PayloadAlign::Line) => 64,
            },
        }
    }

    /// The flags, for an engine that is started by another command.
    pub fn flags(self) -> impl Iterator<Item = &'static str> {
        let all = [
            (self.no_tso, "--no-tso"),
            (self.no_gro, "--no-gro"),
            (self.no_checksum_offload, "--no-checksum-offload"),
            (
                self.payload_align == Some(PayloadAlign::Word),
                "--payload-align=4",
            ),
            (
                self.payload_align == Some(PayloadAlign::Line),
                "--payload-align=64",
            ),
        ];
        all.into_iter()
            .filter_map(|(given, flag)| given.then_some(flag))
    }
}
