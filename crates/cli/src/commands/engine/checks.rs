//! What is refused before an engine opens its device, each with the flag and the way out.

use std::net::IpAddr;

use anyhow::{Context, bail};
use client::engines::succession::{Succession, claim, claim_name, take_over};
use engine::{Address, Protocols};
use hostif::control::SocketAccess;
use rustix::thread::{CpuSet, sched_getaffinity};
use rustix::{fd::OwnedFd, io::Errno, net::sockopt};

use super::arguments::{Arguments, DriverName};
use crate::sys;

/// Who may connect to the control socket.
pub fn socket_access(arguments: &Arguments) -> anyhow::Result<SocketAccess> {
    let (mode, group) = (arguments.control_mode, &arguments.control_group);
    if (mode.is_some() || group.is_some()) && arguments.name.starts_with('@') {
        bail!(
            "--control-mode and --control-group need a control socket with a path, as an abstract one has no permissions: give --name /run/shunt/NAME"
        );
    }
    let group = group.as_deref().map(|group| {
        let number = group.parse().ok().or_else(|| sys::group_of_name(group));
        number.with_context(|| {
            format!("--control-group {group}: there is no such group; see /etc/group")
        })
    });
    Ok(SocketAccess {
        mode,
        group: group.transpose()?,
    })
}

/// Refuses addresses that an engine cannot own here.
pub fn check_addresses(addresses: &[Address], gateways: &[IpAddr]) -> anyhow::Result<()> {
    for (index, own) in addresses.iter().enumerate() {
        if addresses[..index]
            .iter()
            .any(|other| other.address == own.address)
        {
            bail!("--address {} is given twice", own.address);
        }
        check_is_a_hosts(own)?;
    }
    for (index, gateway) in gateways.iter().enumerate() {
        if gateways[..index]
            .iter()
            .any(|other| other.is_ipv4() == gateway.is_ipv4())
        {
            bail!("--gateway {gateway}: one for each of IPv4 and IPv6 is all there can be");
        }
        check_gateway(*gateway, addresses)?;
    }
    let interfaces = sys::interfaces().context("listing the interfaces")?;
    for own in addresses {
        let holder = interfaces
            .iter()
            .find(|one| one.addresses.iter().any(|(held, _)| *held == own.address));
        if let Some(holder) = holder {
            bail!(
                "--address {}: the kernel has this address on {}; give one of the network that nobody has, or leave --address out to share the kernel's",
                own.address,
                holder.name
            );
        }
    }
    Ok(())
}

/// Refuses what needs IPv6 where it is left out.
pub fn check_protocols(arguments: &Arguments) -> anyhow::Result<()> {
    if arguments.protocols.contains(&Protocols::IPV6) {
        return Ok(());
    }
    let own = arguments.own_addresses().iter().map(|own| own.address);
    let mut named = own.chain(arguments.gateway.iter().copied());
    if let Some(address) = named.find(IpAddr::is_ipv6) {
        bail!("{address} needs IPv6: add ipv6 to --protocols, or leave the address out");
    }
    if arguments.autoconfigure {
        bail!("--autoconfigure needs IPv6: add ipv6 to --protocols");
    }
    Ok(())
}

/// Refuses cores that cannot be, and says when they will be in each other's way.
pub fn check_cores(cores: u16, driver: DriverName, cpus: &[usize]) -> anyhow::Result<()> {
    if cores > 1 && driver == DriverName::Tap {
        bail!(
            "--cores {cores} needs --driver {} or {}: {} has a single queue",
            DriverName::AfPacket.name(),
            DriverName::AfXdp.name(),
            driver.name()
        );
    }
    let wanted = usize::from(cores);
    if !cpus.is_empty() && cpus.len() != wanted {
        bail!(
            "--cpu names {} processors for --cores {cores}: name one for each core",
            cpus.len()
        );
    }
    let allowed = sched_getaffinity(None).context("asking which processors may be used")?;
    let count = usize::try_from(allowed.count())?;
    for &cpu in cpus {
        if cpu >= CpuSet::MAX_CPU || !allowed.is_set(cpu) {
            bail!("--cpu {cpu}: cannot run there (this process may use {count} processors)");
        }
    }
    if wanted > count {
        tracing::warn!(
            "--cores {cores} on {count} processors: cores that share a processor wait for each other; {count} would be faster"
        );
    }
    Ok(())
}

/// Refuses an interface that is switched off: nothing would ever arrive.
pub fn check_is_up(nic: &str) -> anyhow::Result<()> {
    let interfaces = sys::interfaces().context("listing the interfaces")?;
    if interfaces.iter().any(|one| one.name == nic && !one.up) {
        bail!("--nic {nic}: the interface is down; switch it on with `ip link set {nic} up`");
    }
    Ok(())
}

/// The first and last address of a network name the network and all its hosts, RFC 1122 §3.2.1.3;
/// networks of two addresses or one have neither, RFC 3021.
fn check_is_a_hosts(own: &Address) -> anyhow::Result<()> {
    let IpAddr::V4(address) = own.address else {
        return Ok(()); // IPv6 has no broadcast.
    };
    let host_bits = u32::MAX.checked_shr(u32::from(own.prefix_len)).unwrap_or(0);
    let host = address.to_bits() & host_bits;
    if own.prefix_len < 31 && (host == 0 || host == host_bits) {
        bail!(
            "--address {}/{}: this names the whole network; give the address of one host in it",
            own.address,
            own.prefix_len
        );
    }
    Ok(())
}

fn check_gateway(gateway: IpAddr, addresses: &[Address]) -> anyhow::Result<()> {
    if addresses.iter().any(|own| own.address == gateway) {
        bail!("--gateway {gateway} is the engine's own address; give the router's");
    }
    // A router's link-local address is on the link by its nature.
    let is_on_link = matches!(gateway, IpAddr::V6(v6) if v6.is_unicast_link_local())
        || addresses.iter().any(|own| own.contains(gateway));
    if !is_on_link {
        bail!(
            "--gateway {gateway} is in none of the networks given with --address; a router must be reachable directly"
        );
    }
    Ok(())
}

/// Names that say which engine of this network namespace owns which address, held while it runs.
#[derive(Debug)]
pub struct Claims {
    _sockets: Vec<OwnedFd>,
}

impl Claims {
    /// Claims the addresses, or says who has one of them.
    pub fn take(addresses: &[Address]) -> anyhow::Result<Self> {
        let claim = |own: &Address| {
            let address = own.address;
            let mut claimed = claim(address);
            if matches!(claimed, Err(Errno::ADDRINUSE)) {
                // What a program with an engine inside has left behind.
                let own = format!("@shunt/run/{address}");
                if take_over(&own) == Succession::Free {
                    claimed = claim(address);
                }
            }
            let name = claim_name(address);
            match claimed {
                Ok(socket) => Ok(socket),
                Err(Errno::ADDRINUSE) => {
                    let owner = hostif::control::channel::try_connect(&name)
                        .and_then(|channel| sockopt::socket_peercred(&channel));
                    let owner = owner.map_or_else(
                        |_| String::new(),
                        |owner| format!(" (process {})", owner.pid.as_raw_nonzero()),
                    );
                    bail!(
                        "--address {address}: another engine of this network namespace{owner} owns it; use that one, end it, or give another address"
                    )
                }
                Err(error) => {
                    Err(error).with_context(|| format!("claiming --address {address} ({name})"))
                }
            }
        };
        Ok(Self {
            _sockets: addresses.iter().map(claim).collect::<Result<_, _>>()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(addresses: &[&str], gateway: Option<&str>) -> String {
        let addresses: Vec<Address> = addresses.iter().map(|text| text.parse().unwrap()).collect();
        let gateways: Vec<IpAddr> = gateway.iter().map(|text| text.parse().unwrap()).collect();
        match check_addresses(&addresses, &gateways) {
            Ok(()) => String::new(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn addresses_of_whole_networks_and_repeated_ones_are_refused() {
        assert!(refusal(&["198.51.100.0/24"], None).contains("--address 198.51.100.0/24"));
        assert!(refusal(&["198.51.100.255/24"], None).contains("whole network"));
        assert!(refusal(&["198.51.100.7/24", "198.51.100.7/25"], None).contains("twice"));
        assert_eq!(
            refusal(&["198.51.100.0/31", "198.51.100.3/32"], None),
            "",
            "RFC 3021"
        );
    }

    #[test]
    fn a_gateway_must_be_another_host_of_a_network_of_ours() {
        assert_eq!(refusal(&["198.51.100.7/24"], Some("198.51.100.1")), "");
        assert!(refusal(&["198.51.100.7/24"], Some("203.0.113.1")).contains("--gateway"));
        assert!(refusal(&["198.51.100.7/24"], Some("198.51.100.7")).contains("own address"));
    }

    #[test]
    fn an_address_that_the_kernel_has_is_refused_with_its_interface() {
        let interfaces = sys::interfaces().unwrap();
        let held = interfaces.iter().find_map(|one| {
            let (address, prefix) = one.addresses.first()?;
            (!one.loopback).then(|| (format!("{address}/{prefix}"), one.name.clone()))
        });
        let Some((address, name)) = held else {
            testkit::world::skip(module_path!(), "the kernel has no address here");
            return;
        };
        let refusal = refusal(&[&address], None);
        assert!(refusal.contains(&format!("on {name};")), "{refusal}");
    }

    #[test]
    fn an_address_can_be_claimed_once() {
        let address = ["203.0.113.77/24".parse().unwrap()];
        let first = Claims::take(&address).unwrap();
        let refusal = Claims::take(&address).unwrap_err().to_string();
        assert!(
            refusal.contains(&format!("process {}", std::process::id())),
            "{refusal}"
        );
        drop(first);
        Claims::take(&address).unwrap();
    }
}
