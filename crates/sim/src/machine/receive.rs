//! From the wire to the socket: interrupts and their moderation, bottom halves, polling, the ring of
//! a user-level library.

use std::collections::VecDeque;

use super::{
    Machine,
    event::{Event, Id},
    job::After,
    processor::{POLL_THREAD, SERVER},
    timeline::Level,
};
use crate::{
    rss::queue_of,
    scenario::{BottomHalf, Kind, Placement, Receive, Repeat, Transfer},
    time::{Ns, from_ms, from_us},
};

/// A receive queue of the device.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// Announced by no interrupt yet.
    pending: VecDeque<(Id, bool)>,
    /// Announced by an interrupt that has not ended.
    raised: VecDeque<(Id, bool)>,
    version: u32,
    /// Interrupts are masked and the queue is polled.
    polled: bool,
    pub frames: u64,
}

impl Queue {
    /// Packets that the device holds for the host.
    pub fn held(&self) -> usize {
        self.pending.len() + self.raised.len()
    }
}

impl Machine<'_> {
    pub(super) fn queue(&self, request: Id) -> usize {
        match self.queues.len() {
            1 => 0,
            queues => queue_of(self.client(request), queues),
        }
    }

    pub(super) fn server_core(&self, request: Id) -> usize {
        let cores = self.cores.len();
        match self.scenario.host.placement {
            Placement::Spread => self.client(request) % cores,
            Placement::Affine => self.queue(request) % cores,
        }
    }

    pub(super) fn on_packet(&mut self, request: Id, last: bool) {
        let lossy = self.scenario.loss.repeat == Repeat::Packet;
        if lossy && self.scenario.loss.bit_error_rate > 0.0 && self.packet_is_lost() {
            // The device drops a broken frame by itself; the client repeats it.
            let wait = self.repeat_after(request);
            self.after(wait, Event::Packet { request, last });
            return;
        }
        if last {
            self.requests[request as usize].arrived = self.now;
        }
        if self.scenario.stack.kind == Kind::Nic {
            self.nic_receive(request, last);
        } else {
            let bytes = self.scenario.workload.request_bytes / self.work.packets as f64;
            self.send_to_host(request, last, bytes);
        }
    }

    /// A packet or segment crosses the bus, if that takes time, and is announced.
    pub(super) fn send_to_host(&mut self, request: Id, last: bool, bytes: f64) {
        let length = self.bus_time(bytes);
        if self.scenario.bus.transfer == Transfer::Dma && length > 0 {
            let at = self.bus.pass(self.now, length);
            self.timeline
                .add(0, Level::Bus, at - length, at, Some(request));
            self.events.push(at, Event::Crossed { request, last });
        } else {
            self.announce(request, last);
        }
    }

    /// The device has a packet or segment for the host.
    pub(super) fn announce(&mut self, request: Id, last: bool) {
        let queue = self.queue(request);
        self.queues[queue].frames += 1;
        let stack = &self.scenario.stack;
        if stack.busy_poll {
            let core = self.server_core(request);
            self.join_ring(core, request, last);
        } else if stack.kind == Kind::Kernel && stack.bottom_half == BottomHalf::Napi {
            self.announce_masked(queue, request, last);
        } else if self.scenario.interrupts.frames == 1 {
            self.causes.single += 1;
            let work = self.work.interrupt + self.announcement(last);
            let core = queue % self.cores.len();
            self.push_interrupt(core, work, After::Received { request, last });
            self.kick(core);
        } else {
            self.hold(queue, request, last);
        }
    }

    /// What an interrupt pays for one packet.
    fn announcement(&self, last: bool) -> Ns {
        let work = &self.work;
        let protocol = match (work.in_interrupt, last) {
            (false, _) => 0,
            (true, false) => work.receive,
            (true, true) => work.receive + work.segment,
        };
        work.announced + protocol
    }

    /// Interrupt moderation: every N frames, T after the first, or when the ring is full.
    fn hold(&mut self, queue: usize, request: Id, last: bool) {
        let settings = &self.scenario.interrupts;
        let row = &mut self.queues[queue];
        let limit = settings.ring_frames;
        if limit > 0 && row.pending.len() + row.raised.len() >= limit {
            self.drop_request(request);
            return;
        }
        row.pending.push_back((request, last));
        let held = row.pending.len();
        if settings.frames > 0 && held >= settings.frames {
            self.causes.frames += 1;
            self.raise(queue);
        } else if limit > 0 && held + row.raised.len() >= limit {
            self.causes.ring_full += 1;
            self.raise(queue);
        } else if held == 1 && settings.after_us > 0.0 {
            let version = row.version;
            let wait = from_us(settings.after_us);
            self.after(wait, Event::Coalesce { queue, version });
        }
    }

    pub(super) fn on_coalesce(&mut self, queue: usize, version: u32) {
        if self.queues[queue].version == version && !self.queues[queue].pending.is_empty() {
            self.causes.timer += 1;
            self.raise(queue);
        }
    }

    fn raise(&mut self, queue: usize) {
        let row = &mut self.queues[queue];
        row.version = row.version.wrapping_add(1);
        let packets = u32::try_from(row.pending.len()).unwrap_or(u32::MAX);
        let lasts: Vec<bool> = row.pending.iter().map(|(_, last)| *last).collect();
        row.raised.append(&mut row.pending);
        let announced: Ns = lasts.into_iter().map(|last| self.announcement(last)).sum();
        let core = queue % self.cores.len();
        let after = After::Announced { queue, packets };
        self.push_interrupt(core, self.work.interrupt + announced, after);
        self.kick(core);
    }

    pub(super) fn on_announced(&mut self, core: usize, queue: usize, packets: u32) {
        for _ in 0..packets {
            if let Some((request, last)) = self.queues[queue].raised.pop_front() {
                self.received(core, request, last);
            }
        }
    }

    /// The interrupt has taken a packet or segment from the device.
    pub(super) fn received(&mut self, core: usize, request: Id, last: bool) {
        let stack = &self.scenario.stack;
        match (stack.kind, stack.receive) {
            (Kind::Kernel, _) => self.join_backlog(core, request, last),
            (Kind::User, Receive::Process) => {
                let server_core = self.server_core(request);
                if server_core != core && self.work.handover > 0 {
                    let after = After::Ring { request, last };
                    self.push_interrupt(server_core, self.work.handover, after);
                    self.kick(server_core);
                } else {
                    self.join_ring(server_core, request, last);
                }
            }
            (Kind::User, Receive::Interrupt) | (Kind::Nic, _) => {
                if last {
                    self.deliver(core, request);
                }
            }
        }
    }

    fn join_backlog(&mut self, core: usize, request: Id, last: bool) {
        let stack = &self.scenario.stack;
        let row = &mut self.cores[core];
        if stack.backlog_packets > 0 && row.halves.len() >= stack.backlog_packets {
            self.drop_request(request);
            return;
        }
        row.halves_run |= match stack.bottom_half {
            BottomHalf::Immediate => true,
            BottomHalf::Sched | BottomHalf::Sysret => row.process.is_none(),
            BottomHalf::Tick | BottomHalf::Napi => false,
        };
        let (work, after) = self.protocol(request, last);
        self.push_half(core, work, after);
    }

    /// The layers below the socket of one packet.
    fn protocol(&self, request: Id, last: bool) -> (Ns, After) {
        if last {
            let work = self.work.receive + self.work.segment;
            (work, After::Deliver(request))
        } else {
            (self.work.receive, After::Nothing)
        }
    }

    pub(super) fn join_ring(&mut self, core: usize, request: Id, last: bool) {
        let row = &mut self.cores[core];
        if last {
            row.server_meter.arrived(self.now);
        }
        row.server.ring.push_back((request, last, self.now));
        self.end_spin(core);
        self.wake(core, SERVER);
    }

    pub(super) fn on_tick(&mut self) {
        for core in 0..self.cores.len() {
            if !self.cores[core].halves.is_empty() {
                self.cores[core].halves_run = true;
                self.kick(core);
            }
        }
        let period = from_ms(self.scenario.stack.tick_ms);
        self.after(period, Event::Tick);
    }

    /// One interrupt, then polling until the ring is empty (Linux: NAPI). A full ring drops for free.
    fn announce_masked(&mut self, queue: usize, request: Id, last: bool) {
        let limit = self.scenario.interrupts.ring_frames;
        let row = &mut self.queues[queue];
        if limit > 0 && row.pending.len() >= limit {
            self.drop_request(request);
            return;
        }
        row.pending.push_back((request, last));
        if !row.polled {
            row.polled = true;
            self.causes.single += 1;
            let core = queue % self.cores.len();
            self.push_interrupt(core, self.work.interrupt, After::Poll { queue });
            self.kick(core);
        }
    }

    /// Polls one packet as a bottom half, or leaves the rest to the thread when the budget is spent.
    pub(super) fn poll(&mut self, core: usize, queue: usize, budget: u32) {
        if budget == 0 {
            self.wake(core, POLL_THREAD);
            return;
        }
        let Some((request, last)) = self.queues[queue].pending.pop_front() else {
            self.queues[queue].polled = false;
            return;
        };
        let (work, _) = self.protocol(request, last);
        let after = After::Polled {
            queue,
            request,
            last,
            left: budget - 1,
        };
        self.push_half(core, self.work.announced + work, after);
        self.cores[core].halves_run = true;
    }

    /// The thread polls the queues of its processor as a process among others.
    pub(super) fn poll_thread_item(&mut self, core: usize) -> Option<super::job::Job> {
        let cores = self.cores.len();
        for queue in (core..self.queues.len()).step_by(cores) {
            if !self.queues[queue].polled {
                continue;
            }
            if let Some((request, last)) = self.queues[queue].pending.pop_front() {
                let (work, after) = self.protocol(request, last);
                let work = self.work.announced + work;
                return Some(super::job::Job::process(work, after, true, self.now));
            }
            self.queues[queue].polled = false;
        }
        None
    }

    pub(super) fn on_set_up(&mut self, core: usize) {
        let work = self.work.set_up_interrupt;
        match self.scenario.stack.kind {
            Kind::Nic => self.push_interrupt(core, work, After::Nothing),
            Kind::Kernel => {
                for half in self.work.set_up {
                    self.push_interrupt(core, work, After::SetUp(half));
                }
            }
            Kind::User => {
                for half in self.work.set_up {
                    self.push_interrupt(core, work + half, After::Nothing);
                }
            }
        }
        self.kick(core);
    }
}
