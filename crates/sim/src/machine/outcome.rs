//! What a run was: times of every request, and what each processor did.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{
    Machine,
    arrivals::Request,
    lengths::Lengths,
    timeline::{Level, Span},
};
use crate::{
    statistics::meter::ResourceReport,
    time::{NEVER, Ns, as_us, from_ms},
};

/// Time that processors spent, by what they did, in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Busy {
    /// Interrupts.
    pub interrupt: Ns,
    /// Bottom halves.
    pub bottom_half: Ns,
    /// The server process.
    pub server: Ns,
    /// Endless computations.
    pub background: Ns,
    /// Looking for work.
    pub spin: Ns,
    /// The thread that polls what a bottom half left.
    pub poll_thread: Ns,
    /// The NIC's processors.
    pub nic: Ns,
}

impl Busy {
    /// What a processor's level adds to; bus and link are no processors.
    pub(super) fn of(&mut self, level: Level) -> Option<&mut Ns> {
        Some(match level {
            Level::Interrupt => &mut self.interrupt,
            Level::BottomHalf => &mut self.bottom_half,
            Level::Server => &mut self.server,
            Level::Background => &mut self.background,
            Level::Spin => &mut self.spin,
            Level::PollThread => &mut self.poll_thread,
            Level::Nic => &mut self.nic,
            Level::Bus | Level::Link => return None,
        })
    }

    /// Host time that the protocol and the application took.
    pub fn host(&self) -> Ns {
        self.interrupt + self.bottom_half + self.server + self.poll_thread
    }

    /// Adds what another processor or run spent.
    pub fn add(&mut self, other: &Self) {
        self.interrupt += other.interrupt;
        self.bottom_half += other.bottom_half;
        self.server += other.server;
        self.background += other.background;
        self.spin += other.spin;
        self.poll_thread += other.poll_thread;
        self.nic += other.nic;
    }
}

/// Why the device interrupted, counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Causes {
    /// One packet or segment, at once.
    pub single: u64,
    /// So many frames waited.
    pub frames: u64,
    /// The first frame waited so long.
    pub timer: u64,
    /// The ring was full.
    pub ring_full: u64,
    /// The NIC's memory was above its mark (each also counts by its own cause).
    pub urgent: u64,
}

impl Causes {
    /// Interrupts in all.
    pub fn interrupts(&self) -> u64 {
        self.single + self.frames + self.timer + self.ring_full
    }
}

/// A run's result.
#[derive(Debug)]
pub struct Outcome {
    /// The run ended at the horizon with requests unanswered.
    pub cut: bool,
    /// When it ended.
    pub ended: Ns,
    /// Requests that were answered.
    pub answered: usize,
    /// Requests that were dropped somewhere.
    pub dropped: usize,
    /// Packets or exchanges lost.
    pub losses: u64,
    /// Host and NIC time.
    pub busy: Busy,
    /// Why the device interrupted.
    pub causes: Causes,
    /// Most bytes that the NIC's memory held.
    pub nic_memory_peak_bytes: f64,
    /// Packets or segments of each receive queue.
    pub queue_frames: Vec<u64>,
    /// Events that were simulated.
    pub events: u64,
    /// By resource.
    pub resources: BTreeMap<String, ResourceReport>,
    /// Who ran what, where asked for.
    pub spans: Vec<Span>,
    /// How long queues were over time, where asked for.
    pub lengths: Lengths,
    requests: Vec<Request>,
    period: Ns,
}

/// One request's times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Times {
    /// Its place among the requests of the run, as [`Span::request`] has it.
    pub request: u32,
    /// The client that asked.
    pub client: u32,
    /// When it asked.
    pub made_ns: Ns,
    /// When the last packet reached the machine.
    pub arrived_ns: Ns,
    /// When the response left the machine.
    pub left_ns: Ns,
    /// When the client had it.
    pub answered_ns: Ns,
}

impl Outcome {
    /// Requests that were made.
    pub fn requests(&self) -> usize {
        self.requests.len()
    }

    /// The answered requests in the order in which they were made.
    pub fn times(&self) -> impl Iterator<Item = Times> + '_ {
        let numbered = (0..).zip(&self.requests);
        let answered = numbered.filter(|(_, r)| r.answered != NEVER);
        answered.map(|(request, r)| Times {
            request,
            client: r.client,
            made_ns: r.made,
            arrived_ns: r.arrived,
            left_ns: r.left,
            answered_ns: r.answered,
        })
    }

    /// Response times, in the order of the requests.
    pub fn responses(&self) -> impl Iterator<Item = Ns> + '_ {
        self.times().map(|t| t.answered_ns - t.made_ns)
    }

    /// Until when load arrives: the last request and one period.
    pub fn load_ends(&self) -> Ns {
        self.requests.last().map_or(0, |r| r.made) + self.period
    }

    /// Response times of what was answered while load still arrived: survivors.
    pub fn responses_during_load(&self) -> impl Iterator<Item = Ns> + '_ {
        let end = self.load_ends();
        self.times()
            .filter(move |t| t.answered_ns <= end)
            .map(|t| t.answered_ns - t.made_ns)
    }

    /// Answers in the second half of the load, as a share of what was asked in it.
    pub fn late_share(&self) -> f64 {
        let end = self.load_ends();
        let late = self
            .times()
            .filter(|t| t.answered_ns > end / 2 && t.answered_ns <= end);
        2.0 * late.count() as f64 / self.requests.len().max(1) as f64
    }

    /// Groups of answers more than 50 ms apart.
    pub fn batches(&self) -> usize {
        const APART: Ns = 50_000_000;
        let mut at: Vec<Ns> = self.times().map(|t| t.answered_ns).collect();
        at.sort_unstable();
        let gaps = at.windows(2).filter(|pair| pair[1] - pair[0] > APART);
        gaps.count() + usize::from(!at.is_empty())
    }

    /// Mean response time in microseconds; none without answers.
    pub fn mean_us(&self) -> Option<f64> {
        mean_us(self.responses())
    }

    /// The survivors' mean in microseconds.
    pub fn mean_during_load_us(&self) -> Option<f64> {
        mean_us(self.responses_during_load())
    }
}

fn mean_us(times: impl Iterator<Item = Ns>) -> Option<f64> {
    let (count, sum) = times.fold((0_u64, 0_u128), |(n, sum), t| (n + 1, sum + u128::from(t)));
    (count > 0).then(|| sum as f64 / count as f64 / 1e3)
}

impl Machine<'_> {
    pub(super) fn finish_up(mut self) -> Outcome {
        let mut busy = Busy::default();
        let mut resources = BTreeMap::new();
        let now = self.now;
        let several = self.cores.len() > 1;
        for (index, core) in self.cores.iter_mut().enumerate() {
            busy.add(&core.busy);
            let name = |what: &str| match several {
                true => format!("host {index} {what}"),
                false => format!("host {what}"),
            };
            resources.insert(name("interrupt"), core.interrupt_meter.report(now, 1));
            resources.insert(name("bottom half"), core.half_meter.report(now, 1));
            resources.insert(name("server"), core.server_meter.report(now, 1));
        }
        busy.nic = self.nic.busy;
        let nic_cores = self.nic.cores();
        for (name, meter) in [
            ("NIC receive", &mut self.nic.receive_meter),
            ("NIC send", &mut self.nic.send_meter),
        ] {
            resources.insert(name.to_owned(), meter.report(now, nic_cores));
        }
        for (name, pipe) in [("bus", &mut self.bus), ("link", &mut self.link)] {
            pipe.settle(now);
            resources.insert(name.to_owned(), pipe.meter.report(now, 1));
        }
        resources.retain(|_, report| report.jobs + report.left_inside > 0);
        Outcome {
            cut: self.answered + self.dropped < self.requests.len(),
            ended: now,
            answered: self.answered,
            dropped: self.dropped,
            losses: self.losses,
            busy,
            causes: self.causes,
            nic_memory_peak_bytes: self.nic.memory_peak_bytes,
            queue_frames: self.queues.iter().map(|queue| queue.frames).collect(),
            events: self.events_done,
            resources,
            spans: self.timeline.into_spans(),
            lengths: self.watch.map(|watch| watch.lengths).unwrap_or_default(),
            requests: self.requests,
            period: from_ms(self.scenario.workload.period_ms),
        }
    }
}

/// Microseconds of each kind of busy time, for reports.
impl Busy {
    /// Name and microseconds of what was not zero.
    pub fn named_us(&self) -> Vec<(&'static str, f64)> {
        [
            ("interrupt", self.interrupt),
            ("bottom half", self.bottom_half),
            ("server", self.server),
            ("background", self.background),
            ("spinning", self.spin),
            ("poll thread", self.poll_thread),
            ("NIC", self.nic),
        ]
        .into_iter()
        .filter(|(_, ns)| *ns > 0)
        .map(|(name, ns)| (name, as_us(ns)))
        .collect()
    }
}
