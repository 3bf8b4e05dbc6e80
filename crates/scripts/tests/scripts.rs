//! Every packet script on both sides and over both versions of IP. What is slow runs with
//! `make long`; what Shunt cannot yet is counted and named, and so is what this machine does not permit.
//!
//! The environment may narrow it down: SCRIPTS_FILTER, SCRIPTS_SIDE (kernel, shunt).

#![allow(clippy::unwrap_used)] // a failure here ends the test, as it should

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use scripts::bench::{Bench, Setting, Tools};
use scripts::report::{Counts, Verdict};
use scripts::script::{Family, Script, Side};
use scripts::suite::{self, Plan};

/// The number: fewer means that some were lost.
const SCRIPTS_MIN: usize = 250;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts")
}

fn load() -> Vec<Script> {
    suite::load(&folder()).unwrap_or_else(|errors| panic!("{}", errors.join("\n")))
}

/// Past libtest's capture: what was left out must be seen.
fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

fn run(slow: bool) {
    let scripts = load();
    let agent = PathBuf::from(env!("CARGO_BIN_EXE_scripts"));
    let tools = Tools::new(agent, Some(testkit::shunt().to_owned())).unwrap();
    let probe = Setting {
        side: Side::Kernel,
        engine: Vec::new(),
        mtu: 1_500,
        settings: Vec::new(),
    };
    if let Err(error) = Bench::build(probe, &tools) {
        return say(&format!("skipped: packet scripts: {error:#}"));
    }
    let sides = match std::env::var("SCRIPTS_SIDE").as_deref() {
        Ok("kernel") => vec![Side::Kernel],
        Ok("shunt") => vec![Side::Shunt],
        _ => vec![Side::Kernel, Side::Shunt],
    };
    let plan = Plan {
        sides,
        families: vec![Family::Ip4, Family::Ip6],
        filters: std::env::var("SCRIPTS_FILTER").into_iter().collect(),
        slow: Some(slow),
        workers: suite::usual_workers(),
        retry: true,
    };
    let outcomes = suite::run(&scripts, &plan, &tools, |_| {});
    let mut reasons: BTreeMap<(String, &str), usize> = BTreeMap::new();
    for outcome in &outcomes {
        let (kind, why) = match &outcome.verdict {
            Verdict::Skipped(why) => ("skipped", why),
            Verdict::Open(why, _) => ("open", why),
            Verdict::OpenButPassed(why) => ("open but passed", why),
            Verdict::Passed | Verdict::Failed(_) => continue,
        };
        let script = match &outcome.verdict {
            Verdict::Skipped(_) => String::new(),
            _ => format!(" {}", outcome.name),
        };
        let line = format!("{kind}: {} {}{script}: {why}", outcome.side, outcome.family);
        *reasons.entry((line, kind)).or_default() += 1;
    }
    for ((line, _), count) in reasons {
        say(&format!("{line} ({count} scripts)"));
    }
    let counts = Counts::of(&outcomes);
    say(&format!(
        "packet scripts: {} scripts, {}",
        scripts.len(),
        counts.line()
    ));
    let stories: Vec<String> = outcomes
        .iter()
        .filter(|outcome| matches!(outcome.verdict, Verdict::Failed(_)))
        .filter_map(scripts::report::Outcome::story)
        .collect();
    assert!(
        stories.is_empty(),
        "{}\n{}",
        stories.join("\n"),
        counts.line()
    );
}

#[test]
fn every_script_holds_on_the_kernel_and_on_shunt() {
    run(false);
}

#[test]
#[ignore = "takes minutes: make long"]
fn every_slow_script_holds_on_the_kernel_and_on_shunt() {
    run(true);
}

#[test]
fn there_are_as_many_scripts_as_were_promised() {
    let count = load().len();
    assert!(count >= SCRIPTS_MIN, "{count} scripts");
}

#[test]
fn every_difference_that_a_script_names_has_its_row_in_the_page_on_rfcs() {
    let page = std::fs::read_to_string(testkit::workspace::root().join("docs/rfc.md")).unwrap();
    let rows: Vec<&str> = page.lines().filter(|line| line.starts_with('|')).collect();
    let mut missing = Vec::new();
    let mut named = Vec::new();
    for script in load() {
        for key in script.differs {
            let cell = format!("`{key}`");
            if !rows.iter().any(|row| row.contains(&cell)) {
                missing.push(format!("{}: {cell}", script.name));
            }
            named.push(cell);
        }
    }
    assert!(
        missing.is_empty(),
        "no row in docs/rfc.md:\n  {}",
        missing.join("\n  ")
    );
    let (_, section) = page
        .split_once("## Differences that packet scripts show")
        .unwrap();
    let section = section.split_once("\n## ").map_or(section, |(own, _)| own);
    let keys = section
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    let unused: Vec<&str> = keys
        .map(|(key, _)| key)
        .filter(|key| !named.contains(&format!("`{key}`")))
        .collect();
    assert!(unused.is_empty(), "rows that no script names: {unused:?}");
}

#[test]
fn a_script_that_expects_what_does_not_happen_fails_with_its_line() {
    let agent = PathBuf::from(env!("CARGO_BIN_EXE_scripts"));
    let tools = Tools::new(agent, None).unwrap();
    let text = "# wrong on purpose\nin SYN 0 <mss 1000>\nout SYN+ACK 0 ack 1\n";
    let wrong = scripts::parse::parse("wrong", text).unwrap();
    let plan = Plan {
        sides: vec![Side::Kernel],
        families: vec![Family::Ip4],
        filters: Vec::new(),
        slow: None,
        workers: 1,
        retry: false,
    };
    let outcomes = suite::run(&[wrong], &plan, &tools, |_| {});
    let Verdict::Failed(failure) = &outcomes[0].verdict else {
        panic!("it did not fail");
    };
    if failure.line == 0 {
        return say(&format!("skipped: packet scripts: {}", failure.problem));
    }
    assert_eq!(failure.line, 3);
    assert!(failure.problem.contains("RST+ACK"), "{}", failure.problem);
}
