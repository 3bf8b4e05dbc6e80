//! `--stages`: the way of a message through several stacks, in turns, with and without noting; without HOST between two hosts of
//! this machine, of which both are looked into.

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::atomic::{AtomicBool, Ordering},
};

use anyhow::{Context, bail, ensure};
use hostif::stages::{Mark, Marks as Noted};
use statistics::Summary;

use super::{Arguments, compare, status};
use crate::{
    probe::Kind,
    report::Report,
    stages::{
        card::OnTheWay,
        kernel::{Watch, Whom},
        report::{Collected, ModeStages, StagesReport},
        timeline::{ANSWER, ASK, Marks, round_trips},
    },
    target,
    testbed::{Mode, Testbed},
};

/// Round trips of a round where --count does not say.
pub const DEFAULT_COUNT: u64 = 2000;
/// Most of a round: what is noted of them has a place.
const COUNT_MAX: u64 = 20_000;
/// Largest message: it fits a segment whatever options the headers have.
const SIZE_MAX: usize = 1400;

/// A folder for what one measurement notes; dropping it removes it.
struct Folder(PathBuf);

impl Folder {
    fn create(number: u32) -> anyhow::Result<Self> {
        let name = format!("shunt-stages-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).with_context(|| format!("making {}", path.display()))?;
        let folder = Self(path);
        for end in [ASK, ANSWER] {
            let path = folder.0.join(end);
            fs::create_dir(&path).with_context(|| format!("making {}", path.display()))?;
        }
        Ok(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed is a temporary file.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Round trips one by one, in the folder of a measurement.
const SAMPLES: &str = "samples.csv";

/// Measures each stack in turns.
pub fn execute(arguments: &Arguments, stop: &AtomicBool) -> anyhow::Result<ExitCode> {
    check(arguments)?;
    let mut arguments = arguments.clone();
    arguments.count.get_or_insert(DEFAULT_COUNT);
    let arguments = &arguments;
    let testbed = match arguments.target {
        Some(_) => None,
        None => Some(Testbed::create(stop)?),
    };
    let modes = modes(arguments);
    let card = card(arguments, &modes)?;
    let mut collected: Vec<Collected> = modes.iter().map(|_| Collected::default()).collect();
    let mut last = None;
    let mut number = 0;
    for round in 0..arguments.rounds {
        for (mode, collected) in modes.iter().zip(&mut collected) {
            if stop.load(Ordering::Relaxed) {
                bail!("it was ended before all rounds were measured");
            }
            if !arguments.json {
                note!(
                    "round {} of {}: {}",
                    round + 1,
                    arguments.rounds,
                    mode.name()
                );
            }
            for noting in [round % 2 == 0, round % 2 == 1] {
                let folder = Folder::create(number)?;
                number += 1;
                let said = || format!("--stages: {}, round {}", mode.name(), round + 1);
                let report = measure(
                    arguments,
                    testbed.as_ref(),
                    *mode,
                    (&folder.0, noting),
                    collected,
                )
                .with_context(said)?;
                last = Some(report);
            }
        }
    }
    let report = last.context("invariant: there is one round at least")?;
    let mut found = Vec::new();
    for (mode, collected) in modes.iter().zip(&collected) {
        let of = ModeStages::of(*mode, collected);
        found.push(of.with_context(|| {
            format!("--stages: {}: no round trip was noted whole", mode.name())
        })?);
    }
    let do_add_up = found.iter().all(ModeStages::adds_up);
    let mut environment = report.environment.lines();
    environment.push(match &card {
        Some(card) => {
            let kernels = modes.iter().zip(&collected);
            let of = kernels.filter(|(mode, _)| **mode == Mode::Kernel);
            let all: Vec<_> = of.flat_map(|(_, found)| &found.round_trips).collect();
            let stamped = all.iter().filter(|(one, _)| one.has_left()).count();
            card.line(stamped, all.len())
        }
        None => hardware_stamps(&report),
    });
    let report = StagesReport::new(report.subject(), found, environment);
    output::print_result(arguments.json, &report, || report.text())?;
    Ok(status(!do_add_up))
}

/// The card by which the kernel's stack sends to HOST: it stamps what leaves meanwhile.
fn card(arguments: &Arguments, modes: &[Mode]) -> anyhow::Result<Option<OnTheWay>> {
    match &arguments.target {
        Some(host) if modes.contains(&Mode::Kernel) => {
            let at = target::resolve(host, arguments.port, arguments.family())?;
            Ok(OnTheWay::to(at))
        }
        _ => Ok(None),
    }
}

fn check(arguments: &Arguments) -> anyhow::Result<()> {
    ensure!(
        arguments.kind() == Kind::Tcp,
        "--stages: the way of a message on a TCP connection is looked at: --udp, --connect and --raw have other ways"
    );
    ensure!(
        arguments.size <= SIZE_MAX,
        "--stages: one segment has {SIZE_MAX} bytes at most: a smaller --size does"
    );
    ensure!(
        arguments.count.is_none_or(|count| count <= COUNT_MAX),
        "--stages: {COUNT_MAX} round trips of a round can be noted: --rounds makes more of them"
    );
    Ok(())
}

/// Shunt's stack inside the program and the kernel's, unless --compare says otherwise; to a HOST the kernel's.
fn modes(arguments: &Arguments) -> Vec<Mode> {
    match (&arguments.compare[..], &arguments.target) {
        ([], None) => vec![Mode::Inline, Mode::Kernel],
        ([], Some(_)) => vec![Mode::Kernel],
        (named, _) => named.to_vec(),
    }
}

/// One measurement, with or without noting.
fn measure(
    arguments: &Arguments,
    testbed: Option<&Testbed<'_>>,
    mode: Mode,
    (folder, noting): (&Path, bool),
    collected: &mut Collected,
) -> anyhow::Result<Report> {
    let watch = if noting {
        collected.watch(mode, arguments.port)
    } else {
        None
    };
    // The engine before notes where this one shall not, or elsewhere.
    if let Some(served) = collected.served.take() {
        served.wait_until_ended();
    }
    let samples = folder.join(SAMPLES);
    let noted_in = noting.then_some(folder);
    let report = compare::measure(arguments, testbed, mode, Some((&samples, noted_in)))?;
    ensure!(
        report.round_trip.is_some(),
        "nothing was measured: {}",
        report.exceeded.join("; ")
    );
    let beside = report.served.as_ref().filter(|found| !found.is_inside);
    collected.served = beside.cloned();
    let times = times(&samples)?;
    let all: Vec<f64> = times.values().copied().collect();
    let p50_ns = Summary::of(&all).map(|found| found.median);
    if !noting {
        collected.unobserved_p50_ns.extend(p50_ns);
        return Ok(report);
    }
    collected.observed_p50_ns.extend(p50_ns);
    let marks = marks(folder, watch.as_ref())?;
    if let (Mode::Engine, Some(served)) = (mode, &report.served) {
        ensure!(
            marks.ask.iter().any(|(_, mark)| *mark == Mark::Taken),
            "engine {} serves that address already, and was not started to note stages: end it, or name another address in --run",
            served.engine
        );
    }
    let found = round_trips(&marks).into_iter().enumerate();
    // The first ones are those of the warm-up.
    let with_times =
        found.filter_map(|(sequence, one)| Some((one, *times.get(&(sequence as u64))?)));
    collected.round_trips.extend(with_times);
    Ok(report)
}

impl Collected {
    /// What the kernel can tell of this stack.
    fn watch(&mut self, mode: Mode, port: u16) -> Option<Watch> {
        let (watch, what) = match mode {
            Mode::Kernel => (
                Watch::of_connections(port),
                "the inside of the kernel's TCP",
            ),
            Mode::Engine | Mode::Inline | Mode::AfPacket | Mode::AfXdp => {
                (Watch::of_devices(), "when a packet leaves")
            }
        };
        match watch {
            Ok(watch) => Some(watch),
            Err(error) => {
                let said = format!("{what} is not told: {error}");
                if !self.missing.contains(&said) {
                    self.missing.push(said);
                }
                None
            }
        }
    }
}

/// What both ends noted, and the kernel tells of them.
fn marks(folder: &Path, watch: Option<&Watch>) -> anyhow::Result<Marks> {
    let read = |end: &str| {
        let noted = Noted::read(&folder.join(end)).context("reading what was noted")?;
        let lost = noted.lost;
        ensure!(
            lost == 0,
            "{lost} marks found no place: a smaller --count does"
        );
        Ok(noted)
    };
    let (ask, answer) = (read(ASK)?, read(ANSWER)?);
    let mut marks = Marks {
        ask: ask.marks,
        answer: answer.marks,
    };
    for event in watch.map(Watch::take).unwrap_or_default() {
        let of = match event.whom {
            Whom::Ask => &mut marks.ask,
            Whom::Answer => &mut marks.answer,
            Whom::Process(pid) if ask.pids.contains(&pid) => &mut marks.ask,
            Whom::Process(pid) if answer.pids.contains(&pid) => &mut marks.answer,
            Whom::Process(_) => continue,
        };
        of.push((event.at_ns, event.mark));
    }
    marks.ask.sort_unstable();
    marks.answer.sort_unstable();
    Ok(marks)
}

/// Round trips in nanoseconds, by number.
fn times(samples: &Path) -> anyhow::Result<std::collections::BTreeMap<u64, f64>> {
    let text = fs::read_to_string(samples).context("reading the round trips")?;
    let of = |line: &str| {
        let mut cells = line.split(',');
        Some((cells.next()?.parse().ok()?, cells.nth(1)?.parse().ok()?))
    };
    Ok(text.lines().skip(1).filter_map(of).collect())
}

/// Whether the card could stamp packets itself.
fn hardware_stamps(report: &Report) -> String {
    let name = report
        .environment
        .interface
        .as_ref()
        .map(|interface| interface.name.clone());
    let Some(name) = name else {
        return "hardware stamps: absent, the interface is not known".to_owned();
    };
    let Some(clock) = netlink::ethtool::clock(&name) else {
        return format!("hardware stamps: absent, {name} has no clock");
    };
    let stamped = match (clock.stamps_sent, clock.stamps_received) {
        (true, true) => "frames that leave and that arrive",
        (true, false) => "frames that leave",
        (false, true) => "frames that arrive",
        (false, false) => "those of PTP at most",
    };
    format!(
        "hardware stamps: /dev/ptp{} of {name} could stamp {stamped}; they are read of the kernel's stack alone",
        clock.number
    )
}
