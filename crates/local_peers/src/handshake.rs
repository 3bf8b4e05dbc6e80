//! How two engines of one host find each other: an abstract Unix socket for each address, a greeting, and with it the
//! memory of a wire and that for the bytes of connections. See unix(7), and `hostif::control` for the packets.
//!
//! Abstract names belong to a network namespace, as addresses do. Anybody may take or use one, so who is at the
//! other end counts: root or our own user, as the kernel says (SO_PEERCRED); anybody else is refused, whose frames would
//! otherwise be believed as if they had come by the interface.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use hostif::control::channel;
use hostif::{ChannelRegion, host_hooks};
use nic::Driver as _;
use nic::wire::{Config, WireEnd};
use rustix::fd::{AsFd as _, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SocketFlags};

/// Addresses that one engine may have.
pub const ADDRESSES_MAX: usize = 64;
const GREETING: &[u8; 8] = b"shuntnb2";
/// A family and sixteen bytes.
const ADDRESS_BYTES: usize = 17;

/// Engines of one interface (the last part of a name is the address).
fn name(prefix: &str, address: IpAddr) -> String {
    format!("{prefix}/{address}")
}

/// Where others find the engine with this address. `None`: somebody else has the name, and is found there.
pub fn listen(prefix: &str, address: IpAddr) -> Option<OwnedFd> {
    let listener = channel::listen(&name(prefix, address)).ok()?;
    Some(host_hooks::relocate_fd(listener))
}

/// Asks for the engine with this address, and makes a wire to it, and memory for the bytes of connections. `None`:
/// there is none here.
pub fn seek(
    prefix: &str,
    address: IpAddr,
    own: &[IpAddr],
    config: &Config,
) -> Option<(WireEnd, OwnedFd)> {
    let channel = channel::try_connect(&name(prefix, address)).ok()?;
    if !is_trusted(channel.as_fd()) {
        return None;
    }
    let made = WireEnd::create_over(config, host_hooks::relocate_fd(channel));
    let (wire, region) = made.ok()?;
    let memory = ChannelRegion::create().ok()?;
    let descriptors = [region.as_fd(), memory.as_fd()];
    channel::send(wire.wait_fd()?, &greeting(own), &descriptors).ok()?;
    Some((wire, memory))
}

/// Somebody who has come and has not yet said who it is; `None`: nobody has.
pub fn accept(listener: BorrowedFd<'_>) -> Option<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let stranger = rustix::net::accept_with(listener, flags).ok()?;
    Some(host_hooks::relocate_fd(stranger))
}

/// Who has connected.
pub enum PendingPeer {
    /// It has not said anything yet.
    Silent(OwnedFd),
    /// An engine with these addresses.
    Neighbour(Box<WireEnd>, OwnedFd, Vec<IpAddr>),
    /// Nobody to exchange frames with.
    Nobody,
}

/// Reads the greeting of who has connected.
pub fn hear(stranger: OwnedFd) -> PendingPeer {
    let mut received = match channel::receive(stranger.as_fd(), RecvFlags::DONTWAIT) {
        Ok(received) => received,
        Err(Errno::AGAIN) => return PendingPeer::Silent(stranger),
        Err(_) => return PendingPeer::Nobody,
    };
    let mut greeted = || {
        let addresses = addresses(&received.bytes)?;
        let (memory, region) = (received.descriptors.pop()?, received.descriptors.pop()?);
        let is_well = received.descriptors.is_empty() && is_trusted(stranger.as_fd());
        is_well.then_some((addresses, region, host_hooks::relocate_fd(memory)))
    };
    let Some((addresses, region, memory)) = greeted() else {
        return PendingPeer::Nobody;
    };
    match WireEnd::adopt_over(&region, stranger) {
        Ok(wire) => PendingPeer::Neighbour(Box::new(wire), memory, addresses),
        Err(_) => PendingPeer::Nobody,
    }
}

/// Whether the process at the other end may give us frames.
fn is_trusted(channel: BorrowedFd<'_>) -> bool {
    rustix::net::sockopt::socket_peercred(channel)
        .is_ok_and(|peer| peer.uid.is_root() || peer.uid == rustix::process::geteuid())
}

fn greeting(own: &[IpAddr]) -> Vec<u8> {
    let mut bytes = GREETING.to_vec();
    for address in own.iter().take(ADDRESSES_MAX) {
        match address {
            IpAddr::V4(v4) => {
                bytes.push(4);
                bytes.extend(v4.octets());
                bytes.extend([0; 12]);
            }
            IpAddr::V6(v6) => {
                bytes.push(6);
                bytes.extend(v6.octets());
            }
        }
    }
    bytes
}

/// What [`greeting`] wrote; `None`: something else did.
fn addresses(bytes: &[u8]) -> Option<Vec<IpAddr>> {
    let rest = bytes.strip_prefix(GREETING)?;
    if rest.is_empty() || rest.len() > ADDRESSES_MAX * ADDRESS_BYTES {
        return None;
    }
    let (parts, odd) = rest.as_chunks::<ADDRESS_BYTES>();
    if !odd.is_empty() {
        return None;
    }
    let address = |part: &[u8; ADDRESS_BYTES]| match part {
        [4, a, b, c, d, zeros @ ..] => zeros
            .iter()
            .all(|byte| *byte == 0)
            .then(|| Ipv4Addr::new(*a, *b, *c, *d).into()),
        [6, rest @ ..] => Some(Ipv6Addr::from(*rest).into()),
        _ => None,
    };
    parts.iter().map(address).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_greeting_says_which_addresses() {
        let own: [IpAddr; 2] = ["10.0.0.7".parse().unwrap(), "fd00::7".parse().unwrap()];
        assert_eq!(addresses(&greeting(&own)).as_deref(), Some(&own[..]));
    }

    #[test]
    fn anything_else_is_no_greeting() {
        let own: IpAddr = "10.0.0.7".parse().unwrap();
        let good = greeting(&[own]);
        for len in 0..good.len() {
            assert_eq!(addresses(&good[..len]), None, "{len} bytes");
        }
        for at in [0, 8, good.len() - 1] {
            let mut bad = good.clone();
            bad[at] ^= 9;
            assert_eq!(addresses(&bad), None, "byte {at}");
        }
        let many = vec![own; ADDRESSES_MAX];
        let mut long = greeting(&many);
        assert_eq!(addresses(&long).map(|list| list.len()), Some(ADDRESSES_MAX));
        long.extend_from_slice(&good[8..]);
        assert_eq!(addresses(&long), None);
    }
}
