//! `shunt measure memory`, `pcie` and `disk`: what this machine's own components take, under the names that paths give them, so
//! that `shunt path compare` and `diff` can set them beside the papers' values. What cannot be measured is said with its
//! reason.

pub mod memory;
pub mod pcie;
mod sys;

use std::{collections::BTreeMap, fs};

use serde::Serialize;
use sim::report::document::Document;
use statistics::Summary;

/// One component as it was measured.
#[derive(Debug, Serialize)]
struct Measured {
    name: String,
    ns: Summary,
    how: String,
}

/// Prints components: a table, or names and nanoseconds.
fn tell(title: &str, found: &[Measured], paper: &str, json: bool) -> anyhow::Result<()> {
    if json {
        let names: BTreeMap<&str, f64> = found
            .iter()
            .map(|one| (one.name.as_str(), (one.ns.median * 10.0).round() / 10.0))
            .collect();
        return output::print_json(&names);
    }
    let mut document = Document::new(title);
    let rows = found.iter().map(|one| {
        let numbers = [one.ns.median, one.ns.min, one.ns.max].map(|ns| format!("{ns:.1}"));
        let [median, least, most] = numbers;
        let runs = one.ns.samples.len().to_string();
        vec![one.name.clone(), median, least, most, runs, one.how.clone()]
    });
    let headings = "component | median ns | least | most | runs | how".split(" | ");
    document.table(headings, rows.collect());
    document.text(paper);
    output::print(&document.to_text())
}

/// Whether a hypervisor runs this kernel.
fn is_virtual() -> bool {
    has_hypervisor(&fs::read_to_string("/proc/cpuinfo").unwrap_or_default())
}

/// A hypervisor says so by a bit that Linux shows as a flag of the processor.
fn has_hypervisor(processors: &str) -> bool {
    let flags = processors.lines().find(|line| line.starts_with("flags"));
    flags.is_some_and(|line| {
        line.split_ascii_whitespace()
            .any(|word| word == "hypervisor")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hypervisor_is_a_flag_of_the_processor() {
        assert!(has_hypervisor("processor: 0\nflags : fpu hypervisor lm\n"));
        assert!(!has_hypervisor("flags : fpu lm\nbugs : hypervisor\n"));
    }
}
