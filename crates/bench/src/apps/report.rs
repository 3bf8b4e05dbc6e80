//! The result as a table and as JSON, with everything a reader needs to judge it.

use serde::Serialize;

use super::{
    case::{Collected, Measure},
    context::{Context, EngineFacts},
    nginx::BIG_SEGMENT_BYTES,
    side::{Mode, Side},
};
use crate::{
    cores,
    distance::{self, ByDistance, Range},
    tools,
    unit::{Better, number},
};
use output::Table;
use statistics::Summary;

#[derive(Debug, Serialize)]
pub struct Report {
    kernel: String,
    cores: usize,
    cable: String,
    mtu_bytes: u32,
    /// Congestion control of both kernels.
    kernel_congestion_control: String,
    /// None where no engine was started.
    engine: Option<EngineFacts>,
    /// The processor that the engine was bound to; programs ran where the scheduler put them.
    engine_cpu: Option<usize>,
    /// Beside the runs, to the nearest processor and back.
    cache_line_round_trip: Option<Range>,
    /// Why processors are not held from deep idle.
    idle_latency_not_held: Option<&'static str>,
    runs: u32,
    file_bytes: u64,
    duration_s: u64,
    /// Why `shunt run` has put the engines where they ran.
    reasons: Vec<String>,
    results: Vec<Row>,
    failures: Vec<String>,
}

/// One quantity of one program on the kernel and on one side of Shunt's.
#[derive(Debug, Serialize)]
struct Row {
    program: &'static str,
    #[serde(flatten)]
    measure: Measure,
    kernel: Option<Summary>,
    /// Where the engine ran.
    mode: Option<Mode>,
    shunt: Option<Summary>,
    /// Median of Shunt over median of the kernel.
    ratio: Option<f64>,
    /// The same of near and of far processors, where they were moved between runs.
    by_distance: Vec<ByDistance>,
    /// Sides that have no result because they failed.
    failed: Vec<Side>,
}

impl Report {
    /// Sums up what was collected.
    pub fn of(context: &Context, collected: &[Collected], sides: &[Side]) -> Self {
        let mut of_shunt: Vec<Side> = sides.to_vec();
        of_shunt.retain(|side| *side != Side::Kernel);
        if of_shunt.is_empty() {
            of_shunt.push(Side::Shunt);
        }
        let distances_ns = collected.iter().flat_map(Collected::distances_ns);
        let cache_line_round_trip = Range::of(distances_ns);
        let limit_ns = cache_line_round_trip.and_then(Range::limit_ns);
        let rows = collected.iter().flat_map(|case| {
            let sides = of_shunt.iter();
            let row_pairs = sides.flat_map(|side| case.measures().into_iter().map(|m| (*side, m)));
            row_pairs.map(|(side, measure)| Row::of(case, side, measure, limit_ns))
        });
        Self {
            kernel: tools::kernel_release(),
            cores: tools::processors(),
            cable: context.lab().cable().to_string(),
            mtu_bytes: context.lab().mtu(),
            kernel_congestion_control: context.lab().congestion().to_owned(),
            engine: context.engine().cloned(),
            engine_cpu: cores::for_engine(),
            cache_line_round_trip: cache_line_round_trip.or_else(Range::now),
            idle_latency_not_held: context.common.idle.why_not(),
            runs: context.common.scale.runs,
            file_bytes: context.common.content.bytes,
            duration_s: context.common.begun.elapsed().as_secs(),
            reasons: context.reasons(),
            results: rows.collect(),
            failures: collected.iter().flat_map(Collected::failures).collect(),
        }
    }

    /// True where a program failed on any side.
    pub fn failed(&self) -> bool {
        !self.failures.is_empty()
    }

    /// Machine, path and settings, one line each.
    fn conditions(&self) -> String {
        let distance = self
            .cache_line_round_trip
            .map_or_else(String::new, |range| {
                format!(
                    ", a cache line to another core and back {} ns",
                    range.text()
                )
            });
        let inside = engine::CongestionControl::default().name();
        let engine = self.engine.as_ref().map_or_else(String::new, |engine| {
            let bound = self
                .engine_cpu
                .map_or_else(String::new, |cpu| format!(" on processor {cpu}"));
            format!(
                "; Shunt: by {}; engine processes{bound}, {}; engines inside programs {inside}",
                engine.driver, self.kernel_congestion_control
            )
        });
        let idle = match self.idle_latency_not_held {
            None => {
                "processors kept from deep idle for both sides (/dev/cpu_dma_latency)".to_owned()
            }
            Some(why) => format!("processors idle as they are set on both sides ({why})"),
        };
        format!(
            "Linux {}, {} cores{distance}\n\
             path: {}, MTU {}, segments of up to {} KiB (BIG TCP: {} KiB, for both sides); kernel: its own TCP, {}{engine}; the peer is always the kernel of the other host\n\
             {idle}",
            self.kernel,
            self.cores,
            self.cable,
            self.mtu_bytes,
            lab::ORDINARY_SEGMENT_BYTES / 1024,
            BIG_SEGMENT_BYTES / 1024,
            self.kernel_congestion_control,
        )
    }

    /// The table and what belongs to it.
    pub fn text(&self) -> String {
        let mut table = Table::new(
            "program | measured | unit | kernel | spread | engine | Shunt | spread | Shunt/kernel | runs",
        );
        for row in &self.results {
            row.add_to(&mut table);
        }
        let mut text = format!(
            "\n{}\nfile {} MiB; each value is the median of its runs, spread = (largest - smallest) / median; {} s\n\n{}",
            self.conditions(),
            self.file_bytes >> 20,
            self.duration_s,
            table.render()
        );
        if !self.reasons.is_empty() {
            text += &format!(
                "engine, as `shunt run` chooses: {}\n",
                self.reasons.join("; ")
            );
        }
        text += &distance::text(self.results.iter().map(|row| {
            let name = format!("{}, {}", row.program, row.measure.name);
            (name, &row.by_distance[..])
        }));
        for failure in &self.failures {
            text += &format!("\nfailed: {failure}\n");
        }
        text
    }
}

impl Row {
    fn of(case: &Collected, of_shunt: Side, measure: Measure, limit_ns: Option<f64>) -> Self {
        // A side that failed once has no result, however its other runs went.
        let side = |side| {
            if case.has_failed(side) {
                None
            } else {
                Summary::of(&case.values(side, measure))
            }
        };
        let (kernel, shunt) = (side(Side::Kernel), side(of_shunt));
        let ratio = kernel
            .as_ref()
            .zip(shunt.as_ref())
            .map(|(kernel, shunt)| shunt.median / kernel.median);
        let by_distance = limit_ns.map_or_else(Vec::new, |limit_ns| {
            let runs = |side| match case.has_failed(side) {
                true => Vec::new(),
                false => case.runs_of(side, measure),
            };
            distance::split(&runs(Side::Kernel), &runs(of_shunt), limit_ns)
        });
        Self {
            program: case.title,
            measure,
            kernel,
            mode: case.mode(of_shunt),
            shunt,
            ratio,
            by_distance,
            failed: [Side::Kernel, of_shunt]
                .into_iter()
                .filter(|side| case.has_failed(*side))
                .collect(),
        }
    }

    fn add_to(&self, table: &mut Table) {
        let median = |is_kernel: bool, summary: &Option<Summary>| match summary {
            Some(summary) => number(summary.median),
            None if self
                .failed
                .iter()
                .any(|side| (*side == Side::Kernel) == is_kernel) =>
            {
                "failed".to_owned()
            }
            None => "-".to_owned(),
        };
        let spread = |summary: &Option<Summary>| {
            summary.as_ref().map_or("-".to_owned(), |summary| {
                format!("{:.0} %", summary.spread() * 100.0)
            })
        };
        let better = match self.measure.better {
            Better::Higher => "",
            Better::Lower => " (lower is better)",
        };
        let runs = [&self.kernel, &self.shunt]
            .into_iter()
            .flatten()
            .map(|side| side.samples.len())
            .max();
        table.row([
            self.program.to_owned(),
            format!("{}{better}", self.measure.name),
            self.measure.unit.to_owned(),
            median(true, &self.kernel),
            spread(&self.kernel),
            self.mode.map_or("-".to_owned(), |mode| mode.to_string()),
            median(false, &self.shunt),
            spread(&self.shunt),
            self.ratio
                .map_or("-".to_owned(), |ratio| format!("{ratio:.2}")),
            runs.unwrap_or(0).to_string(),
        ]);
    }
}
