//! How a run begins, what follows each job, and what a loss makes do.

use super::{
    Causes, Machine, arrivals,
    event::{Event, Id},
    job::After,
    offload::NicState,
    processor::{Core, FIRST_BACKGROUND, POLL_THREAD, SERVER},
    receive::Queue,
    timeline::Timeline,
    work::Work,
};
use crate::{
    event::EventQueue,
    rng::Rng,
    scenario::{BottomHalf, Kind, Repeat, Scenario},
    time::{Ns, from_ms},
};

impl<'a> Machine<'a> {
    pub(super) fn new(scenario: &'a Scenario, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let requests = arrivals::requests(&scenario.workload, &mut rng);
        let core = || Core::new(FIRST_BACKGROUND + scenario.host.background);
        Self {
            scenario,
            work: Work::new(scenario),
            rng,
            now: 0,
            events: EventQueue::default(),
            events_done: 0,
            most_events: super::MOST_EVENTS,
            packets: Vec::new().into_iter(),
            next_packet: None,
            requests,
            cores: std::iter::repeat_with(core)
                .take(scenario.host.cores)
                .collect(),
            queues: std::iter::repeat_with(Queue::default)
                .take(scenario.interrupts.queues)
                .collect(),
            nic: NicState::new(scenario.nic.cores),
            bus: super::Pipe::default(),
            link: super::Pipe::default(),
            answered: 0,
            dropped: 0,
            losses: 0,
            causes: Causes::default(),
            timeline: Timeline::default(),
            watch: None,
        }
    }

    pub(super) fn start(&mut self, background_phase: Ns) {
        self.packets = self.packets_of_requests().into_iter();
        self.next_packet = self.packets.next();
        let stack = &self.scenario.stack;
        if stack.bottom_half == BottomHalf::Tick && stack.kind == Kind::Kernel {
            self.after(from_ms(stack.tick_ms), Event::Tick);
        }
        let cores = self.cores.len();
        for connection in 0..self.scenario.workload.connections {
            let core = connection % cores;
            self.after(0, Event::SetUp { core });
        }
        for core in 0..cores {
            self.start_processes(core, background_phase);
        }
    }

    /// Rule 6: the server is blocked, and the background has used a part of its first slice. With
    /// nothing in the background the server finds by itself that there is nothing to do.
    fn start_processes(&mut self, core: usize, background_phase: Ns) {
        let background = self.scenario.host.background;
        let row = &mut self.cores[core];
        row.processes[POLL_THREAD].blocked = true;
        let endless = FIRST_BACKGROUND..FIRST_BACKGROUND + background;
        if background == 0 {
            row.run_queue.push_back(SERVER);
            self.kick(core);
        } else {
            row.processes[SERVER].blocked = true;
            row.server.reading = true;
            row.run_queue.extend(endless);
            self.kick(core);
            let slice = from_ms(self.scenario.host.quantum_ms);
            self.slice_ends_after(core, slice.saturating_sub(background_phase));
            if self.scenario.stack.busy_poll {
                // A server that never sleeps competes from the start.
                self.wake(core, SERVER);
            }
        }
    }

    /// What follows when a job is done.
    pub(super) fn on_done(&mut self, core: usize, after: After) {
        match after {
            After::Nothing => {}
            After::Announced { queue, packets } => self.on_announced(core, queue, packets),
            After::Received { request, last } => self.received(core, request, last),
            After::Poll { queue } => {
                let budget = u32::try_from(self.scenario.stack.poll_budget).unwrap_or(u32::MAX);
                self.poll(core, queue, budget);
            }
            After::Polled {
                queue,
                request,
                last,
                left,
            } => {
                if last {
                    self.deliver(core, request);
                }
                self.poll(core, queue, left);
            }
            After::Deliver(request) => self.deliver(core, request),
            After::Ring { request, last } => self.join_ring(core, request, last),
            After::Read(request) => self.on_read(core, request),
            After::Reply(request) => self.reply(request),
            After::ToNic(request) => self.give_to_nic(request),
            After::SetUp(work) => {
                self.push_half(core, work, After::Nothing);
                let at_once = self.scenario.stack.bottom_half != BottomHalf::Sched
                    && self.scenario.stack.bottom_half != BottomHalf::Sysret;
                self.cores[core].halves_run |= at_once;
            }
        }
    }

    /// What was lost is done again: the whole exchange, or the response alone, by the stack's owner.
    pub(super) fn on_repeat(&mut self, request: Id) {
        let whole = self.scenario.loss.repeat == Repeat::Exchange;
        let core = self.server_core(request);
        match (self.scenario.stack.kind, whole) {
            (Kind::Nic, true) => self.nic_repeat(request),
            (Kind::Nic, false) => self.nic_transmit(request),
            (_, true) => {
                for packet in 1..=self.work.packets {
                    self.on_packet(request, packet == self.work.packets);
                }
            }
            (Kind::Kernel, false) => {
                self.push_half(core, self.work.transmit, After::Reply(request));
                self.cores[core].halves_run = true;
                self.kick(core);
            }
            (Kind::User, false) => {
                self.cores[core].server.repeats.push_back(request);
                self.end_spin(core);
                self.wake(core, SERVER);
            }
        }
    }
}
