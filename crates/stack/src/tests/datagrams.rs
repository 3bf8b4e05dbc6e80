//! UDP sockets of a test's host.

use super::node::Node;
use crate::udp::Outgoing;
use crate::*;
use ::tcp::Instant;
use std::net::{IpAddr, SocketAddr};

/// A UDP socket at this end.
pub fn bind(node: &mut Node<'_>, owner: u64, local: SocketAddr) -> UdpId {
    bind_as(node, owner, local, false)
}

/// One at port 5000 of this address, where others may be too (SO_REUSEADDR).
pub fn bind_beside(node: &mut Node<'_>, owner: u64, address: impl Into<IpAddr>) -> UdpId {
    bind_as(node, owner, SocketAddr::new(address.into(), 5_000), true)
}

fn bind_as(node: &mut Node<'_>, owner: u64, local: SocketAddr, shares: bool) -> UdpId {
    let bind = UdpBind {
        owner,
        local,
        shares,
        options: UdpOptions::default(),
    };
    node.stack.udp_bind(&bind).unwrap()
}

/// Sends a datagram to this destination, or to the peer.
pub fn send_at(
    node: &mut Node<'_>,
    (now, id): (Instant, UdpId),
    destination: Option<SocketAddr>,
    payload: &[u8],
) -> Result<usize, SendError> {
    let outgoing = Outgoing {
        destination,
        ..Outgoing::default()
    };
    node.stack
        .udp_send(now, id, &outgoing, payload, &mut node.egress)
}

/// What the sockets got since the last look: owner, sender, payload.
pub fn taken(node: &Node<'_>) -> Vec<(u64, SocketAddr, Vec<u8>)> {
    std::mem::take(&mut node.programs.borrow_mut().datagrams)
}
