//! What the kernel knows of an interface: index, MTU, hardware address, memory node, largest
//! segments; and the two settings a TAP needs. Read netdevice(7) first.
//!
//! Addresses and routes are not read here: the engine follows them over rtnetlink.

pub(crate) mod segments;
mod sys;

use std::io;
use std::os::fd::OwnedFd;

use ::wire::ethernet;
use rustix::net::{AddressFamily, SocketFlags, SocketType, netdevice, socket_with};

/// The longest interface name that netdevice(7) takes (`IFNAMSIZ` less the final zero).
pub(crate) const NAME_BYTES_MAX: usize = libc::IFNAMSIZ - 1;

/// An interface as found when a driver was opened.
#[derive(Debug, Clone)]
pub(crate) struct Link {
    pub index: u32,
    pub mtu: u32,
    pub hardware_address: ethernet::Address,
    /// Frames on this link start with an Ethernet header (Ethernet itself, and loopback).
    pub is_ethernet: bool,
    pub numa_node: Option<u16>,
    /// The interface cuts large segments (or is virtual and hands them on whole).
    pub cuts_segments: bool,
    pub segments: segments::Segments,
    /// Queues that frames arrive in.
    pub rx_queues: u32,
}

/// Any socket of the interface's namespace answers the interface ioctls.
pub(crate) fn control_socket() -> io::Result<OwnedFd> {
    Ok(socket_with(
        AddressFamily::INET,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        None,
    )?)
}

/// The hardware address of interface `name` of the calling thread's network namespace.
///
/// # Errors
/// There is no such interface.
pub fn hardware_address(name: &str) -> io::Result<ethernet::Address> {
    let (_, address) = sys::hardware_address(&control_socket()?, name)?;
    Ok(ethernet::Address(address))
}

/// In how many queues frames of interface `name` arrive.
///
/// # Errors
/// No socket can be made.
pub fn receive_queues(name: &str) -> io::Result<u32> {
    Ok(sys::rx_queues(&control_socket()?, name))
}

/// Reads what the kernel knows of interface `name` of the calling thread's network namespace.
pub(crate) fn read(name: &str) -> io::Result<Link> {
    let socket = control_socket()?;
    let index = netdevice::name_to_index(&socket, name)?;
    let (hardware_type, hardware_address) = sys::hardware_address(&socket, name)?;
    Ok(Link {
        index,
        mtu: sys::mtu(&socket, name)?,
        hardware_address: ethernet::Address(hardware_address),
        is_ethernet: matches!(hardware_type, libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK),
        numa_node: numa_node(name),
        cuts_segments: sys::cuts_segments(&socket, name),
        segments: segments::read(index)?,
        rx_queues: sys::rx_queues(&socket, name),
    })
}

/// Largest IP packet of interface `name` of the namespace in which `socket` was made.
pub(crate) fn mtu(socket: std::os::fd::BorrowedFd<'_>, name: &str) -> io::Result<u32> {
    sys::mtu(&socket, name)
}

/// Whether interface `name` is switched on.
pub(crate) fn is_up(socket: std::os::fd::BorrowedFd<'_>, name: &str) -> io::Result<bool> {
    sys::is_up(&socket, name)
}

/// Sets the largest IP packet of interface `name`.
pub(crate) fn set_mtu(name: &str, mtu: u32) -> io::Result<()> {
    sys::set_mtu(&control_socket()?, name, mtu)
}

/// Administratively starts interface `name`.
pub(crate) fn set_up(name: &str) -> io::Result<()> {
    sys::set_up(&control_socket()?, name)
}

/// A random address for our end of a link. IEEE 802 §8.4: bit 1 of the first octet marks a locally administered address, bit 0 a group.
pub(crate) fn random_address() -> io::Result<ethernet::Address> {
    let mut bytes: [u8; 6] = sys::random()?;
    bytes[0] = (bytes[0] | 0x02) & !0x01;
    Ok(ethernet::Address(bytes))
}

/// Virtual interfaces have no device, and single-node machines say -1: both are `None`.
fn numa_node(name: &str) -> Option<u16> {
    let text = std::fs::read_to_string(format!("/sys/class/net/{name}/device/numa_node")).ok()?;
    text.trim().parse().ok()
}
