//! What happens in one run, and how it follows from a seed.

use std::fmt;

use netem::Impairment;

use super::random::Random;

/// Longest blackout, microseconds.
const BLACKOUT_US_MAX: u64 = 20_000_000;

/// Everything that decides a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// The seed that all other choices of the run come from.
    pub seed: u64,
    /// What the path does to frames, from host 0 to host 1 and back.
    pub impairments: [Impairment; 2],
    /// From when to when nothing passes, microseconds after the start.
    pub blackouts: Vec<(u64, u64)>,
    /// From when on the path takes only packets of this size, in order of time.
    pub mtus: Vec<(u64, u16)>,
    /// The router says nothing when it drops what is too long.
    pub silent_router: bool,
    /// What the program on each host does.
    pub plans: [Plan; 2],
    /// Largest IP packet that each host's interface cuts itself; 0: the stack cuts.
    pub max_segment_bytes: u32,
}

/// What a program does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// Bytes to send.
    pub send: u64,
    /// Bytes written at once at most.
    pub write_bytes: u64,
    /// Time between writes, microseconds.
    pub write_gap_us: u64,
    /// Bytes read at once at most.
    pub read_bytes: u64,
    /// Time between reads, microseconds.
    pub read_gap_us: u64,
    /// Reads nothing before this time, microseconds after the start.
    pub read_from_us: u64,
    /// `TCP_NODELAY`.
    pub nodelay: bool,
    /// Ends its direction only after the other one has ended.
    pub waits_for_end: bool,
    /// Bytes of each window; a power of two.
    pub window_bytes: u32,
}

impl Plan {
    /// Sends `bytes` as fast as it goes and reads at once.
    pub fn sending(bytes: u64, window_bytes: u32) -> Self {
        Self {
            send: bytes,
            write_bytes: u64::MAX,
            write_gap_us: 0,
            read_bytes: u64::MAX,
            read_gap_us: 0,
            read_from_us: 0,
            nodelay: false,
            waits_for_end: false,
            window_bytes,
        }
    }
}

impl Scenario {
    /// A plain path on which host 0 sends `bytes` to host 1.
    pub fn transfer(bytes: u64, impairment: Impairment, seed: u64) -> Self {
        let window_bytes = 4 << 20;
        Self {
            seed,
            impairments: [impairment; 2],
            blackouts: Vec::new(),
            mtus: Vec::new(),
            silent_router: false,
            plans: [
                Plan::sending(bytes, window_bytes),
                Plan::sending(0, window_bytes),
            ],
            max_segment_bytes: 65_535,
        }
    }

    /// The scenario that a seed stands for.
    pub fn of_seed(seed: u64) -> Self {
        let mut random = Random(seed);
        let impairments = impairments(&mut random);
        let sizes = match random.below(4) {
            0 => [random.magnitude(1, 1 << 18), 0],
            1 => [0, random.magnitude(1, 1 << 18)],
            _ => [random.magnitude(1, 1 << 17), random.magnitude(1, 1 << 17)],
        };
        let waits = random.below(3);
        let plans = [0, 1].map(|host| Plan {
            waits_for_end: waits == host,
            ..plan(&mut random, sizes[usize::from(host == 1)])
        });
        let blackouts = blackouts(&mut random);
        let mtus = if random.one_in(5) {
            let mut at = random.below(2_000_000);
            let mut steps = Vec::new();
            for _ in 0..random.between(1, 3) {
                steps.push((at, random.pick(&[576, 1_000, 1_280, 1_400, 1_500])));
                at += random.magnitude(1_000, 20_000_000);
            }
            steps
        } else {
            Vec::new()
        };
        Self {
            seed,
            impairments,
            blackouts,
            mtus,
            plans,
            max_segment_bytes: random.pick(&[0, 8_000, 65_535]),
            silent_router: random.one_in(2),
        }
    }

    /// Whether nothing passes at this time.
    pub fn is_black(&self, us: u64) -> bool {
        self.blackouts
            .iter()
            .any(|(start, end)| (*start..*end).contains(&us))
    }

    /// The largest IP packet that passes at this time.
    pub fn mtu(&self, us: u64) -> u16 {
        let steps = self.mtus.iter().take_while(|(from, _)| *from <= us);
        steps.last().map_or(1_500, |(_, mtu)| *mtu)
    }

    /// The longest that a packet and its answer can take.
    pub fn longest_round_trip_us(&self) -> u64 {
        let way = |impairment: &Impairment| {
            let queue_us = impairment.rate_bps.map_or(0, |rate| {
                (impairment.queue_bytes + 1_514) * 8_000_000 / rate.max(1)
            });
            let reorder_us = if impairment.reorder > 0.0 {
                impairment.reorder_us
            } else {
                0
            };
            queue_us + impairment.delay_us + impairment.jitter_us + reorder_us
        };
        self.impairments.iter().map(way).sum()
    }
}

/// One long time in the dark, or bursts of losses, or neither. Bursts are counted in time and not in
/// frames: a burst of frames would swallow every retransmission of a connection that is all alone.
fn blackouts(random: &mut Random) -> Vec<(u64, u64)> {
    let mut dark = Vec::new();
    if random.one_in(5) {
        let start = random.below(5_000_000);
        dark.push((start, start + random.magnitude(1_000, BLACKOUT_US_MAX)));
    }
    if random.one_in(3) {
        let mut start = 0;
        for _ in 0..random.between(1, 20) {
            start += random.magnitude(1_000, 4_000_000);
            let end = start + random.magnitude(100, 200_000);
            dark.push((start, end));
            start = end;
        }
    }
    dark
}

/// Both directions: often alike, sometimes not; each trouble is there or not.
fn impairments(random: &mut Random) -> [Impairment; 2] {
    let there = impairment(random);
    if random.one_in(3) {
        [there, impairment(random)]
    } else {
        [there; 2]
    }
}

fn impairment(random: &mut Random) -> Impairment {
    let chance = |random: &mut Random, most_per_mille: u64| {
        if random.one_in(2) {
            random.magnitude(1, most_per_mille) as f64 / 1000.0
        } else {
            0.0
        }
    };
    let rate_bps = random
        .one_in(2)
        .then(|| random.magnitude(100_000, 1_000_000_000));
    // At most two seconds of queue, but always room for one long packet.
    let queue_most = rate_bps.map_or(1 << 20, |rate| (rate / 4).clamp(3_028, 1 << 20));
    Impairment {
        // So rare that no connection gives up: its SYN is sent seven times, its last FIN nine times.
        loss: chance(random, 50),
        delay_us: if random.one_in(4) {
            0
        } else {
            random.magnitude(10, 300_000)
        },
        jitter_us: if random.one_in(3) {
            random.magnitude(10, 50_000)
        } else {
            0
        },
        reorder: chance(random, 200),
        reorder_us: random.magnitude(10, 100_000),
        duplicate: chance(random, 100),
        corrupt: chance(random, 20),
        rate_bps,
        queue_bytes: random.between(3_028, queue_most),
        ..Impairment::default()
    }
}

fn plan(random: &mut Random, send: u64) -> Plan {
    let window_bytes = 1 << random.between(12, 20);
    let mut plan = Plan {
        nodelay: random.one_in(2),
        ..Plan::sending(send, window_bytes)
    };
    if random.one_in(3) {
        plan.write_bytes = random.magnitude(1, 20_000);
        // A thousand writes at most wait for their turn.
        let writes = send.div_ceil(plan.write_bytes).max(1);
        plan.write_gap_us = random.below(20_000_000 / writes.max(20));
    }
    if random.one_in(3) {
        plan.read_bytes = random.magnitude(64, 20_000);
        plan.read_gap_us = random.below(20_000);
    }
    if random.one_in(8) {
        plan.read_from_us = random.magnitude(1_000, 30_000_000);
    }
    plan
}

impl fmt::Display for Scenario {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [there, back] = &self.impairments;
        writeln!(out, "seed {}: there {there}; back {back}", self.seed)?;
        let silent = if self.silent_router { ", silent" } else { "" };
        writeln!(
            out,
            "  blackouts {:?}, MTU {:?}{silent}",
            self.blackouts, self.mtus
        )?;
        writeln!(out, "  host 0 {:?}", self.plans[0])?;
        write!(
            out,
            "  host 1 {:?}; segments of up to {} bytes",
            self.plans[1], self.max_segment_bytes
        )
    }
}
