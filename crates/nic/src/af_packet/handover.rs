//! A process that goes on with the socket, and the ring, of one that has ended: nothing that arrived meanwhile is lost, and
//! no ring is made anew.

use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd, RawFd};
use std::sync::Arc;

use bpf::Link;
use bpf::classic::Instruction;

use super::presence::{Fanout, FanoutMember};
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
    /// What a process after this one needs to go on; a socket of shared addresses is not handed over, nor one whose ring
    /// is made later.
    #[must_use]
    pub fn handover(&self) -> Option<Numbers> {
        let is_whole = self.config.sharing.is_none() && self.config.ring_later.is_none();
        is_whole.then(|| Numbers {
            socket: self.socket.as_raw_fd(),
            kernel_drop: self.kernel_drop.as_ref().map(|link| link.fd().as_raw_fd()),
            geometry: self.ring_geometry,
        })
    }

    /// Goes on with the socket of another process, which has ended; `None`: it is not what [`AfPacket::open`] would make, or it cannot be
    /// told where its ring stands.
    #[must_use]
    pub fn take_up(config: &Config, left: Handover) -> Option<Self> {
        // A member of a group gets a part of the frames.
        if sys::group(left.socket.as_fd()).ok()?.is_some() {
            return None;
        }
        let (mut taken, kernel_drop) = Self::take_up_socket(config, left)?;
        taken.keep_from_kernel_again(kernel_drop);
        Some(taken)
    }

    /// Goes on with the sockets of another process, all queues of a group; `None`: as of [`AfPacket::take_up`], with
    /// [`AfPacket::open_queues`].
    #[must_use]
    pub fn take_up_queues(
        config: &Config,
        left: Vec<Handover>,
        program: &[Instruction],
    ) -> Option<Vec<Self>> {
        let count = u16::try_from(left.len()).ok()?;
        let group = sys::group(left.first()?.socket.as_fd()).ok()??;
        let fanout = Arc::new(Fanout::taken_up(program, count, group));
        let (mut queues, mut links): (Vec<Self>, _) = (Vec::new(), None);
        for (number, left) in (0..).zip(left) {
            // Its place in the group is the order in which they joined, which the kernel keeps.
            if sys::group(left.socket.as_fd()).ok()? != Some(group) {
                return None;
            }
            let (mut queue, kernel_drop) = Self::take_up_socket(config, left)?;
            queue.caps.queues = count;
            queue.member = Some(FanoutMember::taken_up(&fanout, number));
            queues.push(queue);
            links = links.or(kernel_drop);
        }
        let first = queues.first_mut()?;
        // It may be another build's.
        bpf::classic::attach_fanout(first.socket.as_fd(), program).ok()?;
        first.keep_from_kernel_again(links);
        Some(queues)
    }

    /// A socket, and what kept the addresses' packets from the kernel.
    fn take_up_socket(config: &Config, left: Handover) -> Option<(Self, Option<Link>)> {
        let link = read(&config.interface).ok()?;
        let Handover {
            socket,
            kernel_drop,
            geometry: found,
        } = left;
        let is_alone = config.sharing.is_none();
        if !is_alone
            || found != geometry(config, &link, false)
            || !sys::is_bound(socket.as_fd(), link.index)
        {
            return None;
        }
        set_bypass(socket.as_fd(), &link).ok()?;
        let ring = Ring::take_up(&socket, found).ok()??;
        let taken = Self::with(config, socket, (Some(ring), found), &link);
        taken.filter(taken.socket.as_fd(), config).ok()?;
        Some((taken, kernel_drop.map(Link::from_fd)))
    }

    fn keep_from_kernel_again(&mut self, kernel_drop: Option<Link>) {
        match kernel_drop.filter(|link| matches!(link.is_attached(), Ok(true))) {
            Some(link) if self.config.alone => self.kernel_drop = Some(link),
            _ => {
                let config = self.config.clone();
                self.drop_kernel_copy(&config);
            }
        }
    }
}
