//! One server machine under load: processors with levels and a scheduler, the NIC's processors, the
//! bus, and the clients that ask.
//!
//! Read docs/simulator.md first; what runs where is in `work.rs`. The files below follow a request:
//! `arrivals` makes it, `receive` takes it in, `processor` decides what runs, `server` serves it,
//! `offload` is the NIC. Time is simulated, randomness comes from the seed alone.
//!
//! Bounds: requests are limited by the scenario's check; every event belongs to one request, one
//! processor or one timer; a run ends at `workload.horizon_s` or after 500 million events at the latest
//! and says that it was cut.

mod arrivals;
pub mod bounds;
mod event;
mod job;
mod lengths;
mod offload;
mod outcome;
mod processor;
mod receive;
mod server;
mod start;
#[cfg(test)]
mod tests;
mod timeline;
mod work;

pub use lengths::{Lengths, MOST_SLICES, QUEUES};
pub use outcome::{Busy, Causes, Outcome, Times};
pub use timeline::{Level, Span};
pub use work::Work;

use std::collections::VecDeque;

use crate::{
    event::EventQueue,
    formula::packet_error_rate,
    rng::Rng,
    scenario::Scenario,
    statistics::meter::Meter,
    time::{NEVER, Ns, from_ms, from_us, round},
};
use arrivals::Request;
use event::{Event, Id};
use lengths::Watch;
use offload::NicState;
use processor::Core;
use receive::Queue;
use timeline::Timeline;

/// Most events of one run: some half a minute. A run beyond it is cut, and says so.
const MOST_EVENTS: u64 = 500_000_000;

/// Something with one server and first come, first served, of which only the end is of interest.
#[derive(Debug, Default)]
struct Pipe {
    free_at: Ns,
    meter: Meter,
    /// Work on its way, to settle the meter: (arrived, leaves).
    inside: VecDeque<(Ns, Ns)>,
}

impl Pipe {
    fn settle(&mut self, now: Ns) {
        while let Some((since, leaves)) = self.inside.front().copied().filter(|(_, l)| *l <= now) {
            self.inside.pop_front();
            self.meter.left(leaves, since);
        }
    }

    /// When work of this length that arrives now is done.
    fn pass(&mut self, now: Ns, length: Ns) -> Ns {
        self.settle(now);
        let begins = self.free_at.max(now);
        self.free_at = begins + length;
        self.meter.arrived(now);
        self.meter.began(begins - now);
        self.meter.busy(length);
        self.inside.push_back((now, self.free_at));
        self.free_at
    }
}

/// One run of a scenario.
#[derive(Debug)]
pub struct Machine<'a> {
    scenario: &'a Scenario,
    work: Work,
    rng: Rng,
    now: Ns,
    events: EventQueue<Event>,
    events_done: u64,
    most_events: u64,
    /// Packets on their way, by time; before events of the same time.
    packets: std::vec::IntoIter<(Ns, Id, bool)>,
    next_packet: Option<(Ns, Id, bool)>,
    requests: Vec<Request>,
    cores: Vec<Core>,
    queues: Vec<Queue>,
    nic: NicState,
    bus: Pipe,
    link: Pipe,
    answered: usize,
    dropped: usize,
    losses: u64,
    causes: Causes,
    timeline: Timeline,
    watch: Option<Watch>,
}

impl<'a> Machine<'a> {
    /// Handles events until the run ends or `most_events` are done.
    fn do_events<const WATCHED: bool>(&mut self) {
        let horizon = round(self.scenario.workload.horizon_s * 1e9);
        while self.answered + self.dropped < self.requests.len()
            && self.events_done < self.most_events
        {
            // Packets were put into the list before everything else: at one time they go first.
            let event_at = self.events.next_at().unwrap_or(NEVER);
            let packet_at = self.next_packet.map_or(NEVER, |(at, ..)| at);
            let at = event_at.min(packet_at);
            if at == NEVER {
                break;
            }
            if at > horizon {
                self.now = horizon;
                break;
            }
            self.now = at;
            self.events_done += 1;
            if packet_at <= event_at {
                let (_, request, last) = self.next_packet.take().expect("invariant: peeked");
                self.next_packet = self.packets.next();
                self.on_packet(request, last);
            } else if let Some((_, event)) = self.events.pop() {
                self.on_event(event);
            }
            if WATCHED {
                self.watch_lengths();
            }
        }
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Packet { request, last } => self.on_packet(request, last),
            Event::Finish { core, version } => self.on_finish(core, version),
            Event::Slice { core, version } => self.on_slice(core, version),
            Event::NicDone { unit } => self.on_nic_done(unit),
            Event::Tick => self.on_tick(),
            Event::Coalesce { queue, version } => self.on_coalesce(queue, version),
            Event::SetUp { core } => self.on_set_up(core),
            Event::Crossed { request, last } => self.announce(request, last),
            Event::Fetched { request } => self.nic_transmit(request),
            Event::Repeat { request } => self.on_repeat(request),
        }
    }

    fn after(&mut self, delay: Ns, event: Event) {
        self.events.push(self.now + delay, event);
    }

    fn client(&self, request: Id) -> usize {
        self.requests[request as usize].client as usize
    }

    /// How long the bus is held by this many bytes.
    fn bus_time(&self, bytes: f64) -> Ns {
        let bus = &self.scenario.bus;
        let rate = if bus.rate_gbps > 0.0 {
            bytes * 8.0 / bus.rate_gbps
        } else {
            0.0
        };
        round(rate + (bytes / 256.0).ceil() * bus.transaction_ns)
    }

    /// A response leaves the machine: the link, and perhaps a loss.
    fn reply(&mut self, request: Id) {
        if self.scenario.loss.bit_error_rate > 0.0 && self.packet_is_lost() {
            let wait = self.repeat_after(request);
            self.after(wait, Event::Repeat { request });
            return;
        }
        let bytes = self.scenario.workload.response_bytes;
        let at = if self.scenario.network.link_queue {
            let Some(sent) = self.through_link(request, bytes) else {
                self.drop_request(request);
                return;
            };
            let whole = arrivals::delay_us(&self.scenario.network, bytes);
            let rest = whole - arrivals::first_link_us(&self.scenario.network, bytes);
            sent + from_us(rest * self.jitter())
        } else {
            self.now + self.network_delay(bytes)
        };
        let row = &mut self.requests[request as usize];
        row.left = self.now;
        row.answered = at;
        self.answered += 1;
    }

    fn through_link(&mut self, request: Id, bytes: f64) -> Option<Ns> {
        let network = &self.scenario.network;
        let length = from_us(arrivals::first_link_us(network, bytes));
        self.link.settle(self.now);
        let waiting = self.link.inside.len() as f64 * bytes;
        if network.link_buffer_kib > 0.0 && waiting + bytes > network.link_buffer_kib * 1024.0 {
            return None;
        }
        let sent = self.link.pass(self.now, length);
        self.timeline
            .add(0, Level::Link, sent - length, sent, Some(request));
        Some(sent)
    }

    /// A request will not be answered.
    fn drop_request(&mut self, request: Id) {
        let row = &mut self.requests[request as usize];
        if !row.dropped {
            row.dropped = true;
            self.dropped += 1;
        }
    }

    /// How long until what was lost is repeated: the time-out doubles each time.
    fn repeat_after(&mut self, request: Id) -> Ns {
        self.losses += 1;
        let row = &mut self.requests[request as usize];
        let doublings = row.losses.min(6);
        row.losses = row.losses.saturating_add(1);
        from_ms(self.scenario.loss.timeout_ms) << doublings
    }

    fn packet_is_lost(&mut self) -> bool {
        let loss = &self.scenario.loss;
        let e = packet_error_rate(loss.bit_error_rate, loss.packet_bytes);
        self.rng.chance(e)
    }
}
