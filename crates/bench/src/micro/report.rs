//! The table and its conditions, for people and as JSON.

use load::idle::IdleLatency;
use serde::Serialize;

use super::{
    row::{Measured, each_once},
    samples::Samples,
    setup::Plan,
    testbed::Testbed,
};
use crate::{
    cores,
    distance::{self, Range},
    tools,
};
use output::Table;

#[derive(Debug, Serialize)]
pub struct Report {
    measured: String,
    version: &'static str,
    pub kernel: String,
    pub cores: usize,
    cable: String,
    mtu_bytes: u32,
    /// Of both kernels, and of every engine that has a process of its own.
    congestion_control: String,
    engine_cpu: Option<usize>,
    /// Beside the runs, to the nearest processor and back.
    cache_line_round_trip: Option<Range>,
    /// Why setups that ask for it cannot hold processors from deep idle.
    idle_latency_not_held: Option<&'static str>,
    runs: u32,
    duration_s: u64,
    pub notes: Vec<&'static str>,
    /// What a paper reports of the same work.
    pub published: Vec<String>,
    pub rows: Vec<Measured>,
    pub skipped: Vec<String>,
    pub failures: Vec<String>,
}

impl Report {
    /// Sums up what was measured.
    pub fn of(
        measured: &str,
        runs: u32,
        testbed: &Testbed,
        plan: &Plan,
        samples: &Samples,
    ) -> Self {
        let cache_line_round_trip = Range::of(samples.distances_ns());
        let limit_ns = cache_line_round_trip.and_then(Range::limit_ns);
        Self {
            measured: measured.to_owned(),
            version: env!("CARGO_PKG_VERSION"),
            kernel: tools::kernel_release(),
            cores: tools::processors(),
            cable: testbed.lab.cable().to_string(),
            mtu_bytes: testbed.lab.mtu(),
            congestion_control: testbed.lab.congestion().to_owned(),
            engine_cpu: cores::for_engine(),
            cache_line_round_trip: cache_line_round_trip.or_else(Range::now),
            idle_latency_not_held: IdleLatency::hold().why_not(),
            runs,
            duration_s: testbed.elapsed().as_secs(),
            notes: plan.notes.clone(),
            published: Vec::new(),
            rows: plan
                .rows
                .iter()
                .map(|row| Measured::of(row, samples, limit_ns))
                .collect(),
            skipped: each_once(samples.skips()),
            failures: each_once(samples.failures()),
        }
    }

    /// True where a run went wrong, or nothing was measured.
    pub fn failed(&self) -> bool {
        !self.failures.is_empty() || self.rows.iter().all(|row| row.shunt.is_none())
    }

    /// Under which conditions.
    pub fn conditions(&self) -> String {
        let distance = self
            .cache_line_round_trip
            .map_or("?".to_owned(), Range::text);
        let engine = self.engine_cpu.map_or_else(String::new, |cpu| {
            format!("; an engine of its own runs on processor {cpu}")
        });
        let idle = match self.idle_latency_not_held {
            None => "idle latency: held at 0 for both sides of every row that does not say untouched (/dev/cpu_dma_latency)".to_owned(),
            Some(why) => format!("idle latency: untouched for both sides of every row ({why})"),
        };
        let inline = engine::CongestionControl::default().name();
        format!(
            "shunt {}, Linux {}, {} cores; a cache line to another core and back {distance} ns\n\
             path: {}, MTU {}, {} on kernels and engines, {inline} on engines inside programs{engine}\n\
             {idle}",
            self.version,
            self.kernel,
            self.cores,
            self.cable,
            self.mtu_bytes,
            self.congestion_control,
        )
    }

    /// The table and what belongs to it.
    pub fn text(&self) -> String {
        let mut table = Table::new(&format!(
            "{} | unit | kernel | spread | Shunt | spread | Shunt/kernel | runs",
            self.measured
        ));
        for row in &self.rows {
            table.row(row.cells());
        }
        let notes: Vec<String> = self
            .notes
            .iter()
            .map(|note| format!("- {note}\n"))
            .collect();
        let mut text = format!(
            "\n{}\nmedians of {} interleaved runs, ratio = median of the ratios within runs, spread = (largest - smallest) / median, ~ = smaller than the noise of the runs (95 %, three runs at least); {} s\n{}\n{}",
            self.conditions(),
            self.runs,
            self.duration_s,
            notes.concat(),
            table.render()
        );
        let rows = self.rows.iter();
        text += &distance::text(rows.map(|row| (row.what.clone(), &row.by_distance[..])));
        for line in &self.published {
            text += &format!("\n{line}");
        }
        if !self.published.is_empty() {
            text.push('\n');
        }
        for skipped in &self.skipped {
            text += &format!("\nnot measured: {skipped}");
        }
        for failure in &self.failures {
            text += &format!("\nfailed: {failure}");
        }
        if !self.skipped.is_empty() || !self.failures.is_empty() {
            text.push('\n');
        }
        text
    }
}
