//! Which core serves a connection: a hash of its four parts decides (`hostif::steering`), because that is
//! where its packets arrive. A port that the program did not choose is chosen so that a process's
//! connections go round the cores. With one core nothing here does anything.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::sync::atomic::{AtomicU32, Ordering};

use hostif::control::EngineAddress;
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use rustix::net::{AddressFamily, sockopt};

use crate::engines::attachment::attachments::Attachments;
use crate::engines::session::Session;

/// Ports to choose from: Linux's own range.
const EPHEMERAL_FIRST: u16 = 32_768;
const EPHEMERAL_COUNT: u16 = 28_232;
/// Ports that are looked at before the kernel's choice is taken, wherever it leads: a port leads to the
/// wanted core of 64 with a probability of 1 - (63/64)^256 = 0.98.
const TRIES: u32 = 256;
/// At most so many ports that are in use are tried.
const TAKEN_MAX: u32 = 8;

impl Session {
    /// Whether any port leads to the core that serves a connection, so that the engine may choose it.
    pub fn is_on_one_core(&self) -> Result<bool, Errno> {
        Ok(self.attachments()?.steering.cores == 1)
    }

    /// Gives the backing socket of a connection to `remote` a free local port: on loopback of the address that it will come
    /// from, so that others have the port on other addresses, else on any.
    pub fn bind_towards(&self, backing: BorrowedFd<'_>, remote: SocketAddr) -> Result<(), Errno> {
        let all = self.attachments()?;
        // With SO_REUSEADDR a port that is taken may be bound all the same: the kernel knows better.
        if all.steering.cores > 1
            && !sockopt::socket_reuseaddr(backing)?
            && self.bind_round_robin(all, backing, remote)?
        {
            return Ok(());
        }
        bind_for(backing, remote.ip(), 0)
    }

    /// RFC 6056 §3.3.1: a random port, restricted to those that lead to the core whose turn it is. `false`:
    /// none was found.
    fn bind_round_robin(
        &self,
        all: &Attachments,
        backing: BorrowedFd<'_>,
        remote: SocketAddr,
    ) -> Result<bool, Errno> {
        let Some(source) = self.source_for(all, remote.ip())? else {
            return Ok(false);
        };
        let mut random = random()?;
        // Processes with one connection each shall not all begin at the same core.
        let turn = all.turn.get_or_init(|| AtomicU32::new(random));
        let cores = u32::from(all.steering.cores);
        let wanted = turn.fetch_add(1, Ordering::Relaxed) % cores;
        let mut taken = 0;
        for _ in 0..TRIES {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let step = u16::try_from((random >> 8) % u32::from(EPHEMERAL_COUNT)).unwrap_or(0);
            let port = EPHEMERAL_FIRST + step;
            let core = all.steering.core_of(SocketAddr::new(source, port), remote);
            if u32::from(core) != wanted {
                continue;
            }
            match bind_for(backing, remote.ip(), port) {
                Ok(()) => return Ok(true),
                Err(Errno::ADDRINUSE) if taken < TAKEN_MAX => taken += 1,
                Err(Errno::ADDRINUSE) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    /// The local end of a connection with its address filled in, on which the core depends.
    pub(crate) fn placed(
        &self,
        local: SocketAddr,
        remote: SocketAddr,
    ) -> Result<SocketAddr, Errno> {
        let all = self.attachments()?;
        if all.steering.cores == 1 || !local.ip().is_unspecified() {
            return Ok(local);
        }
        let source = self.source_for(all, remote.ip())?;
        Ok(source.map_or(local, |source| SocketAddr::new(source, local.port())))
    }

    /// The engine's address that packets to `remote` come from, as its routes choose it: the one whose
    /// network is the smallest that has `remote`, else that of the gateway's network.
    fn source_for(&self, all: &Attachments, remote: IpAddr) -> Result<Option<IpAddr>, Errno> {
        if let Some(own) = loopback_towards(remote) {
            return Ok(Some(own));
        }
        let addresses = match all.addresses.get() {
            Some(addresses) => addresses,
            None => {
                let asked = self.addresses()?;
                all.addresses.get_or_init(|| asked)
            }
        };
        let own = &addresses.addresses;
        let same_family = |gateway: &&IpAddr| gateway.is_ipv4() == remote.is_ipv4();
        let gateway = addresses.gateways.iter().find(same_family);
        Ok(on_link(own, remote).or_else(|| gateway.and_then(|gateway| on_link(own, *gateway))))
    }
}

fn on_link(own: &[EngineAddress], remote: IpAddr) -> Option<IpAddr> {
    let shared = |one: &&EngineAddress| shared_bits(one.address, remote) >= one.prefix_len;
    let nearest = own
        .iter()
        .filter(|one| one.address.is_ipv4() == remote.is_ipv4())
        .filter(shared)
        // Of equal ones the first, as `max_by_key` would take the last.
        .rev()
        .max_by_key(|one| one.prefix_len)?;
    Some(nearest.address)
}

/// Leading bits that two addresses of one family have in common.
fn shared_bits(one: IpAddr, other: IpAddr) -> u8 {
    let bits = match (one, other) {
        (IpAddr::V4(one), IpAddr::V4(other)) => (u32::from(one) ^ u32::from(other)).leading_zeros(),
        (IpAddr::V6(one), IpAddr::V6(other)) => {
            (u128::from(one) ^ u128::from(other)).leading_zeros()
        }
        _ => 0,
    };
    u8::try_from(bits).unwrap_or(u8::MAX)
}

/// Where what goes to an address of loopback comes from: one address speaks for all of its network.
fn loopback_towards(remote: IpAddr) -> Option<IpAddr> {
    let own: IpAddr = match remote {
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };
    remote.is_loopback().then_some(own)
}

fn bind_for(backing: BorrowedFd<'_>, remote: IpAddr, port: u16) -> Result<(), Errno> {
    let is_v6 = sockopt::socket_domain(backing)? == AddressFamily::INET6;
    let own: IpAddr = match (loopback_towards(remote), is_v6) {
        (Some(IpAddr::V4(own)), true) => own.to_ipv6_mapped().into(),
        (Some(own), _) => own,
        (None, true) => Ipv6Addr::UNSPECIFIED.into(),
        (None, false) => Ipv4Addr::UNSPECIFIED.into(),
    };
    rustix::net::bind(backing, &SocketAddr::new(own, port))
}

fn random() -> Result<u32, Errno> {
    let mut bytes = [0; 4];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(u32::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(address: &str, prefix_len: u8) -> EngineAddress {
        EngineAddress {
            address: address.parse().unwrap(),
            prefix_len,
            mtu_bytes: 1500,
        }
    }

    #[test]
    fn the_source_is_the_address_of_the_smallest_network_that_has_the_peer() {
        let own = [
            own("10.0.0.1", 8),
            own("10.1.0.1", 16),
            own("10.1.0.2", 16),
            own("fd00::1", 64),
        ];
        let source = |remote: &str| {
            on_link(&own, remote.parse().unwrap()).map(|address| address.to_string())
        };
        assert_eq!(source("10.2.3.4").as_deref(), Some("10.0.0.1"));
        assert_eq!(source("10.1.3.4").as_deref(), Some("10.1.0.1"));
        assert_eq!(source("192.168.0.1"), None);
        assert_eq!(source("fd00::9").as_deref(), Some("fd00::1"));
        assert_eq!(source("fd01::9"), None);
    }
}
