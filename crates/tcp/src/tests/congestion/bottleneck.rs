//! Flows that share one bottleneck on virtual time: a queue in bytes in front of a link of fixed rate, a
//! delay each way, seeded random loss. ACKs come back unhindered.

use crate::tests::harness::{IRS, ISS};
use crate::{
    Algorithm, Config, Connection, Duration, Instant, RangeSlot, ReceiveWindow, SeqNumber,
    SocketOptions, Transmit, TransmitLimits,
    send::flight_pool::{FlightPool, NoPool, OneBlock},
};
use std::collections::BTreeMap;
use wire::ecn::Ecn;

/// Bytes of headers in front of each packet's payload.
const HEADERS: u64 = 66;
const WINDOW: u32 = 16 << 20;
static ZEROS: [u8; 65_536] = [0; 65_536];

/// Forgets bytes; lends a block for ranges.
#[derive(Default)]
struct Sink {
    slots: Vec<RangeSlot>,
    flights: OneBlock,
}

impl ReceiveWindow for Sink {
    fn write(&mut self, _offset: u64, _data: &[u8]) {}

    fn claim_block(&mut self) -> Option<u32> {
        self.slots.resize(1_024, RangeSlot::default());
        Some(1)
    }

    fn block(&mut self, _block: u32) -> Option<&mut [RangeSlot]> {
        Some(&mut self.slots)
    }

    fn flights(&mut self) -> &mut dyn FlightPool {
        &mut self.flights
    }
}

/// The path.
#[derive(Clone, Copy)]
pub struct Link {
    pub mbit_s: u64,
    pub rtt_ms: u64,
    pub buffer_bytes: u64,
    /// Lost at random, per 10,000 packets.
    pub loss: u64,
    /// A packet that meets more than this in the queue is marked, if its sender allows (RFC 3168 §5).
    pub mark_above_bytes: u64,
    /// Segments arrive as they were sent, up to 64 KiB in one, instead of packet by packet.
    pub merged: bool,
}

/// What the program of a flow does.
#[derive(Clone, Copy)]
pub enum Program {
    /// Always has something to send.
    Bulk,
    /// So many bytes every so many milliseconds.
    Paced { bytes: u64, every_ms: u64 },
}

pub struct Flow {
    pub ends: [Connection; 2],
    sinks: [Sink; 2],
    program: Program,
    next_write: Instant,
    written: u64,
    starts: Instant,
}

impl Flow {
    pub fn received(&self) -> u64 {
        self.ends[1].readable_end()
    }
}

struct Packet {
    flow: usize,
    to: usize,
    transmit: Transmit,
}

pub struct Network {
    pub flows: Vec<Flow>,
    pub now: Instant,
    link: Link,
    /// When the link will have sent what is queued.
    free_at_ns: u64,
    on_the_way: BTreeMap<(u64, u64), Packet>,
    next_id: u64,
    rng: u64,
    pub dropped: u64,
    pub marked: u64,
    /// Bytes in the queue, summed over packets, and how many there were.
    queued: (u64, u64),
}

pub fn config(congestion: Algorithm) -> Config {
    Config {
        send_capacity: WINDOW,
        receive_capacity: WINDOW,
        options: SocketOptions {
            congestion,
            nodelay: true,
            ..SocketOptions::default()
        },
        ..Config::default()
    }
}

impl Network {
    pub fn new(link: Link, seed: u64) -> Self {
        Self {
            flows: Vec::new(),
            now: Instant::from_us(1_000_000),
            link,
            free_at_ns: 0,
            on_the_way: BTreeMap::new(),
            next_id: 0,
            rng: seed | 1,
            dropped: 0,
            marked: 0,
            queued: (0, 0),
        }
    }

    /// A flow that begins `after_ms` from now; its handshake meets no queue.
    pub fn add(&mut self, config: &Config, program: Program, after_ms: u64) -> usize {
        let starts = self.now + Duration::from_ms(after_ms);
        let limits = self.limits();
        let mut client = Connection::connect(config, SeqNumber(ISS), starts);
        let syn = client
            .poll_transmit(starts, &limits, &mut NoPool)
            .expect("SYN");
        let one_way = Duration::from_us(self.link.rtt_ms * 500);
        let there = starts + one_way;
        let mut server = Connection::accept(config, SeqNumber(IRS), there, &syn.header);
        let syn_ack = server
            .poll_transmit(there, &limits, &mut NoPool)
            .expect("SYN-ACK");
        let back = there + one_way;
        let _ = client.handle_segment(back, &syn_ack.header, &[], &mut Sink::default());
        self.flows.push(Flow {
            ends: [client, server],
            sinks: Default::default(),
            program,
            next_write: back,
            written: 0,
            starts: back,
        });
        self.flows.len() - 1
    }

    fn limits(&self) -> TransmitLimits {
        TransmitLimits {
            mss: 1_460,
            max_payload: 65_000,
        }
    }

    fn random(&mut self) -> u64 {
        self.rng ^= self.rng << 13;
        self.rng ^= self.rng >> 7;
        self.rng ^= self.rng << 17;
        self.rng
    }

    /// Mean bytes that a packet found in the queue since the last time this was asked.
    pub fn mean_queue(&mut self) -> u64 {
        let (sum, count) = core::mem::take(&mut self.queued);
        sum / count.max(1)
    }

    /// Runs for `ms`; afterwards every flow's bytes received in that time.
    pub fn run_ms(&mut self, ms: u64) -> Vec<u64> {
        let end = self.now + Duration::from_ms(ms);
        let before: Vec<u64> = self.flows.iter().map(Flow::received).collect();
        loop {
            for flow in 0..self.flows.len() {
                self.write(flow);
                self.transmit(flow, 0);
                self.transmit(flow, 1);
            }
            let next = self.next_event();
            if next > end {
                break;
            }
            self.now = self.now.max(next);
            self.arrive();
            for flow in &mut self.flows {
                for (side, sink) in flow.ends.iter_mut().zip(&mut flow.sinks) {
                    if side.deadline().is_some_and(|at| at <= self.now) {
                        let _ = side.handle_timeout(self.now, &mut sink.flights);
                    }
                }
            }
        }
        self.now = end;
        let received = self.flows.iter().map(Flow::received);
        received.zip(before).map(|(now, then)| now - then).collect()
    }

    fn next_event(&self) -> Instant {
        let packet = self.on_the_way.first_key_value();
        let packet = packet.map_or(Instant::NEVER, |(&(at, _), _)| Instant::from_us(at));
        let mut next = packet;
        for flow in &self.flows {
            if self.now < flow.starts {
                next = next.min(flow.starts);
                continue;
            }
            for side in &flow.ends {
                next = next.min(side.deadline().unwrap_or(Instant::NEVER));
            }
            if let Program::Paced { .. } = flow.program {
                next = next.min(flow.next_write);
            }
        }
        next
    }

    fn write(&mut self, index: usize) {
        let flow = &mut self.flows[index];
        if self.now < flow.starts {
            return;
        }
        let block = flow.ends[0].acknowledged() + u64::from(WINDOW);
        match flow.program {
            Program::Bulk => flow.written = block,
            Program::Paced { bytes, every_ms } => {
                if flow.next_write > self.now {
                    return;
                }
                flow.next_write = self.now + Duration::from_ms(every_ms);
                flow.written = (flow.written + bytes).min(block);
            }
        }
        flow.ends[0]
            .handle_written(self.now, flow.written)
            .expect("the send window has block");
        let readable = flow.ends[1].readable_end();
        flow.ends[1]
            .handle_consumed(self.now, readable)
            .expect("readable");
    }

    fn poll(&mut self, flow: usize, side: usize, limits: &TransmitLimits) -> Option<Transmit> {
        let Flow { ends, sinks, .. } = &mut self.flows[flow];
        ends[side].poll_transmit(self.now, limits, &mut sinks[side].flights)
    }

    fn transmit(&mut self, flow: usize, side: usize) {
        if self.now < self.flows[flow].starts {
            return;
        }
        let limits = self.limits();
        while let Some(transmit) = self.poll(flow, side, &limits) {
            let one_way_us = self.link.rtt_ms * 500;
            if side == 1 {
                self.send(flow, 0, transmit, self.now.as_us() + one_way_us);
                continue;
            }
            let size = match transmit.segment_size {
                Some(size) if !self.link.merged => u32::from(size),
                _ => transmit.len.max(1),
            };
            let mut at = 0;
            while at < transmit.len.max(1) {
                let mut packet = transmit;
                packet.len = size.min(transmit.len - at);
                packet.offset += u64::from(at);
                packet.header.seq = transmit.header.seq.wrapping_add(at);
                at += size;
                self.enqueue(flow, packet, one_way_us);
            }
        }
    }

    fn enqueue(&mut self, flow: usize, mut packet: Transmit, one_way_us: u64) {
        let now_ns = self.now.as_us() * 1_000;
        let packets = u64::from(packet.len).div_ceil(1_448).max(1);
        let bytes = u64::from(packet.len) + packets * HEADERS;
        let backlog = self.free_at_ns.saturating_sub(now_ns) * self.link.mbit_s / 8_000;
        self.queued.0 += backlog;
        self.queued.1 += 1;
        if backlog + bytes > self.link.buffer_bytes || self.random() % 10_000 < self.link.loss {
            self.dropped += 1;
            return;
        }
        if backlog > self.link.mark_above_bytes && packet.ecn != Ecn::NotEct {
            packet.ecn = Ecn::Ce;
            self.marked += 1;
        }
        self.free_at_ns = self.free_at_ns.max(now_ns) + bytes * 8_000 / self.link.mbit_s;
        let at_us = self.free_at_ns / 1_000 + one_way_us;
        self.send(flow, 1, packet, at_us);
    }

    fn send(&mut self, flow: usize, to: usize, transmit: Transmit, at_us: u64) {
        let packet = Packet { flow, to, transmit };
        self.on_the_way.insert((at_us, self.next_id), packet);
        self.next_id += 1;
    }

    fn arrive(&mut self) {
        while let Some(entry) = self.on_the_way.first_entry() {
            if entry.key().0 > self.now.as_us() {
                return;
            }
            let Packet { flow, to, transmit } = entry.remove();
            let payload = &ZEROS[..transmit.len as usize];
            let Flow { ends, sinks, .. } = &mut self.flows[flow];
            let _ = ends[to].handle_marked_segment(
                self.now,
                transmit.ecn,
                &transmit.header,
                payload,
                &mut sinks[to],
            );
        }
    }
}
