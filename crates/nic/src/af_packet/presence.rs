//! An interface that goes down, goes away and comes back. A packet socket outlives both (`packet_notifier` in the
//! kernel's net/packet/af_packet.c): switched on again, the interface goes on filling its ring. One that was made anew
//! under the old name is another interface, to which the socket is bound again; a socket of a fanout group cannot
//! be, and another takes its place.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use netlink::interface;
use rustix::io::{DupFlags, dup3};
use rustix::net::{netdevice, sockopt};

use super::{AfPacket, OpenError, caps, filter, sys};
use crate::driver::Presence;
use bpf::classic::Instruction;

/// What queues have in common: the group, and the program that chooses among its members by their order.
#[derive(Debug)]
pub(super) struct Fanout {
    program: Vec<Instruction>,
    count: u16,
    group: Mutex<Option<Made>>,
}

/// The generation of a group that came from another process.
const TAKEN_UP: u32 = 1;

/// The group that was made last.
#[derive(Debug, Clone, Copy)]
struct Made {
    group: sys::Group,
    /// From 1: one for each interface of the name.
    generation: u32,
    members: u16,
}

impl Fanout {
    pub(super) fn new(program: &[Instruction], count: u16) -> Self {
        Self {
            program: program.to_vec(),
            count,
            group: Mutex::new(None),
        }
    }

    /// A group whose members all came from another process.
    pub(super) fn taken_up(program: &[Instruction], count: u16, group: sys::Group) -> Self {
        let made = Made {
            group,
            generation: TAKEN_UP,
            members: count,
        };
        Self {
            group: Mutex::new(Some(made)),
            ..Self::new(program, count)
        }
    }

    fn made(&self) -> MutexGuard<'_, Option<Made>> {
        self.group.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One queue, a member of a group.
#[derive(Debug)]
pub(super) struct FanoutMember {
    fanout: Arc<Fanout>,
    number: u16,
    /// Of the group that it belongs to.
    generation: u32,
}

impl FanoutMember {
    pub(super) fn new(fanout: &Arc<Fanout>, number: u16) -> Self {
        Self {
            fanout: Arc::clone(fanout),
            number,
            generation: 0,
        }
    }

    /// A member of a group that was taken up.
    pub(super) fn taken_up(fanout: &Arc<Fanout>, number: u16) -> Self {
        Self {
            generation: TAKEN_UP,
            ..Self::new(fanout, number)
        }
    }

    /// Binds `socket` and makes the next group, as the first of the queues, or joins it after the queues before it: the
    /// program counts members. It receives nothing yet: what is another member's shall not come here, and no core answer
    /// for a connection that it does not know.
    pub(super) fn join(&mut self, socket: BorrowedFd<'_>, interface: u32) -> io::Result<()> {
        bpf::classic::attach(socket, &filter::NOTHING)?;
        sys::bind(socket, interface)?;
        let mut there = self.fanout.made();
        if self.number == 0 {
            let group = sys::found_group(socket, &self.fanout.program)?;
            self.generation += 1;
            *there = Some(Made {
                group,
                generation: self.generation,
                members: 1,
            });
            return Ok(());
        }
        let is_next =
            |made: &&mut Made| made.generation > self.generation && made.members == self.number;
        let made = there.as_mut().filter(is_next);
        let made = made.ok_or(io::ErrorKind::WouldBlock)?;
        sys::join_group(socket, made.group)?;
        made.members += 1;
        self.generation = made.generation;
        Ok(())
    }

    /// Whether all have joined.
    fn is_complete(&self) -> bool {
        let is_whole =
            |made: &Made| made.generation == self.generation && made.members == self.fanout.count;
        self.fanout.made().as_ref().is_some_and(is_whole)
    }
}

impl AfPacket {
    /// The interface takes or brings nothing: said once, until [`Self::look`] has found it.
    pub(super) fn miss(&mut self, error: &io::Error) -> io::Result<()> {
        if std::mem::replace(&mut self.is_away, true) {
            return Ok(());
        }
        let text = format!("interface {:?} is down or gone: {error}", self.interface);
        Err(io::Error::new(io::ErrorKind::NetworkUnreachable, text))
    }

    pub(super) fn look(&mut self) -> Presence {
        // The socket tells of each change once; it is looked at now.
        let _ = sockopt::socket_error(&self.socket);
        if sys::is_bound(self.socket.as_fd(), self.index) && !self.awaits_others {
            return self.look_at_known();
        }
        self.is_away = true;
        match self.take_back() {
            Ok(Some(index)) => Presence::Back { index },
            // Not there, not up yet, or gone again.
            Ok(None) | Err(_) => Presence::Gone,
        }
    }

    /// The interface that was opened exists, by whatever name.
    fn look_at_known(&mut self) -> Presence {
        let socket = self.socket.as_fd();
        if let Ok(name) = netdevice::index_to_name(socket, self.index) {
            self.interface = name;
        }
        let is_up = interface::is_up(socket, &self.interface).unwrap_or(true);
        // Frames longer than those of the ring take a system call each.
        self.caps.mtu = interface::mtu(socket, &self.interface).unwrap_or(self.caps.mtu);
        self.is_away = !is_up;
        self.look_for_carrier();
        if is_up { Presence::Up } else { Presence::Down }
    }

    /// A device without a carrier answers like one that is busy.
    pub(super) fn look_for_carrier(&mut self) {
        let has_carrier = interface::has_carrier(self.socket.as_fd(), &self.interface);
        self.lacks_carrier = matches!(has_carrier, Ok(false));
        if self.lacks_carrier {
            self.retry.on_taken();
        }
    }

    /// Takes the interface that has the name now into use, if there is one and it is switched on: only then can a
    /// socket join a group.
    fn take_back(&mut self) -> Result<Option<u32>, OpenError> {
        let name = self.config.interface.clone();
        if !interface::is_up(self.socket.as_fd(), &name).unwrap_or(false) {
            return Ok(None);
        }
        let link = interface::read(&name).map_err(self.failed("reading the interface"))?;
        if !link.is_ethernet {
            return Ok(None);
        }
        if let Some(mut member) = self.member.take() {
            let taken = self.join_group(&mut member, link.index);
            self.member = Some(member);
            if !taken? {
                return Ok(None);
            }
        } else {
            sys::bind(self.socket.as_fd(), link.index).map_err(self.failed("bind"))?;
        }
        for group in &self.groups {
            // A device that does not take more groups gets none of those frames, as the first time.
            let _ = sys::change_membership(self.socket.as_fd(), link.index, *group, true);
        }
        if let Some(sharing) = &self.config.sharing {
            // Where that fails it is said: `complaints`.
            let _ = sharing.follow(link.index);
        }
        self.index = link.index;
        self.interface = name;
        if self.kernel_drop.take().is_some() {
            let config = self.config.clone();
            self.drop_kernel_copy(&config);
        }
        let queues = self.caps.queues;
        self.caps = caps(&link);
        self.caps.queues = queues;
        self.is_away = false;
        Ok(Some(link.index))
    }

    /// Puts a socket of a new group in the place of this one; what was in the ring is lost. Whether all queues have
    /// one: only then it receives.
    fn join_group(&mut self, member: &mut FanoutMember, index: u32) -> Result<bool, OpenError> {
        let config = self.config.clone();
        if !sys::is_bound(self.socket.as_fd(), index) {
            self.awaits_others = false;
            let (fresh, _) = Self::prepare(&config)?;
            member
                .join(fresh.socket.as_fd(), index)
                .map_err(self.failed("joining the fanout group"))?;
            let Self {
                ring,
                socket,
                ring_geometry,
                ..
            } = fresh;
            // The ring is unmapped before its socket closes.
            self.ring = ring;
            self.ring_geometry = ring_geometry;
            // Under the same number, which whoever goes on looks at.
            dup3(&socket, &mut self.socket, DupFlags::CLOEXEC)
                .map_err(|errno| self.failed("dup3")(errno.into()))?;
            self.awaits_others = true;
        }
        if !member.is_complete() {
            return Ok(false);
        }
        self.filter(self.socket.as_fd(), &config)?;
        self.awaits_others = false;
        Ok(true)
    }

    /// What is to be said of an interface that is not there.
    pub(super) fn absence(&self) -> Option<String> {
        let name = &self.config.interface;
        if self.awaits_others || !sys::is_bound(self.socket.as_fd(), self.index) {
            return Some(format!(
                "interface {name:?} is gone: connections wait for it until their time is over; one of that name is taken into use as soon as it is up"
            ));
        }
        let is_up = interface::is_up(self.socket.as_fd(), &self.interface).unwrap_or(true);
        let interface = &self.interface;
        if !is_up {
            return Some(format!(
                "interface {interface:?} is down: connections wait for it until their time is over; `ip link set {interface} up`"
            ));
        }
        let has_carrier = interface::has_carrier(self.socket.as_fd(), interface).unwrap_or(true);
        (!has_carrier).then(|| format!("interface {interface:?} has no carrier: what is sent is lost until it has one; look at the cable and at the device at its other end"))
    }
}
