//! Runs a scenario to its end and judges it.

use std::fmt;

use stack::HeapTables;

use super::{
    bad_peer::{BadPeer, Habit},
    host::{Host, Progress},
    path::Path,
    random::mix,
    scenario::Scenario,
};

/// A run that takes longer has gone wrong, microseconds of virtual time.
const LONGEST_US: u64 = 3_600_000_000;
/// So has one of more steps.
const STEPS_MAX: u64 = 4_000_000;
/// Silence that needs no explanation: the first time-out, delayed ACKs, and SYNs.
const SILENCE_US: u64 = 3_000_000;

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Report {
    /// Microseconds until both programs had closed.
    pub finished_us: u64,
    /// Frames that left each host; a large segment counts once.
    pub frames: [u64; 2],
    /// Times each program was told something.
    pub notifications: [u64; 2],
    /// Longest time without progress, microseconds.
    pub longest_stall_us: u64,
    /// Bytes that each program has consumed in order.
    pub consumed: [u64; 2],
    /// Stands for every frame that arrived, with its time.
    pub trace: u64,
}

/// Why a run is wrong.
#[derive(Debug, Clone, PartialEq)]
pub struct Failure {
    /// What happened.
    pub why: String,
    /// When, microseconds after the start.
    pub at_us: u64,
    /// The run.
    pub scenario: Scenario,
    /// What host 1 did, where it was a bad peer.
    pub habit: Option<Habit>,
    /// How far both programs had come.
    pub progress: [Progress; 2],
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [zero, one] = &self.progress;
        writeln!(out, "after {} us: {}", self.at_us, self.why)?;
        writeln!(out, "{}", self.scenario)?;
        writeln!(out, "  host 0 {zero:?}\n  host 1 {one:?}")?;
        let habit = self
            .habit
            .map_or_else(String::new, |habit| format!("SHUNT_HABIT={habit:?} "));
        write!(
            out,
            "replay: SHUNT_SEED={} {habit}SHUNT_TRACE=1 cargo test -p testkit --test network -- one_seed --nocapture",
            self.scenario.seed
        )
    }
}

/// An end of the path: a host of ours or a bad peer.
pub trait Node {
    /// A frame arrives.
    fn deliver(&mut self, now_us: u64, path: &mut Path, frame: &[u8]);
    /// Time has come: timers, programs, and what wants to leave.
    fn run(&mut self, now_us: u64, path: &mut Path);
    /// When it next wants to run by itself.
    fn next_us(&self) -> Option<u64>;
    /// How far its program has come.
    fn progress(&self) -> Progress;
    /// What went wrong, if something did.
    fn fault(&self) -> Option<String>;
    /// Frames that left.
    fn frames(&self) -> u64;
}

struct Simulation<'m> {
    scenario: &'m Scenario,
    hosts: [Box<dyn Node + 'm>; 2],
    habit: Option<Habit>,
    /// The run may end here without being done.
    until_us: u64,
    path: Path,
    now_us: u64,
    trace: u64,
    print: bool,
    progress: [Progress; 2],
    /// When each host's data, or its connection, last moved on; and when anything did.
    moved_us: [u64; 2],
    progress_us: u64,
    sent: [u64; 2],
    sent_us: u64,
    longest_stall_us: u64,
}

/// Runs a scenario; `print` writes every frame to standard error.
///
/// # Errors
/// Something that must hold did not.
pub fn run(scenario: &Scenario, print: bool) -> Result<Report, Box<Failure>> {
    let mut memory = [tables(), tables()];
    let [first, second] = &mut memory;
    let hosts: [Box<dyn Node + '_>; 2] = [
        Box::new(Host::new(first.tables(), scenario, 0)),
        Box::new(Host::new(second.tables(), scenario, 1)),
    ];
    Simulation::new(scenario, hosts, u64::MAX, print).run()
}

/// Runs host 0 of a scenario against a peer that misbehaves; where that can keep the connection from
/// ending, until `until_us`.
///
/// # Errors
/// Something that must hold did not.
pub fn run_against(
    habit: Habit,
    scenario: &Scenario,
    until_us: u64,
    print: bool,
) -> Result<Report, Box<Failure>> {
    let mut memory = tables();
    let hosts: [Box<dyn Node + '_>; 2] = [
        Box::new(Host::new(memory.tables(), scenario, 0)),
        Box::new(BadPeer::new(scenario, habit)),
    ];
    let mut simulation = Simulation::new(scenario, hosts, until_us, print);
    simulation.habit = Some(habit);
    simulation.run()
}

/// Runs host 0 of a scenario against somebody else's stack, which listens as host 1 would.
///
/// # Errors
/// Something that must hold did not.
pub fn run_beside<'p>(
    peer: Box<dyn Node + 'p>,
    scenario: &'p Scenario,
    print: bool,
) -> Result<Report, Box<Failure>> {
    let mut memory = tables();
    let hosts: [Box<dyn Node + '_>; 2] = [Box::new(Host::new(memory.tables(), scenario, 0)), peer];
    Simulation::new(scenario, hosts, u64::MAX, print).run()
}

fn tables() -> HeapTables {
    HeapTables::new(8, 4, 8).expect("invariant: a few rows are no burden")
}

impl<'m> Simulation<'m> {
    fn new(
        scenario: &'m Scenario,
        hosts: [Box<dyn Node + 'm>; 2],
        until_us: u64,
        print: bool,
    ) -> Self {
        Self {
            scenario,
            hosts,
            habit: None,
            until_us,
            path: Path::new(scenario),
            now_us: 0,
            trace: 0,
            print,
            progress: [Progress::default(); 2],
            moved_us: [0; 2],
            progress_us: 0,
            sent: [0; 2],
            sent_us: 0,
            longest_stall_us: 0,
        }
    }
}

impl Simulation<'_> {
    fn run(&mut self) -> Result<Report, Box<Failure>> {
        for _ in 0..STEPS_MAX {
            for host in &mut self.hosts {
                host.run(self.now_us, &mut self.path);
            }
            self.judge()?;
            if self.progress.iter().all(|progress| progress.closed) {
                return self.finish();
            }
            let hosts = self.hosts.iter().filter_map(|host| host.next_us());
            let Some(next_us) = hosts.chain(self.path.next_us()).min() else {
                return self.fail("nothing is left to happen, and the programs wait");
            };
            self.now_us = self.now_us.max(next_us);
            if self.now_us >= self.until_us {
                return Ok(self.report());
            }
            if self.now_us > LONGEST_US {
                return self.fail("an hour was not enough");
            }
            self.arrive();
        }
        self.fail("the hosts are busy without end")
    }

    fn arrive(&mut self) {
        let mut arrived: Vec<(usize, Vec<u8>)> = Vec::new();
        self.path.arrivals(self.now_us, &mut |from, frame| {
            arrived.push((from, frame.to_vec()));
        });
        for (from, frame) in arrived {
            self.trace = mix(self.trace ^ self.now_us ^ (from as u64) << 63);
            for chunk in frame.chunks(8) {
                let word = chunk
                    .iter()
                    .fold(0, |word, byte| word << 8 | u64::from(*byte));
                self.trace = mix(self.trace ^ word);
            }
            if self.print {
                eprintln!("{}", super::trace::line(self.now_us, from, &frame));
            }
            self.hosts[1 - from].deliver(self.now_us, &mut self.path, &frame);
        }
    }

    /// What must hold after every step.
    fn judge(&mut self) -> Result<(), Box<Failure>> {
        let progress = self.hosts.each_ref().map(|host| host.progress());
        let sent = self.hosts.each_ref().map(|host| host.frames());
        if let Some(fault) = self.hosts.iter().find_map(|host| host.fault()) {
            self.progress = progress;
            return self.fail(&fault);
        }
        if sent != self.sent {
            self.judge_silence()?;
            self.sent = sent;
            self.sent_us = self.now_us;
        }
        let pairs = self.progress.iter().zip(&progress);
        let mut moved = false;
        for (host, (before, now)) in pairs.enumerate() {
            // Closing is the program's own doing.
            if (before.acknowledged, before.connected) != (now.acknowledged, now.connected) {
                self.moved_us[host] = self.now_us;
            }
            moved |= self.moved_us[host] == self.now_us || before.consumed != now.consumed;
        }
        if moved {
            self.longest_stall_us = self.longest_stall_us.max(self.now_us - self.progress_us);
            self.progress_us = self.now_us;
        }
        self.progress = progress;
        Ok(())
    }

    /// Time-outs double (RFC 6298 §5.5): a silence is at most as long as everything since the last
    /// progress before it, and some more for the first time-out. Each direction has its own timer.
    fn judge_silence(&self) -> Result<(), Box<Failure>> {
        // A program that still reads what has long arrived needs no frames.
        let silence_us = self.now_us - self.sent_us.max(self.progress_us);
        let directions = self
            .progress
            .iter()
            .zip(self.scenario.plans)
            .zip(self.moved_us);
        let unfinished =
            directions.filter(|((progress, plan), _)| progress.acknowledged < plan.send);
        let moved_us = unfinished.map(|(_, moved_us)| moved_us).min();
        let before_us = self
            .sent_us
            .saturating_sub(moved_us.unwrap_or(self.progress_us));
        let plans = self.scenario.plans;
        let programs_us = plans
            .map(|plan| plan.write_gap_us.max(plan.read_gap_us) + plan.read_from_us)
            .into_iter()
            .max()
            .unwrap_or(0);
        // A peer that returns time stamps of its own making lengthens its own time-outs, up to the
        // longest (RFC 6298 §2.5).
        let own_doing_us = if self.habit == Some(Habit::StrangeEcho) {
            120_000_000
        } else {
            0
        };
        let explained_us = SILENCE_US
            + before_us
            + 4 * self.scenario.longest_round_trip_us()
            + programs_us
            + own_doing_us;
        if silence_us > explained_us {
            return self.fail(&format!(
                "both hosts were silent for {silence_us} us; timers explain {explained_us} us"
            ));
        }
        Ok(())
    }

    fn finish(&self) -> Result<Report, Box<Failure>> {
        for (host, progress) in self.progress.iter().enumerate() {
            if progress.consumed != self.scenario.plans[1 - host].send {
                return self.fail("a program closed before it had everything");
            }
        }
        Ok(self.report())
    }

    fn report(&self) -> Report {
        Report {
            finished_us: self.now_us,
            frames: self.sent,
            notifications: self.progress.map(|progress| progress.notifications),
            longest_stall_us: self.longest_stall_us,
            consumed: self.progress.map(|progress| progress.consumed),
            trace: self.trace,
        }
    }

    fn fail<T>(&self, why: &str) -> Result<T, Box<Failure>> {
        Err(Box::new(Failure {
            why: why.to_owned(),
            at_us: self.now_us,
            scenario: self.scenario.clone(),
            habit: self.habit,
            progress: self.progress,
        }))
    }
}
