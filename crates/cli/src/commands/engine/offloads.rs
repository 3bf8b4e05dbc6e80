//! Offloads that are left off, for measurement and for devices or peers with which they do not work.

use clap::Args;
use nic::Curbs;

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
}

impl Offloads {
    /// Everything on.
    #[cfg(test)]
    pub const NONE_OFF: Self = Self {
        no_tso: false,
        no_gro: false,
        no_checksum_offload: false,
    };

    /// What the driver is told.
    pub fn curbs(self) -> Curbs {
        Curbs {
            segmentation: self.no_tso,
            merging: self.no_gro,
            checksums: self.no_checksum_offload,
        }
    }

    /// The flags, for an engine that is started by another command.
    pub fn flags(self) -> impl Iterator<Item = &'static str> {
        let all = [
            (self.no_tso, "--no-tso"),
            (self.no_gro, "--no-gro"),
            (self.no_checksum_offload, "--no-checksum-offload"),
        ];
        all.into_iter()
            .filter_map(|(given, flag)| given.then_some(flag))
    }
}
