//! An engine that shares the kernel's addresses: what it needs, and what is refused (docs/sharing.md).

use std::sync::Arc;

use anyhow::{Context, bail};
use nic::sharing::{Claims, ShareError, Sharing};

use super::arguments::{Arguments, DriverName};
use super::drivers::offer_the_lab;
use crate::sys;

/// How an interface is shared.
pub struct Shared {
    /// The programs at the interface; without them backing sockets keep the kernel silent.
    steering: Option<Arc<Sharing>>,
}

impl Shared {
    /// For the driver's sockets.
    pub fn for_driver(&self) -> Option<Arc<Sharing>> {
        self.steering.clone()
    }

    pub fn for_engine(self) -> engine::Sharing {
        engine::Sharing {
            claims: self.steering.map(|steering| steering as Arc<dyn Claims>),
        }
    }
}

/// Prepares the interface; `None`: the addresses are the engine's own.
pub fn begin(arguments: &Arguments) -> anyhow::Result<Option<Shared>> {
    if !arguments.is_shared() {
        return Ok(None);
    }
    let nic = &arguments.nic;
    let driver = arguments.driver();
    if !matches!(driver, DriverName::AfPacket | DriverName::AfXdp) {
        bail!(
            "--driver {} needs --address: only {} and {} share the kernel's addresses",
            driver.name(),
            DriverName::AfPacket.name(),
            DriverName::AfXdp.name()
        );
    }
    if !arguments.gateway.is_empty() {
        bail!("--gateway needs --address: with shared addresses the routes are the kernel's");
    }
    if arguments.autoconfigure {
        bail!("--autoconfigure needs --address: with shared addresses the kernel autoconfigures");
    }
    if !arguments.ignore_firewall {
        check_firewall()?;
    }
    let index = sys::interface_index(nic);
    if index == 0 {
        bail!(
            "--nic {nic}: no interface named {nic:?} here: see `ip link` in this network namespace"
        );
    }
    let steering = match Sharing::open(index) {
        Ok(steering) => Some(Arc::new(steering)),
        Err(ShareError::Bpf(
            error @ (bpf::Error::NotPermitted { .. } | bpf::Error::Unsupported { .. }),
        )) => {
            tracing::warn!(
                "{error}; without it the engine sees all that the kernel gets, and the kernel all that the engine gets: \
                 filters on the programs' sockets keep it silent, at the cost of speed"
            );
            None
        }
        Err(error) => {
            return Err(error).with_context(|| format!("--nic {nic} with the kernel's addresses"));
        }
    };
    Ok(Some(Shared { steering }))
}

/// The engine's packets pass the firewall by in both directions: nobody shall find that out later.
fn check_firewall() -> anyhow::Result<()> {
    let rules = netlink::rules_that_drop().map_err(|error| {
        let is_privilege = error.kind() == std::io::ErrorKind::PermissionDenied;
        let what = if is_privilege {
            "sharing the kernel's addresses needs CAP_NET_ADMIN and CAP_NET_RAW, and CAP_BPF to be fast: run as \
             root, or `setcap cap_net_admin,cap_net_raw,cap_bpf+ep` the binary"
        } else {
            "reading the firewall's rules, which the engine's packets would pass by (--ignore-firewall shares \
             without)"
        };
        offer_the_lab(anyhow::anyhow!("{what}: {error}"), is_privilege)
    })?;
    if rules.is_empty() {
        return Ok(());
    }
    bail!(
        "the firewall could drop packets that an engine with the kernel's addresses would let pass: {}. \
         Give --ignore-firewall if that is as it shall be, or --address with an address that is the engine's alone",
        rules.join("; ")
    )
}
