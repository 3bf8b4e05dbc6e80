//! What the kernel knows of an interface when a driver is opened: index, MTU, hardware address, largest segments, queues;
//! and the two settings a TAP needs. Read netdevice(7) first.
//!
//! Addresses and routes are not read here: [`crate::Monitor`] follows them.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, netdevice, socket_with};
use wire::ethernet;

use crate::ethtool::Offload;
use crate::{ethtool, segments, sys};

/// The longest interface name that netdevice(7) takes (`IFNAMSIZ` less the final zero).
pub const NAME_BYTES_MAX: usize = libc::IFNAMSIZ - 1;

/// An interface as found when a driver was opened.
#[derive(Debug, Clone)]
pub struct Interface {
    /// Its number.
    pub index: u32,
    /// Largest IP packet, in bytes.
    pub mtu: u32,
    /// Its own address.
    pub hardware_address: ethernet::Address,
    /// Frames on this link start with an Ethernet header (Ethernet itself, and loopback).
    pub is_ethernet: bool,
    /// The interface cuts large segments (or is virtual and hands them on whole).
    pub cuts_segments: bool,
    /// How large a segment it passes on in one piece.
    pub segments: segments::Segments,
    /// Queues that frames arrive in.
    pub rx_queues: u32,
}

/// A socket for the interface ioctls: any of the interface's network namespace answers them.
///
/// # Errors
/// No socket can be made.
pub fn control_socket() -> io::Result<OwnedFd> {
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

/// Reads what the kernel knows of interface `name` of the calling thread's network namespace.
///
/// # Errors
/// `ENODEV`: there is no such interface; or the kernel does not say.
pub fn read(name: &str) -> io::Result<Interface> {
    let socket = control_socket()?;
    let index = netdevice::name_to_index(&socket, name)?;
    let (hardware_type, hardware_address) = sys::hardware_address(&socket, name)?;
    Ok(Interface {
        index,
        mtu: sys::mtu(&socket, name)?,
        hardware_address: ethernet::Address(hardware_address),
        is_ethernet: matches!(hardware_type, libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK),
        cuts_segments: ethtool::offload(name, Offload::Segmentation).unwrap_or(false),
        segments: segments::read(index)?,
        rx_queues: sys::rx_queues(&socket, name),
    })
}

/// Largest IP packet of interface `name` of the namespace in which `socket` was made, in bytes.
///
/// # Errors
/// There is no such interface.
pub fn mtu(socket: BorrowedFd<'_>, name: &str) -> io::Result<u32> {
    sys::mtu(&socket, name)
}

/// Whether interface `name` of the namespace in which `socket` was made is switched on.
///
/// # Errors
/// There is no such interface.
pub fn is_up(socket: BorrowedFd<'_>, name: &str) -> io::Result<bool> {
    Ok(sys::flags(&socket, name)? & libc::IFF_UP != 0)
}

/// Whether it also has a carrier: a cable, and somebody at its other end (`IFF_RUNNING` of netdevice(7)).
///
/// # Errors
/// There is no such interface.
pub fn has_carrier(socket: BorrowedFd<'_>, name: &str) -> io::Result<bool> {
    Ok(sys::flags(&socket, name)? & libc::IFF_RUNNING != 0)
}

/// Sets the largest IP packet of interface `name`, in bytes.
///
/// # Errors
/// There is no such interface, it does not carry such packets, or the process may not.
pub fn set_mtu(name: &str, mtu: u32) -> io::Result<()> {
    sys::set_mtu(&control_socket()?, name, mtu)
}

/// Switches interface `name` on.
///
/// # Errors
/// There is no such interface, or the process may not.
pub fn set_up(name: &str) -> io::Result<()> {
    sys::set_up(&control_socket()?, name)
}
