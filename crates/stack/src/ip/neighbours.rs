//! What happens to routes and flows when a neighbour is found or does not answer.

use super::Ip;
use crate::error::Error;
use crate::link::interface::InterfaceId;
use crate::link::neighbour::{Expiry, ExternalNeighbour, NeighbourState, Probe, Readiness};
use core::net::IpAddr;
use tcp::Instant;
use wire::ethernet;

impl Ip {
    /// Where neighbour `n` is; if that is not known yet, it is asked for.
    #[inline]
    pub(crate) fn resolve(&mut self, now: Instant, n: u32) -> Option<ethernet::Address> {
        match self.link.neighbours.ready(now, n) {
            Readiness::Ready(hardware) => {
                if self.link.neighbours.deadline(n).is_some() {
                    self.link.arm_neighbour(n);
                }
                Some(hardware)
            }
            Readiness::Waiting(probe) => {
                if let Some(probe) = probe {
                    self.ask_for(n, probe);
                }
                None
            }
        }
    }

    /// Asks where neighbour `n` is. Too many of whom nothing is known cost the oldest its place.
    #[cold]
    fn ask_for(&mut self, n: u32, probe: Probe) {
        self.link.ask(probe);
        self.link.arm_neighbour(n);
        if let Some(oldest) = self.link.neighbours.excess_incomplete() {
            self.neighbour_failed(oldest);
        }
    }

    /// Remembers who asked for us: it will get packets next (RFC 4861 §7.2.3).
    pub(super) fn learn_neighbour(
        &mut self,
        now: Instant,
        id: InterfaceId,
        address: IpAddr,
        hardware: ethernet::Address,
    ) {
        if !self.link.interfaces.is_unicast(address) {
            return;
        }
        let entry = match self.link.neighbours.find(id, address) {
            None => self.link.neighbours.learn(now, id, address),
            found => found,
        };
        if let Some(n) = entry {
            self.link.neighbours.heard(now, n, hardware, false);
            self.link.arm_neighbour(n);
            self.wake_waiters(n);
        }
    }

    /// What the host knows of a neighbour; `None`: that it does not exist.
    pub(crate) fn set_neighbour(
        &mut self,
        now: Instant,
        interface: InterfaceId,
        address: IpAddr,
        hardware: Option<ethernet::Address>,
    ) -> Result<(), Error> {
        let link = &mut self.link;
        link.interfaces.find(interface).ok_or(Error::NotFound)?;
        let n = link.neighbours.want(now, interface, address);
        let n = n.ok_or(Error::NoMemory)?;
        match hardware {
            Some(hardware) => {
                self.link.neighbours.set_permanent(n, hardware);
                self.wake_waiters(n);
            }
            None => self.neighbour_failed(n),
        }
        self.link.arm_neighbour(n);
        Ok(())
    }

    /// What the host has heard of a neighbour by itself.
    pub(crate) fn hear_of_neighbour(
        &mut self,
        interface: InterfaceId,
        address: IpAddr,
        heard: ExternalNeighbour,
    ) {
        let Some(n) = self.link.neighbours.find(interface, address) else {
            return;
        };
        match heard {
            ExternalNeighbour::At(hardware) => {
                self.link.neighbours.set_permanent(n, hardware);
                self.wake_waiters(n);
            }
            ExternalNeighbour::Silent => self.neighbour_failed(n),
            ExternalNeighbour::Forgotten => {
                if self.link.neighbours.entry(n).state == NeighbourState::Permanent {
                    self.link.neighbours.set_failed(n);
                }
            }
        }
        self.link.arm_neighbour(n);
    }

    /// Those who were found on an interface are asked for again, but those of whom the host has said where they are.
    pub(crate) fn forget_neighbours_on(&mut self, now: Instant, interface: InterfaceId) {
        let there = self.link.neighbours.iter(now);
        let there = there.filter(|one| one.interface == interface);
        let there: Vec<IpAddr> = there.map(|one| one.address).collect();
        for address in there {
            if let Some(n) = self.link.neighbours.find(interface, address)
                && !matches!(
                    self.link.neighbours.entry(n).state,
                    // Those of whom nothing is known are being asked for anyway.
                    NeighbourState::Permanent | NeighbourState::Incomplete
                )
            {
                self.link.neighbours.set_failed(n);
                self.link.arm_neighbour(n);
            }
        }
    }

    /// The timer of neighbour `n` has expired.
    pub(crate) fn handle_neighbour_timer(&mut self, now: Instant, n: u32) {
        match self.link.neighbours.handle_timeout(now, n) {
            Expiry::Nothing => {}
            Expiry::Ask(probe) => self.link.ask(probe),
            Expiry::Unreachable => self.neighbour_failed(n),
        }
        self.link.arm_neighbour(n);
    }

    /// Nobody has the address: those who wait hear of it, as Linux's `arp_error_report` does it.
    fn neighbour_failed(&mut self, n: u32) {
        self.link.counters.neighbour_failures += 1;
        self.link.neighbours.set_failed(n);
        self.link.waiting.on_neighbour_changed();
        self.link.arm_neighbour(n);
        let (interface, address) = self.link.neighbours.place(n);
        self.forget_redirects_to(interface, address);
        // RFC 4861 §7.2.2, §6.3.6: what waits for a router goes by another one.
        let has_other_way = self.routes.on_silent_router(interface, address);
        while let Some(index) = self.flows.pop_waiter(n, &mut self.link.neighbours) {
            if has_other_way {
                self.flows.senders.push(index);
            } else {
                self.flows.failed.push(index);
            }
        }
    }

    /// Those who waited for neighbour `n` may go on, if it is known now.
    pub(crate) fn wake_waiters(&mut self, n: u32) {
        use NeighbourState as S;
        if matches!(
            self.link.neighbours.entry(n).state,
            S::Incomplete | S::Failed
        ) {
            return;
        }
        if self.routes.has_silent_routers() {
            let (interface, address) = self.link.neighbours.place(n);
            self.routes.on_heard_router(interface, address);
        }
        self.link.waiting.on_neighbour_changed();
        while let Some(index) = self.flows.pop_waiter(n, &mut self.link.neighbours) {
            self.flows.senders.push(index);
        }
    }
}
