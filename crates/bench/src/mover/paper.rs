//! The `zero-copy` paper's experiment (§5.3): sendfile(2) against read(2) and write(2), with a fixed and with an
//! advancing offset, into memory and into a file; its tables 2 and 3 beside ours.

use mover::{Method, experiment::Experiment};
use sim::paper::Facts;

use super::case::{Case, Counters, Group, Ran};

/// What the paper's listings take at a time.
const BLOCK_BYTES: usize = 1 << 20;

/// Whether the offset advances.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Offset {
    /// The same part again and again: no transfer, what the calls cost
    Fixed,
    /// The whole file
    Advancing,
}

/// Where bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Sink {
    /// Received into memory and dropped
    Null,
    /// Written to a file, with fdatasync
    File,
}

/// One cell of the tables.
#[derive(Debug, Clone, Copy)]
pub struct Cell {
    /// How bytes are sent.
    pub method: Method,
    pub offset: Offset,
    pub sink: Sink,
}

impl Cell {
    /// All cells with these offsets and sinks.
    pub fn all(offsets: &[Offset], sinks: &[Sink]) -> Vec<Self> {
        let mut cells = Vec::new();
        for &sink in sinks {
            for &offset in offsets {
                for method in [Method::Sendfile, Method::ReadWrite] {
                    cells.push(Self {
                        method,
                        offset,
                        sink,
                    });
                }
            }
        }
        cells
    }

    /// Names it among cases.
    pub fn key(self) -> String {
        format!("paper-{:?}-{:?}-{:?}", self.method, self.offset, self.sink)
    }

    fn title(self) -> String {
        let method = match self.method {
            Method::ReadWrite => "read/write",
            method => method.name(),
        };
        let offset = match self.offset {
            Offset::Fixed => "fixed offset (no transfer)",
            Offset::Advancing => "advancing offset",
        };
        let sink = match self.sink {
            Sink::Null => "memory sink",
            Sink::File => "file sink",
        };
        format!("loop: {method}, {offset}, {sink}")
    }

    /// The paper's figure in Gbit/s, and where it stands; its internal transfers are into memory.
    pub fn published(self) -> Option<(f64, &'static str)> {
        let (fact, place) = match (self.sink, self.offset, self.method) {
            (Sink::Null, Offset::Fixed, Method::Sendfile) => ("zc.t2.zc.fixed", "table 2"),
            (Sink::Null, Offset::Advancing, Method::Sendfile) => ("zc.t2.zc.advancing", "table 2"),
            (Sink::Null, Offset::Fixed, Method::ReadWrite) => ("zc.t2.rw.fixed", "table 2"),
            (Sink::Null, Offset::Advancing, Method::ReadWrite) => ("zc.t2.rw.advancing", "table 2"),
            (Sink::File, Offset::Advancing, Method::Sendfile) => {
                ("zc.10g.store.rate", "fig. 12, over 100GbE")
            }
            _ => return None,
        };
        Some((Facts::zero_copy().number(fact), place))
    }

    /// As a case of the run.
    pub fn case(self) -> Case {
        Case {
            key: self.key(),
            title: self.title(),
            group: Group::Paper,
            tools: &[],
            stores: self.sink == Sink::File && self.offset == Offset::Advancing,
            run: Box::new(move |site| {
                let experiment = Experiment {
                    source: site.source(),
                    bytes: site.bytes,
                    block_bytes: BLOCK_BYTES,
                    method: self.method,
                    is_advancing: self.offset == Offset::Advancing,
                    target: (self.sink == Sink::File).then(|| site.stored()),
                };
                let measured = experiment.run(site.interrupt.flag())?;
                let spent = [measured.sender.spent, measured.receiver.spent];
                let cpu_s = spent.iter().map(|spent| spent.cpu.as_secs_f64()).sum();
                let intervals = measured.intervals.iter();
                Ok(Ran {
                    counters: Some(counters(&measured, site.bytes)),
                    intervals: intervals
                        .map(|(end, bytes)| (end.as_secs_f64(), *bytes))
                        .collect(),
                    ..Ran::of(site.bytes, measured.taken.as_secs_f64(), Some(cpu_s))
                })
            }),
        }
    }
}

fn counters(measured: &mover::experiment::Measured, bytes: u64) -> Counters {
    let (sender, receiver) = (measured.sender, measured.receiver);
    let mib = bytes as f64 / f64::from(1 << 20);
    let each = |one: u64, other: u64| (one + other) as f64 / mib;
    Counters {
        sender_calls_per_mib: sender.calls as f64 / mib,
        sender_copies: sender.copied_bytes as f64 / bytes as f64,
        receiver_calls_per_mib: receiver.calls as f64 / mib,
        receiver_copies: receiver.copied_bytes as f64 / bytes as f64,
        voluntary_switches_per_mib: each(
            sender.spent.voluntary_switches,
            receiver.spent.voluntary_switches,
        ),
        involuntary_switches_per_mib: each(
            sender.spent.involuntary_switches,
            receiver.spent.involuntary_switches,
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_table_2_stands_beside_its_four_cells() {
        let cells = Cell::all(&[Offset::Fixed, Offset::Advancing], &[Sink::Null]);
        let figures: Vec<f64> = cells
            .iter()
            .map(|cell| cell.published().unwrap().0)
            .collect();
        assert_eq!(figures, [73.7, 29.2, 51.5, 24.7]);
        let keys: std::collections::BTreeSet<String> =
            cells.iter().map(|cell| cell.key()).collect();
        assert_eq!(keys.len(), 4);
        assert!(cells[0].case().title.contains("no transfer"));
    }
}
