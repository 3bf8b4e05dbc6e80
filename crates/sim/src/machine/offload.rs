//! The NIC's processors: their queues, their memory, and the three ways of handing segments to the
//! host.

use std::collections::VecDeque;

use super::{
    Machine,
    event::{Event, Id},
    processor::SERVER,
    timeline::Level,
};
use crate::{
    scenario::{Dispatch, Distribution, Mode, Transfer},
    statistics::meter::Meter,
    time::{Ns, round},
};

#[derive(Debug, Clone, Copy)]
enum Then {
    Nothing,
    /// A segment is complete.
    Segment(Id),
    /// A response is on the link.
    Reply(Id),
}

#[derive(Debug, Clone, Copy)]
struct NicJob {
    request: Id,
    /// Length of each layer's part.
    layers: [Ns; 3],
    /// The layer at which a pipeline is.
    stage: usize,
    then: Then,
    receives: bool,
    since: Ns,
}

impl NicJob {
    fn whole(&self) -> Ns {
        self.layers.iter().sum()
    }
}

#[derive(Debug, Default)]
struct Unit {
    queue: VecDeque<NicJob>,
    job: Option<NicJob>,
}

#[derive(Debug, Default)]
pub(super) struct NicState {
    units: Vec<Unit>,
    /// For `dispatch = "shared"`.
    shared: VecDeque<NicJob>,
    pub busy: Ns,
    pub receive_meter: Meter,
    pub send_meter: Meter,
    memory_bytes: f64,
    pub memory_peak_bytes: f64,
}

impl NicState {
    pub fn new(cores: usize) -> Self {
        Self {
            units: std::iter::repeat_with(Unit::default).take(cores).collect(),
            ..Self::default()
        }
    }

    pub fn cores(&self) -> usize {
        self.units.len()
    }

    /// Jobs that wait or are being done.
    pub fn jobs(&self) -> usize {
        let own = |unit: &Unit| unit.queue.len() + usize::from(unit.job.is_some());
        self.shared.len() + self.units.iter().map(own).sum::<usize>()
    }

    fn meter(&mut self, receives: bool) -> &mut Meter {
        if receives {
            &mut self.receive_meter
        } else {
            &mut self.send_meter
        }
    }
}

impl Machine<'_> {
    fn packet_bytes(&self) -> f64 {
        self.scenario.workload.request_bytes / self.work.packets as f64
    }

    /// A packet arrives at the NIC.
    pub(super) fn nic_receive(&mut self, request: Id, last: bool) {
        if self.requests[request as usize].dropped {
            return;
        }
        let bytes = self.packet_bytes();
        let limit = self.scenario.nic.memory_kib * 1024.0;
        if limit > 0.0 && self.nic.memory_bytes + bytes > limit {
            self.release_memory(request);
            self.drop_request(request);
            return;
        }
        self.requests[request as usize].held += 1;
        self.nic.memory_bytes += bytes;
        self.nic.memory_peak_bytes = self.nic.memory_peak_bytes.max(self.nic.memory_bytes);
        let [link, network, transport] = self.work.receive_layers;
        let (layers, then) = if last {
            ([link, network, transport], Then::Segment(request))
        } else {
            ([link, network, 0], Then::Nothing)
        };
        self.nic_job(request, layers, then, true);
    }

    /// What a request held of the NIC's memory is free again.
    pub(super) fn release_memory(&mut self, request: Id) {
        let held = std::mem::take(&mut self.requests[request as usize].held);
        self.nic.memory_bytes -= f64::from(held) * self.packet_bytes();
    }

    fn nic_job(&mut self, request: Id, layers: [Ns; 3], then: Then, receives: bool) {
        let layers = match self.scenario.nic.service {
            // The check allows no samples here.
            Distribution::Fixed | Distribution::Empirical => layers,
            Distribution::Exponential => {
                let factor = self.rng.exponential(1.0);
                layers.map(|length| round(length as f64 * factor))
            }
        };
        let job = NicJob {
            request,
            layers,
            stage: 0,
            then,
            receives,
            since: self.now,
        };
        let now = self.now;
        self.nic.meter(receives).arrived(now);
        let cores = self.nic.cores();
        match self.scenario.nic.dispatch {
            Dispatch::Shared => {
                self.enqueue(None, job);
                if let Some(idle) = self.nic.units.iter().position(|unit| unit.job.is_none()) {
                    self.nic_next(idle);
                }
            }
            Dispatch::Flow => {
                let unit = self.client(request) % cores;
                self.offer(unit, job);
            }
            Dispatch::Pipeline => self.offer(0, job),
        }
    }

    fn offer(&mut self, unit: usize, job: NicJob) {
        self.enqueue(Some(unit), job);
        if self.nic.units[unit].job.is_none() {
            self.nic_next(unit);
        }
    }

    fn enqueue(&mut self, unit: Option<usize>, job: NicJob) {
        let queue = match unit {
            None => &mut self.nic.shared,
            Some(unit) => &mut self.nic.units[unit].queue,
        };
        if self.scenario.nic.receive_first && job.receives {
            let place = queue.iter().take_while(|other| other.receives).count();
            queue.insert(place, job);
        } else {
            queue.push_back(job);
        }
    }

    fn nic_next(&mut self, unit: usize) {
        let job = match self.scenario.nic.dispatch {
            Dispatch::Shared => self.nic.shared.pop_front(),
            Dispatch::Flow | Dispatch::Pipeline => self.nic.units[unit].queue.pop_front(),
        };
        self.nic.units[unit].job = job;
        let Some(job) = job else { return };
        let length = if self.scenario.nic.dispatch == Dispatch::Pipeline {
            self.layers_of(unit, &job)
        } else {
            job.whole()
        };
        let now = self.now;
        let meter = self.nic.meter(job.receives);
        if job.stage == 0 {
            meter.began(now - job.since);
        }
        meter.busy(length);
        self.nic.busy += length;
        let request = job.request;
        self.timeline
            .add(unit, Level::Nic, now, now + length, Some(request));
        self.after(length, Event::NicDone { unit });
    }

    /// The part of a job that a unit of the pipeline does: its layer, and the last unit all that
    /// follow.
    fn layers_of(&self, unit: usize, job: &NicJob) -> Ns {
        let last = self.nic.cores() - 1;
        let to = if unit == last { 3 } else { unit + 1 };
        job.layers.get(unit..to).unwrap_or_default().iter().sum()
    }

    pub(super) fn on_nic_done(&mut self, unit: usize) {
        let Some(mut job) = self.nic.units[unit].job else {
            return;
        };
        let pipeline = self.scenario.nic.dispatch == Dispatch::Pipeline;
        if pipeline && unit + 1 < self.nic.cores() {
            job.stage = unit + 1;
            self.offer(unit + 1, job);
        } else {
            let now = self.now;
            self.nic.meter(job.receives).left(now, job.since);
            match job.then {
                Then::Nothing => {}
                Then::Segment(request) => self.on_segment(request),
                Then::Reply(request) => self.reply(request),
            }
        }
        self.nic_next(unit);
    }

    /// A segment is complete in the NIC's memory.
    fn on_segment(&mut self, request: Id) {
        let core = self.server_core(request);
        let row = &mut self.cores[core];
        let waits =
            row.server.reading && row.processes[SERVER].blocked && row.server.stored.is_empty();
        if self.scenario.nic.mode == Mode::Push || waits {
            row.server.reading = false;
            self.hand_over(request);
            return;
        }
        row.server.stored.push_back(request);
        if self.scenario.nic.mode == Mode::Urgent {
            self.relieve();
        }
    }

    fn hand_over(&mut self, request: Id) {
        self.release_memory(request);
        let bytes = self.scenario.workload.request_bytes;
        self.send_to_host(request, true, bytes);
    }

    /// Urgent mode: above the high mark, stored segments go to the host until the low mark.
    fn relieve(&mut self) {
        let nic = &self.scenario.nic;
        let limit = nic.memory_kib * 1024.0;
        if self.nic.memory_bytes < nic.memory_high * limit {
            return;
        }
        for core in 0..self.cores.len() {
            while self.nic.memory_bytes > nic.memory_low * limit {
                let Some(request) = self.cores[core].server.stored.pop_front() else {
                    break;
                };
                self.causes.urgent += 1;
                self.hand_over(request);
            }
        }
    }

    /// The server has given a response to the NIC.
    pub(super) fn give_to_nic(&mut self, request: Id) {
        let bytes = self.scenario.workload.response_bytes;
        let length = self.bus_time(bytes);
        let latency = round(self.scenario.bus.read_latency_ns);
        if self.scenario.bus.transfer == Transfer::Dma && length + latency > 0 {
            let crossed = self.bus.pass(self.now, length);
            self.timeline
                .add(0, Level::Bus, crossed - length, crossed, Some(request));
            self.events
                .push(crossed + latency, Event::Fetched { request });
        } else {
            self.nic_transmit(request);
        }
    }

    pub(super) fn nic_transmit(&mut self, request: Id) {
        self.nic_job(
            request,
            self.work.transmit_layers,
            Then::Reply(request),
            false,
        );
    }

    /// An exchange is done again by the NIC alone.
    pub(super) fn nic_repeat(&mut self, request: Id) {
        let packets = self.work.packets as u64;
        let [link, network, transport] = self.work.receive_layers;
        let received = [link * packets, network * packets, transport];
        let mut layers = self.work.transmit_layers;
        for (layer, more) in layers.iter_mut().zip(received) {
            *layer += more;
        }
        self.nic_job(request, layers, Then::Reply(request), false);
    }
}
