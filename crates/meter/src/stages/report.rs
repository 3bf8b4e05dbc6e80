//! What the stages of one stack came to, and several stacks beside each other.

use std::collections::BTreeMap;

use output::Table;
use serde::Serialize;
use statistics::{Summary, median_ratio};

use super::timeline::{Group, POINTS, RoundTrip, STAGES};
use crate::{report::VERSION, served::Served, testbed::Mode};

/// A point is told apart where so many of the round trips have it.
const PRESENT: f64 = 0.9;
/// The sum of the stages may differ by so much from the round trip, which another clock took.
pub const SUM_TOLERANCE: f64 = 0.05;
/// Stages from one program to the other.
const WAY: usize = STAGES.len();

/// A stretch of the round trip: one stage, or several that are not told apart.
#[derive(Debug, Clone, Serialize)]
pub struct Stretch {
    /// Its name, or its names with a plus between.
    pub name: String,
    /// `there`, `back`, `application`, or `there and back` where the other end is not known.
    pub way: &'static str,
    /// What kind of latency it is: processing, transmission, propagation; joined where it is of several.
    pub group: String,
    /// Mean over the middle half of the round trips, in nanoseconds.
    pub mean_ns: f64,
    /// Median over all.
    pub p50_ns: f64,
    /// 99th percentile over all.
    pub p99_ns: f64,
    /// The first and the last of its stages, of those of a round trip.
    #[serde(skip)]
    from: usize,
    #[serde(skip)]
    to: usize,
}

/// One stack.
#[derive(Debug, Serialize)]
pub struct ModeStages {
    /// Which.
    pub mode: Mode,
    /// Round trips that were measured.
    pub round_trips: usize,
    /// Those that lack a point that most have: they are in no mean.
    pub incomplete: usize,
    /// By the measurement's own clock: mean over the middle half.
    pub round_trip_ns: f64,
    /// The stages of the same round trips, summed up.
    pub sum_ns: f64,
    /// What of the round trip is in no stage, per cent; below zero where the stages are longer.
    pub unexplained_percent: f64,
    /// Median round trip of each round while nobody noted anything, measured in turns with the others.
    pub unobserved_p50_ns: Summary,
    /// Median round trip of each round while stages were noted.
    pub observed_p50_ns: Summary,
    /// From before the message was sent until its bytes were acknowledged, median; what the kernel tells.
    pub acknowledged_p50_ns: Option<f64>,
    /// By kind of latency, mean over the middle half.
    pub groups_ns: BTreeMap<String, f64>,
    /// In order.
    pub stretches: Vec<Stretch>,
    /// Names and nanoseconds of one way, for `shunt path diff --with`.
    pub stages_ns: BTreeMap<String, f64>,
    /// What was not to be had, and why.
    pub missing: Vec<String>,
}

/// What is printed with --json.
#[derive(Debug, Serialize)]
pub struct StagesReport {
    /// [`VERSION`].
    pub version: u32,
    /// What was sent.
    pub subject: String,
    /// Stacks, in the order in which they were asked for.
    pub modes: Vec<ModeStages>,
    /// Where it was measured.
    pub environment: Vec<String>,
}

/// Round trips of one stack.
#[derive(Debug, Default)]
pub struct Collected {
    /// With the time that the measurement's own clock took, in nanoseconds.
    pub round_trips: Vec<(RoundTrip, f64)>,
    /// Medians of the rounds in which nobody noted anything.
    pub unobserved_p50_ns: Vec<f64>,
    /// Medians of the rounds in which stages were noted.
    pub observed_p50_ns: Vec<f64>,
    /// See [`ModeStages::missing`].
    pub missing: Vec<String>,
    /// The engine beside the program that was measured last.
    pub served: Option<Served>,
}

impl ModeStages {
    /// `None`: nothing was measured, or the ends of no round trip are known.
    pub fn of(mode: Mode, collected: &Collected) -> Option<Self> {
        let all = &collected.round_trips;
        let present: Vec<usize> = (0..POINTS)
            .filter(|&at| {
                let have = all.iter().filter(|(one, _)| one.points[at].is_some());
                have.count() as f64 >= PRESENT * all.len() as f64
            })
            .collect();
        let is_whole = |one: &RoundTrip| present.iter().all(|&at| one.points[at].is_some());
        let mut whole: Vec<&(RoundTrip, f64)> =
            all.iter().filter(|(one, _)| is_whole(one)).collect();
        if whole.is_empty() || present.len() < 2 {
            return None;
        }
        whole.sort_by(|(_, a), (_, b)| a.total_cmp(b));
        let middle = &whole[whole.len() / 4..whole.len() - whole.len() / 4];
        let mean = |of: &dyn Fn(&(RoundTrip, f64)) -> f64| {
            middle.iter().map(|one| of(one)).sum::<f64>() / middle.len() as f64
        };
        let mut stretches = Vec::new();
        for pair in present.windows(2) {
            let took = |(one, _): &(RoundTrip, f64)| between(one, pair[0], pair[1]);
            let mut sorted: Vec<f64> = whole.iter().map(|one| took(one)).collect();
            sorted.sort_by(f64::total_cmp);
            stretches.push(Stretch::new([pair[0], pair[1]], mean(&took), &sorted));
        }
        let round_trip_ns = mean(&|(_, total)| *total);
        let sum_ns: f64 = stretches.iter().map(|one| one.mean_ns).sum();
        let mut groups_ns = BTreeMap::new();
        for stretch in &stretches {
            *groups_ns.entry(stretch.group.clone()).or_default() += stretch.mean_ns;
        }
        let acknowledged: Vec<f64> = whole
            .iter()
            .filter_map(|(one, _)| Some(one.acknowledged_ns? as f64))
            .collect();
        Some(Self {
            mode,
            round_trips: all.len(),
            incomplete: all.len() - whole.len(),
            round_trip_ns,
            sum_ns,
            unexplained_percent: 100.0 * (round_trip_ns - sum_ns) / round_trip_ns,
            unobserved_p50_ns: Summary::of(&collected.unobserved_p50_ns)?,
            observed_p50_ns: Summary::of(&collected.observed_p50_ns)?,
            acknowledged_p50_ns: Summary::of(&acknowledged).map(|found| found.median),
            groups_ns,
            stages_ns: one_way(&stretches),
            stretches,
            missing: collected.missing.clone(),
        })
    }

    fn cost_of_noting(&self) -> String {
        let (with, without) = (&self.observed_p50_ns, &self.unobserved_p50_ns);
        let [us_with, us_without] = [with, without].map(|of| of.median / 1e3);
        let told_apart = match median_ratio(&with.samples, &without.samples) {
            Some(interval) if interval.low > 1.0 || interval.high < 1.0 => {
                format!("noting costs {:+.2} µs", us_with - us_without)
            }
            Some(_) => "what noting costs is within the noise".to_owned(),
            None => "what noting costs is not known: that needs three rounds".to_owned(),
        };
        format!(
            "p50 {us_with:.2} µs while stages were noted, {us_without:.2} µs while not: {told_apart}"
        )
    }

    /// Whether the stages add up to the round trip.
    pub fn adds_up(&self) -> bool {
        (self.round_trip_ns - self.sum_ns).abs() <= SUM_TOLERANCE * self.round_trip_ns
    }

    /// The stretch that ends with this stage of a round trip; `Err`: it is within one that ends later.
    fn at(&self, stage: usize) -> Result<f64, bool> {
        let of = self
            .stretches
            .iter()
            .find(|one| (one.from..=one.to).contains(&stage));
        match of {
            Some(one) if one.to == stage => Ok(one.mean_ns),
            found => Err(found.is_some()),
        }
    }
}

/// Means of the way there and the way back; the application once.
fn one_way(stretches: &[Stretch]) -> BTreeMap<String, f64> {
    let mut ways: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for stretch in stretches {
        let of = ways.entry(stretch.name.clone()).or_default();
        of.push(stretch.mean_ns);
    }
    let mean = |of: Vec<f64>| of.iter().sum::<f64>() / of.len() as f64;
    ways.into_iter()
        .map(|(name, of)| (name, mean(of)))
        .collect()
}

fn between(one: &RoundTrip, from: usize, to: usize) -> f64 {
    let ends = one.points[from].zip(one.points[to]);
    ends.map_or(0.0, |(from, to)| to.saturating_sub(from) as f64)
}

impl Stretch {
    fn new([from, to]: [usize; 2], mean_ns: f64, sorted: &[f64]) -> Self {
        let stages: Vec<usize> = (from..to).collect();
        let names: Vec<&str> = stages.iter().map(|at| STAGES[at % WAY].name).collect();
        let mut groups: Vec<Group> = stages.iter().map(|at| STAGES[at % WAY].group).collect();
        groups.sort_unstable();
        groups.dedup();
        let is_over = from < WAY - 1 && to > WAY;
        let way = match () {
            () if is_over => "there and back",
            () if to < WAY => "there",
            () if from >= WAY => "back",
            () => "application",
        };
        let name = if is_over {
            format!("{} … the other host … {}", names[0], names[names.len() - 1])
        } else {
            names.join(" + ")
        };
        let groups: Vec<&str> = groups.into_iter().map(group_name).collect();
        let at = |percent: usize| {
            let last = sorted.len().saturating_sub(1);
            sorted.get(last * percent / 100).copied().unwrap_or(0.0)
        };
        Self {
            name,
            way,
            group: if is_over {
                "the other host and the ways between".to_owned()
            } else {
                groups.join(" and ")
            },
            mean_ns,
            p50_ns: at(50),
            p99_ns: at(99),
            from,
            to: to - 1,
        }
    }
}

fn group_name(group: Group) -> &'static str {
    match group {
        Group::Processing => "processing",
        Group::Transmission => "transmission",
        Group::Propagation => "propagation",
    }
}

impl StagesReport {
    /// The report of these stacks.
    pub fn new(subject: String, modes: Vec<ModeStages>, environment: Vec<String>) -> Self {
        Self {
            version: VERSION,
            subject,
            modes,
            environment,
        }
    }

    /// For people.
    pub fn text(&self) -> String {
        let mut text = format!("{}, stage by stage\n\n", self.subject);
        text += &self.table();
        text += "\nMeans over the middle half of the round trips. \"↓\": not told apart from the next row with a number.\n\n";
        for mode in &self.modes {
            text += &mode.lines();
        }
        text.push('\n');
        for line in &self.environment {
            text += &format!("{line}\n");
        }
        text
    }

    /// All stacks in one table: rows are stages, columns the way there and back of each.
    fn table(&self) -> String {
        let mut cells: Vec<Vec<String>> = vec![vec!["µs".to_owned()]];
        for mode in &self.modes {
            let name = mode.mode.name();
            cells[0].extend([format!("{name} there"), format!("{name} back")]);
        }
        let us = |found: Result<f64, bool>| match found {
            Ok(ns) => format!("{:.3}", ns / 1e3),
            Err(true) => "↓".to_owned(),
            Err(false) => "-".to_owned(),
        };
        for (at, stage) in STAGES.iter().enumerate() {
            let mut row = vec![stage.name.to_owned()];
            for mode in &self.modes {
                let back = WAY + at;
                row.push(us(mode.at(at)));
                // The way back ends where the program has the answer.
                row.push(if back < POINTS - 1 {
                    us(mode.at(back))
                } else {
                    String::new()
                });
            }
            cells.push(row);
        }
        let mut total = vec!["sum".to_owned()];
        let mut round_trip = vec!["round trip".to_owned()];
        for mode in &self.modes {
            total.extend([format!("{:.3}", mode.sum_ns / 1e3), String::new()]);
            round_trip.extend([format!("{:.3}", mode.round_trip_ns / 1e3), String::new()]);
        }
        cells.extend([total, round_trip]);
        Table::of(cells).render()
    }
}

impl ModeStages {
    fn lines(&self) -> String {
        let name = self.mode.name();
        let mut text = format!(
            "{name}: {} round trips, {} incomplete; {:.1} % of the round trip in no stage{}\n",
            self.round_trips,
            self.incomplete,
            self.unexplained_percent,
            if self.adds_up() {
                ""
            } else {
                ": the stages do not add up"
            }
        );
        for (group, ns) in &self.groups_ns {
            text += &format!(
                "{name}: {group} {:.3} µs ({:.0} %)\n",
                ns / 1e3,
                100.0 * ns / self.round_trip_ns
            );
        }
        text += &format!("{name}: {}\n", self.cost_of_noting());
        if let Some(ns) = self.acknowledged_p50_ns {
            text += &format!("{name}: acknowledged after {:.2} µs (p50)\n", ns / 1e3);
        }
        for missing in &self.missing {
            text += &format!("{name}: {missing}\n");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collected(missing: &[usize]) -> Collected {
        let mut collected = Collected::default();
        for number in 0..100_u64 {
            let points = std::array::from_fn(|at| {
                let is_missing = missing.contains(&at) || (at == 4 && number == 7);
                (!is_missing).then_some(
                    1_000_000 * number + 10 * at as u64 + number * u64::from(at == POINTS - 1),
                )
            });
            let one = RoundTrip {
                points,
                acknowledged_ns: None,
            };
            // The measurement's own clock is read outside of the first and the last mark.
            collected.round_trips.push((one, 232.0 + number as f64));
        }
        collected.unobserved_p50_ns = vec![200.0, 210.0, 190.0];
        collected.observed_p50_ns = vec![230.0, 240.0, 220.0];
        collected
    }

    #[test]
    fn stages_add_up_to_the_round_trip_and_the_rest_is_told() {
        let found = ModeStages::of(Mode::Inline, &collected(&[])).unwrap();
        assert_eq!((found.round_trips, found.incomplete), (100, 1));
        assert_eq!(found.stretches.len(), POINTS - 1);
        let difference = found.round_trip_ns - found.sum_ns;
        assert!((difference - 2.0).abs() < 1e-9, "{difference}");
        assert!(found.adds_up());
        assert!((found.unexplained_percent - 100.0 * 2.0 / found.round_trip_ns).abs() < 1e-9);
        let groups: f64 = found.groups_ns.values().sum();
        assert!((groups - found.sum_ns).abs() < 1e-9);
        assert_eq!(found.stages_ns["application"], 10.0);
        assert_eq!(found.stages_ns.len(), STAGES.len());
    }

    #[test]
    fn what_is_not_noted_is_told_with_what_comes_after_it() {
        let found = ModeStages::of(Mode::Kernel, &collected(&[1, 2, 3, 13, 14, 15])).unwrap();
        let first = &found.stretches[0];
        assert_eq!(first.name, "call + ring + pick-up + TCP/IP, sending");
        assert_eq!((first.group.as_str(), first.way), ("processing", "there"));
        assert_eq!(first.mean_ns, 40.0);
        assert_eq!((found.at(0), found.at(3)), (Err(true), Ok(40.0)));
        let report = StagesReport::new("TCP".to_owned(), vec![found], Vec::new());
        let text = report.text();
        assert!(text.contains("ring"), "{text}");
    }

    #[test]
    fn a_host_that_notes_nothing_is_one_stretch() {
        let unknown: Vec<usize> = (6..18).collect();
        let found = ModeStages::of(Mode::Kernel, &collected(&unknown)).unwrap();
        let over = found
            .stretches
            .iter()
            .find(|one| one.way == "there and back")
            .unwrap();
        assert_eq!(over.name, "wire … the other host … wire");
        assert_eq!(over.mean_ns, 130.0);
        assert!(found.adds_up());
    }

    #[test]
    fn nothing_measured_is_no_result() {
        assert!(ModeStages::of(Mode::Kernel, &Collected::default()).is_none());
    }
}
