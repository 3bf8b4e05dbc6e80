//! The result as a table and as JSON, with everything a reader needs to judge it.

use serde::Serialize;

use super::{
    case::{Better, Collected, Measure, number},
    context::Context,
    side::Side,
};
use crate::{bench::statistics::Summary, output::Table};

/// The whole result.
#[derive(Debug, Serialize)]
pub struct Report {
    kernel: String,
    cores: usize,
    cable: String,
    mtu_bytes: u32,
    congestion_control: CongestionControl,
    idle_latency_held: bool,
    runs: u32,
    file_bytes: u64,
    duration_s: u64,
    results: Vec<Row>,
    failures: Vec<String>,
}

/// Which control each sender used.
#[derive(Debug, Serialize)]
struct CongestionControl {
    kernel: String,
    shunt: &'static str,
}

/// One quantity of one program on both sides.
#[derive(Debug, Serialize)]
struct Row {
    program: &'static str,
    #[serde(flatten)]
    measure: Measure,
    kernel: Option<Summary>,
    shunt: Option<Summary>,
    /// Median of Shunt over median of the kernel.
    ratio: Option<f64>,
}

impl Report {
    /// Sums up what was collected.
    pub fn of(context: &Context, collected: &[Collected]) -> Self {
        let rows = collected.iter().flat_map(|case| {
            case.measures()
                .into_iter()
                .map(|measure| Row::of(case, measure))
        });
        Self {
            kernel: rustix::system::uname()
                .release()
                .to_string_lossy()
                .into_owned(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            cable: context.lab().cable().to_string(),
            mtu_bytes: context.lab().mtu(),
            congestion_control: CongestionControl {
                kernel: context.lab().congestion().to_owned(),
                shunt: SHUNT_CONGESTION_CONTROL,
            },
            idle_latency_held: context.idle().held(),
            runs: context.scale().runs,
            file_bytes: context.content().bytes(),
            duration_s: context.elapsed().as_secs(),
            results: rows.collect(),
            failures: collected.iter().flat_map(Collected::failures).collect(),
        }
    }

    /// True where a program failed on any side.
    pub fn failed(&self) -> bool {
        !self.failures.is_empty()
    }

    /// The table and what belongs to it.
    pub fn text(&self) -> String {
        let mut table = Table::new([
            "program", "measured", "unit", "kernel", "spread", "Shunt", "spread", "ratio", "runs",
        ]);
        for row in &self.results {
            row.add_to(&mut table);
        }
        let idle = if self.idle_latency_held {
            "held at 0 µs for both sides"
        } else {
            "not held for either side (no permission)"
        };
        let mut text = format!(
            "\nLinux {}, {} cores, {} MTU {}; the peer is always the kernel of the other host\n\
             congestion control: kernel {}, Shunt {}; /dev/cpu_dma_latency {idle}\n\
             file {} MiB; median of the runs; spread = (largest - smallest) / median; ratio = Shunt / kernel; {} s\n\n{}",
            self.kernel,
            self.cores,
            self.cable,
            self.mtu_bytes,
            self.congestion_control.kernel,
            self.congestion_control.shunt,
            self.file_bytes >> 20,
            self.duration_s,
            table.render()
        );
        for failure in &self.failures {
            text += &format!("\nfailed: {failure}\n");
        }
        text
    }
}

/// The only one that the engine has.
const SHUNT_CONGESTION_CONTROL: &str = "reno";

impl Row {
    fn of(case: &Collected, measure: Measure) -> Self {
        // A side that failed once has no result, however its other runs went.
        let side = |side| {
            if case.has_failed(side) {
                None
            } else {
                Summary::of(&case.values(side, measure))
            }
        };
        let (kernel, shunt) = (side(Side::Kernel), side(Side::Shunt));
        let ratio = kernel
            .as_ref()
            .zip(shunt.as_ref())
            .map(|(kernel, shunt)| shunt.median / kernel.median);
        Self {
            program: case.title,
            measure,
            kernel,
            shunt,
            ratio,
        }
    }

    fn add_to(&self, table: &mut Table) {
        let median = |summary: &Option<Summary>| {
            summary
                .as_ref()
                .map_or("-".to_owned(), |summary| number(summary.median))
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
        let counts = [&self.kernel, &self.shunt]
            .map(|side| side.as_ref().map_or(0, |summary| summary.samples.len()));
        table.row([
            self.program.to_owned(),
            format!("{}{better}", self.measure.name),
            self.measure.unit.to_owned(),
            median(&self.kernel),
            spread(&self.kernel),
            median(&self.shunt),
            spread(&self.shunt),
            self.ratio
                .map_or("-".to_owned(), |ratio| format!("{ratio:.2}")),
            if counts[0] == counts[1] {
                counts[0].to_string()
            } else {
                format!("{}/{}", counts[0], counts[1])
            },
        ]);
    }
}
