//! A process that goes on with the socket, and the ring, of one that has ended: nothing that arrived meanwhile is lost, and
//! no ring is made anew.

use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd, RawFd};

use bpf::Link;
use rustix::net::{RecvFlags, recv};

use super::{AfPacket, Config, Geometry, Ring, geometry, read, set_bypass, sys};

/// What is to be remembered for a process that has the same descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Numbers {
    /// The packet socket.
    pub socket: RawFd,
    /// What keeps the addresses' packets from the kernel, if anything does.
    pub kernel_drop: Option<RawFd>,
    /// The ring of the socket.
    pub geometry: Geometry,
}

/// What another process has left.
#[derive(Debug)]
pub struct Handover {
    /// The packet socket.
    pub socket: OwnedFd,
    /// What keeps the addresses' packets from the kernel.
    pub kernel_drop: Option<OwnedFd>,
    /// The ring of the socket.
    pub geometry: Geometry,
}

impl AfPacket {
    /// What a process after this one needs to go on; a socket of a group, or of shared addresses, is not handed over.
    #[must_use]
    pub fn handover(&self) -> Option<Numbers> {
        let is_alone = self.member.is_none() && self.config.sharing.is_none();
        is_alone.then(|| Numbers {
            socket: self.socket.as_raw_fd(),
            kernel_drop: self.kernel_drop.as_ref().map(|link| link.fd().as_raw_fd()),
            geometry: self.ring_geometry,
        })
    }

    /// Goes on with the socket of another process, which has ended; `None`: it is not what [`AfPacket::open`] would make, or it cannot be
    /// told where its ring stands.
    #[must_use]
    pub fn take_up(config: &Config, left: Handover) -> Option<Self> {
        let link = read(&config.interface).ok()?;
        let Handover {
            socket,
            kernel_drop,
            geometry: found,
        } = left;
        let is_alone = config.sharing.is_none();
        if !is_alone
            || found != geometry(config, &link)
            || !sys::is_bound(socket.as_fd(), link.index)
        {
            return None;
        }
        // One that waits is the rest of a frame in the ring, and of which one is not known.
        if recv(
            &socket,
            &mut [0; 1][..],
            RecvFlags::DONTWAIT | RecvFlags::PEEK,
        )
        .is_ok()
        {
            return None;
        }
        set_bypass(socket.as_fd(), &link).ok()?;
        let ring = Ring::take_up(&socket, found).ok()??;
        let mut taken = Self::with(config, socket, (ring, found), &link);
        taken.filter(config).ok()?;
        let kernel_drop = kernel_drop.map(Link::from_fd);
        match kernel_drop.filter(|link| matches!(link.is_attached(), Ok(true))) {
            Some(link) if config.alone => taken.kernel_drop = Some(link),
            _ => taken.drop_kernel_copy(config),
        }
        Some(taken)
    }
}
