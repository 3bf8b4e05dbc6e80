//! Two stacks on virtual time, joined by a cable that loses, doubles and reorders as its seed says.

pub use super::node::*;
use crate::HeapTables;
use ::tcp::{Duration, Instant};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A seeded source of decisions (xorshift64*).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

/// Chances in a thousand.
#[derive(Clone, Copy, Default)]
pub struct Trouble {
    pub lose: u64,
    pub double: u64,
    pub delay: u64,
}

pub struct Pair<'m> {
    pub now: Instant,
    pub nodes: [Node<'m>; 2],
    pub trouble: Trouble,
    pub delivered: u64,
    /// Bytes of the longest frame so far.
    pub longest: usize,
    random: Random,
    flying: BinaryHeap<Reverse<(Instant, u64, usize, Flying)>>,
    order: u64,
}

impl<'m> Pair<'m> {
    pub fn new(memory: &'m mut [HeapTables; 2], seed: u64) -> Self {
        let now = Instant::from_us(1_000_000_000);
        let [a, b] = memory;
        let nodes = [Node::new(a.tables(), 1, now), Node::new(b.tables(), 2, now)];
        let random = Random(seed * 2 + 1);
        let trouble = Trouble::default();
        Self {
            now,
            nodes,
            trouble,
            delivered: 0,
            longest: 0,
            random,
            flying: BinaryHeap::new(),
            order: 0,
        }
    }

    /// Collects what both hosts send.
    fn collect(&mut self) {
        for from in 0..2 {
            for frame in self.nodes[from].transmit(self.now) {
                self.longest = self.longest.max(frame.bytes.len());
                let to = if frame.interface == LOOPBACK.0 {
                    from
                } else {
                    1 - from
                };
                let copies = match self.random.below(1_000) {
                    chance if to != from && chance < self.trouble.lose => 0,
                    chance if to != from && chance < self.trouble.lose + self.trouble.double => 2,
                    _ => 1,
                };
                for _ in 0..copies {
                    let late = self.random.below(1_000) < self.trouble.delay;
                    let delay = if late {
                        500 + self.random.below(3_000)
                    } else {
                        500
                    };
                    self.order += 1;
                    let at = self.now + Duration::from_us(delay);
                    self.flying
                        .push(Reverse((at, self.order, to, frame.clone())));
                }
            }
        }
    }

    /// A connection to port 80 of the second host: its owner on the first, and there.
    pub fn connected(&mut self) -> (u64, u64) {
        let listener = self.nodes[1].listen(80, 5);
        let client = self.nodes[0].connect(self.now, ip(2), 80);
        self.run(ms(20));
        (client, self.nodes[1].accept(listener).unwrap())
    }

    /// Runs until nothing more happens before `span` has passed.
    pub fn run(&mut self, span: Duration) {
        let end = self.now + span;
        loop {
            self.collect();
            let frame = self.flying.peek().map(|Reverse((at, ..))| *at);
            let timers = self
                .nodes
                .iter()
                .filter_map(|node| node.stack.next_deadline());
            let Some(next) = timers.chain(frame).min().filter(|next| *next <= end) else {
                break;
            };
            self.now = self.now.max(next);
            while let Some(Reverse((at, ..))) = self.flying.peek()
                && *at <= self.now
            {
                let Reverse((_, _, to, frame)) = self.flying.pop().unwrap();
                self.delivered += 1;
                self.nodes[to].deliver(self.now, &frame);
            }
            for node in &mut self.nodes {
                node.timers(self.now);
            }
        }
        self.now = end;
    }
}

pub fn memory(connections: usize, time_waits: usize) -> [HeapTables; 2] {
    let tables = || HeapTables::new(connections, 16, time_waits).unwrap();
    [tables(), tables()]
}

/// Bytes that differ from connection to connection.
pub fn pattern(n: u64, len: usize) -> Vec<u8> {
    let mut random = Random(n + 1);
    (0..len).map(|_| random.next().to_le_bytes()[0]).collect()
}
