//! What the project has set itself for large files, and whether it was reached: see docs/mover.md.
//!
//! Goals that speak of the disk are not judged on file systems in memory.

use serde::Serialize;

use super::{
    case::Group,
    own,
    report::{Part, Row},
    size_text,
};
use crate::statistics::Summary;
use output::Table;

/// Something that the project has set itself.
#[derive(Debug, Serialize)]
pub struct Goal {
    place: String,
    what: &'static str,
    value: Option<f64>,
    at_least: Option<f64>,
    at_most: Option<f64>,
    met: Option<bool>,
}

/// Judges what was measured: the goals of docs/mover.md.
pub fn judge(parts: &[Part], is_fresh: bool) -> Vec<Goal> {
    let mut goals = Vec::new();
    for part in parts.iter().filter(|part| part.row(own::XXH3).is_some()) {
        // Of further sizes only how the rate changes is measured.
        let is_peer = |row: &Row| row.group == Group::Peer;
        if part.row(own::MEMORY).is_some() || part.rows.iter().any(is_peer) {
            goals.extend(goals_of(part, is_fresh));
        }
    }
    goals.extend(sags(parts));
    goals
}

fn goals_of(part: &Part, is_fresh: bool) -> Vec<Goal> {
    let median = |summary: Option<&Summary>| Some(summary?.median);
    let row = |key: &str| part.row(key);
    let of_disk = |key: &str| median(row(key)?.of_disk.as_ref());
    let over = |one: &str, other: &str| Some(part.rate(one)? / part.rate(other)?);
    let peers = part.rows.iter().filter(|row| row.group == Group::Peer);
    let best_peer = peers
        .filter_map(|row| Some(row.gbit_per_s.as_ref()?.median))
        .max_by(f64::total_cmp);
    let goal = |what, value: Option<f64>, at_least: Option<f64>, at_most: Option<f64>| Goal {
        place: part.place(),
        what,
        value,
        at_least,
        at_most,
        met: value.map(|value| {
            at_least.is_none_or(|least| value >= least) && at_most.is_none_or(|most| value <= most)
        }),
    };
    let mut goals = Vec::new();
    if !part.is_memory() {
        goals.push(goal(
            "XXH3, of the disk's own rate",
            of_disk(own::XXH3),
            Some(0.95),
            None,
        ));
        goals.push(goal(
            "BLAKE3, of the disk's own rate",
            of_disk(own::BLAKE3),
            Some(0.8),
            None,
        ));
    }
    let cpu = row(own::XXH3).and_then(|row| median(row.cpu_s_per_gb.as_ref()));
    goals.push(goal("XXH3, CPU s/GB of both ends", cpu, None, Some(0.35)));
    let peer = best_peer.and_then(|peer| Some(part.rate(own::XXH3)? / peer));
    let (what, least) = if is_fresh {
        ("XXH3, over the best peer, in fresh memory", 3.0)
    } else {
        ("XXH3, over the best peer", 1.5)
    };
    goals.push(goal(what, peer, Some(least), None));
    let own = over(own::XXH3, own::READ_WRITE);
    goals.push(goal(
        "XXH3, over its own read/write mode",
        own,
        Some(1.6),
        None,
    ));
    let memory = over(own::MEMORY, own::MEMORY_READ_WRITE);
    goals.push(goal(
        "memory sink, over its own read/write mode",
        memory,
        Some(1.3),
        None,
    ));
    goals
}

/// How much of the rate is lost from the smallest file to the largest.
fn sags(parts: &[Part]) -> Vec<Goal> {
    let mut sags = Vec::new();
    let mut folders: Vec<&str> = parts.iter().map(|part| part.folder.as_str()).collect();
    folders.dedup();
    for folder in folders {
        let mut sized: Vec<&Part> = parts
            .iter()
            .filter(|part| part.folder == folder && part.rate(own::XXH3).is_some())
            .collect();
        sized.sort_by_key(|part| part.bytes);
        let [small, .., large] = sized.as_slice() else {
            continue;
        };
        let rates = small.rate(own::XXH3).zip(large.rate(own::XXH3));
        let sag = rates.map(|(small, large)| 1.0 - large / small);
        sags.push(Goal {
            place: format!("{}, from {}", large.place(), size_text(small.bytes)),
            what: "XXH3, part of the rate lost as the file grows",
            value: sag,
            at_least: None,
            at_most: Some(0.05),
            met: sag.map(|sag| sag <= 0.05),
        });
    }
    sags
}

/// As a table.
pub fn text(goals: &[Goal]) -> String {
    let mut table = Table::new(["goal", "where", "value", "", "verdict"]);
    for goal in goals {
        let bound = match (goal.at_least, goal.at_most) {
            (Some(least), _) => format!(">= {least:.2}"),
            (None, Some(most)) => format!("<= {most:.2}"),
            (None, None) => String::new(),
        };
        let verdict = match goal.met {
            Some(true) => "met",
            Some(false) => "missed",
            None => "not measured",
        };
        table.row([
            goal.what.to_owned(),
            goal.place.clone(),
            goal.value
                .map_or_else(|| "-".to_owned(), |value| format!("{value:.2}")),
            bound,
            verdict.to_owned(),
        ]);
    }
    table.render()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mover::{
        report::{Report, Shown, rows},
        results::{Results, tests::results},
        site::FileSystem,
    };

    fn part(bytes: u64, xxh3: f64, all: bool) -> Part {
        let rates = [xxh3; 3];
        let mut cases = vec![
            (own::DISK_WRITE, Group::Limit, &[32.0, 32.0, 32.0][..]),
            (own::XXH3, Group::Own, &rates),
        ];
        if all {
            cases.push((own::MEMORY, Group::Own, &[40.0, 40.0, 40.0]));
            cases.push((own::READ_WRITE, Group::Own, &[16.0, 16.0, 16.0]));
            cases.push(("peer-x", Group::Peer, &[24.0, 24.0, 24.0]));
        }
        let mut results = results(&cases);
        if all {
            results.fail(4, "it stored too little".to_owned());
        }
        Part {
            folder: "/d".to_owned(),
            file_system: Some(FileSystem {
                kind: "ext4".to_owned(),
                folder: "/d".into(),
            }),
            bytes,
            skipped: None,
            rows: results_rows(&results),
        }
    }

    fn results_rows(results: &Results) -> Vec<Row> {
        let mut rows = rows(results);
        for row in &mut rows {
            row.of_disk = results.ratio(&row.key, own::DISK_WRITE);
        }
        rows
    }

    #[test]
    fn peers_are_judged_without_the_modes_that_were_not_measured() {
        let mut part = part(4 << 30, 31.0, false);
        let peer = results(&[("peer-x", Group::Peer, &[9.0, 10.0, 11.0])]);
        part.rows.extend(rows(&peer));
        let goals = judge(&[part], true);
        let met = |what: &str| goals.iter().find(|goal| goal.what == what).unwrap().met;
        let best_peer = "XXH3, over the best peer, in fresh memory";
        assert_eq!(met(best_peer), Some(true));
        assert_eq!(met("XXH3, over its own read/write mode"), None);
    }

    #[test]
    fn goals_are_judged_by_what_was_measured_and_a_failed_peer_is_none() {
        let shown = Shown {
            runs: 3,
            counters: false,
            is_fresh: false,
        };
        let parts = vec![part(4 << 30, 31.0, true), part(10 << 30, 28.0, false)];
        let report = Report::of(parts, shown);
        let verdict = |what: &str| {
            let goal = report.goals.iter().find(|goal| goal.what.contains(what));
            goal.unwrap().met
        };
        assert_eq!(verdict("XXH3, of the disk"), Some(true));
        assert_eq!(verdict("best peer"), None);
        assert_eq!(verdict("own read/write mode"), Some(true));
        assert_eq!(verdict("memory sink"), None);
        assert_eq!(verdict("as the file grows"), Some(false));
        let text = report.text();
        assert!(
            text.contains("missed") && text.contains("it stored too little"),
            "{text}"
        );
        assert!(!report.failed(), "what a peer does is a result");
    }
}
