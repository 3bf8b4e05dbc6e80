//! The requests that build a cable. They are made before the fork and sent after it (`sys.rs`).

use std::{net::Ipv6Addr, os::fd::BorrowedFd};

use netlink::configure::{self, VethEnd};

use crate::{Cidr, INTERFACE, ORDINARY_SEGMENT_BYTES};

/// Index of the loopback interface of every network namespace.
const LOOPBACK_INDEX: u32 = 1;

/// Index of the cable's end on every host: above what the kernel hands out by itself at start.
pub(crate) const CABLE_INDEX: u32 = 77;

/// Packets that may wait in a TAP for its reader. The kernel's 500 are 6 ms of a gigabit: a reader
/// that the scheduler keeps waiting longer would lose what no cable was told to lose.
const TAP_QUEUE_PACKETS: u32 = 20_000;

/// Creates a veth pair: one end here, its peer in the namespace `peer`.
pub(crate) fn create_veth(peer: BorrowedFd<'_>, mtu: u32, segment_bytes: u32) -> Vec<u8> {
    let end = VethEnd {
        index: CABLE_INDEX,
        name: INTERFACE,
        mtu,
        segment_bytes: (segment_bytes != ORDINARY_SEGMENT_BYTES).then_some(segment_bytes),
    };
    configure::create_veth(end, peer)
}

/// Gives a TAP its MTU and a queue.
pub(crate) fn prepare_tap(mtu: u32) -> Vec<u8> {
    configure::set_mtu_and_queue(CABLE_INDEX, mtu, TAP_QUEUE_PACKETS)
}

/// Switches the loopback interface on.
pub(crate) fn loopback_up() -> Vec<u8> {
    configure::set_up(LOOPBACK_INDEX)
}

/// Switches the cable's end on.
pub(crate) fn cable_up() -> Vec<u8> {
    configure::set_up(CABLE_INDEX)
}

/// Gives the cable's end its address.
pub(crate) fn add_address(cidr: Cidr) -> Vec<u8> {
    configure::add_address(CABLE_INDEX, cidr.address, cidr.prefix_len, cidr.broadcast())
}

/// Gives the cable's end an IPv6 address.
pub(crate) fn add_address_v6(address: Ipv6Addr, prefix_len: u8) -> Vec<u8> {
    configure::add_address_v6(CABLE_INDEX, address, prefix_len)
}
