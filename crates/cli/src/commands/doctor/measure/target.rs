//! Who answers a measurement, and whether the interface is free for one.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr, SocketAddrV4, TcpListener},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use netlink::{Monitor, Neighbour};

use super::probe_traffic::Ends;
use crate::{commands::doctor::interfaces::default_route_interface, sys};

/// How long an interface is watched for traffic.
const WATCHED: Duration = Duration::from_secs(1);
/// Frames in that time that are nobody's work: neighbours asking for each other.
const QUIET_FRAMES: u64 = 20;
/// How long a neighbour may take to say where it is.
const ANSWER_WITHIN: Duration = Duration::from_secs(3);

/// What is measured with.
pub struct Target {
    /// The interface's number.
    pub index: u32,
    pub ends: Ends,
    /// Holds our port, so that no connection of the kernel's has it.
    _port: TcpListener,
}

impl Target {
    /// The interface's address, and the peer's hardware address.
    pub fn find(interface: &str, peer: Option<Ipv4Addr>, port: u16) -> anyhow::Result<Self> {
        let index = sys::interface_index(interface);
        let mut kernel = Monitor::follow(index, core::convert::identity)
            .context("asking the kernel about the interface")?;
        let snapshot = kernel
            .read()
            .context("asking the kernel about the interface")?;
        let own = snapshot
            .addresses
            .iter()
            .find_map(|(address, _)| match address {
                IpAddr::V4(v4) if !v4.is_link_local() => Some(*v4),
                _ => None,
            });
        let Some(own) = own else {
            bail!(
                "--measure {interface}: it has no IPv4 address, from which a peer could be asked"
            );
        };
        let to = |destination: IpAddr| {
            let mut routes = snapshot.routes.iter();
            routes.rfind(|route| covers(route.destination, route.prefix_len, destination))
        };
        let router = || {
            let default = to(IpAddr::V4(Ipv4Addr::UNSPECIFIED))?.gateway?;
            match default {
                IpAddr::V4(v4) => Some(v4),
                IpAddr::V6(_) => None,
            }
        };
        let Some(peer) = peer.or_else(router) else {
            bail!(
                "--measure {interface} needs --peer ADDRESS: no default route leaves there, so name a host of its network"
            );
        };
        if snapshot
            .addresses
            .iter()
            .any(|(address, _)| *address == IpAddr::V4(peer))
        {
            bail!("--peer {peer} is this host's own address: name another host of the network");
        }
        let Some(route) = to(peer.into()) else {
            bail!("--peer {peer}: no route over {interface} leads there");
        };
        let next = route.gateway.unwrap_or(peer.into());
        let station = hardware(&mut kernel, next)
            .with_context(|| format!("--peer {peer}: {next} on {interface}"))?;
        let held = TcpListener::bind((own, 0)).context("taking a port for the measurement")?;
        let own_port = held
            .local_addr()
            .context("taking a port for the measurement")?
            .port();
        Ok(Self {
            index,
            _port: held,
            ends: Ends {
                own: SocketAddrV4::new(own, own_port),
                peer: SocketAddrV4::new(peer, port),
                station,
            },
        })
    }
}

fn covers(network: IpAddr, prefix_len: u8, address: IpAddr) -> bool {
    let (IpAddr::V4(network), IpAddr::V4(address)) = (network, address) else {
        return false;
    };
    let host_bits = 32_u32.saturating_sub(prefix_len.into());
    let cut = |v4: Ipv4Addr| v4.to_bits().checked_shr(host_bits).unwrap_or(0);
    cut(network) == cut(address)
}

fn hardware(kernel: &mut Monitor, next: IpAddr) -> anyhow::Result<wire::ethernet::Address> {
    let until = Instant::now() + ANSWER_WITHIN;
    kernel.use_neighbour(next).context("asking for it")?;
    loop {
        match kernel.neighbour(next)? {
            Neighbour::At { hardware, .. } => return Ok(hardware),
            Neighbour::Silent => bail!("does not answer: is it up?"),
            Neighbour::Asked | Neighbour::Unknown if Instant::now() < until => {
                thread::sleep(Duration::from_millis(10));
            }
            Neighbour::Asked | Neighbour::Unknown => bail!("does not answer: is it up?"),
        }
    }
}

/// Refuses an interface that others use.
pub fn check_is_idle(interface: &str) -> anyhow::Result<()> {
    let refuse = |why: &str| -> anyhow::Result<()> {
        bail!(
            "--measure {interface}: {why}; what is measured disturbs other traffic (native XDP most): give --in-use to measure all the same"
        )
    };
    if default_route_interface().as_deref() == Some(interface) {
        return refuse("the default route leaves there");
    }
    let before = frames(interface)?;
    thread::sleep(WATCHED);
    let passed = frames(interface)?.saturating_sub(before);
    if passed > QUIET_FRAMES {
        return refuse(&format!("{passed} frames passed within a second"));
    }
    Ok(())
}

/// Frames that passed in both directions, of the calling thread's network namespace: proc_net(5).
fn frames(interface: &str) -> anyhow::Result<u64> {
    let table = fs::read_to_string("/proc/thread-self/net/dev")
        .context("reading the interfaces' counters")?;
    let line = table.lines().find_map(|line| {
        let (name, counters) = line.split_once(':')?;
        (name.trim() == interface).then_some(counters)
    });
    let counters: Vec<u64> = line
        .with_context(|| format!("--measure {interface}: its counters cannot be read"))?
        .split_ascii_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect();
    let [received, sent] = [1, 9].map(|at| counters.get(at).copied().unwrap_or(0));
    Ok(received + sent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_covers_its_network_and_no_other() {
        let v4 = |text: &str| text.parse::<IpAddr>().unwrap();
        assert!(covers(v4("10.7.0.0"), 16, v4("10.7.3.9")));
        assert!(!covers(v4("10.7.0.0"), 16, v4("10.8.3.9")));
        assert!(covers(v4("0.0.0.0"), 0, v4("192.0.2.1")));
        assert!(!covers(v4("::"), 0, v4("192.0.2.1")));
    }

    #[test]
    fn loopback_has_counters_and_a_stranger_has_none() {
        assert!(frames("lo").is_ok());
        let error = frames("nobody0").unwrap_err().to_string();
        assert!(error.contains("--measure nobody0"), "{error}");
    }
}
