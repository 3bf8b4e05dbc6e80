//! `shunt bench all`: the measurements of the other commands in one run and on one page, each beside the kernel's in the same
//! run, beside what a paper measured of the same question, and beside the limit that this machine sets.

mod limits;
mod page;
mod part;
mod report;
mod stages;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use clap::{Args, ValueEnum as _};
use load::{
    interrupt::{Interrupt, Interrupted},
    trial::Say,
};
use statistics::Summary;

use crate::{
    micro::{self, LEAST_RUNS, Length},
    mover, overload, paper, tools,
    unit::Better,
};
use limits::{Limit, Limits};
use part::Part;
use report::{Report, Row, Section};

/// Everything in one run and on one page: ours, the kernel's, their ratio, what a paper measured, this machine's limit
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  shunt bench all --report page.html            nine minutes or so on two processors
  shunt bench all --quick --report page.html    three short runs of each setup: wider intervals
  shunt bench all --only latency,cpu --json

Each part has a share of the time; where that is used up it ends, after three runs of each setup at least. A part's own command
(shunt bench latency) has more rows and longer runs.

The page loads nothing from elsewhere. What a paper measured stands there with its conditions: it was another
machine, and a ratio is all that can be set beside ours. A difference that is smaller than that of the runs is
marked, and a row without values says why.

Exit status: 0 measured, 1 a run failed or a part measured nothing, 2 wrong usage, 130 interrupted.")]
pub struct Arguments {
    /// Write a page for a browser, which loads nothing from elsewhere
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
    /// Three short runs of each setup
    #[arg(long)]
    quick: bool,
    /// Runs of each setup, however long that takes; fewer than three give no interval [default: 5 as far as there is time for
    /// them; with --quick 3]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: Option<u32>,
    /// Length of each run, where it has any, in seconds [default: 0.5; with --quick 0.3]
    #[arg(long, value_parser = crate::micro::parse_seconds)]
    seconds: Option<f64>,
    /// Only these parts
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Part>,
    /// Where files are stored meanwhile
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    dir: PathBuf,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// The load of the last minute (proc_loadavg(5)) of a machine on which others do something.
const LOADED: f64 = 0.5;
/// What all of it may take.
const TIME: Duration = Duration::from_secs(9 * 60);

pub fn execute(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let interrupt = Interrupt::catch()?;
    let say = Say::from_now();
    let began = Instant::now();
    let (runs, seconds) = if arguments.quick { (3, 0.3) } else { (5, 0.5) };
    let runs = arguments.runs.unwrap_or(runs);
    let seconds = arguments.seconds.unwrap_or(seconds);
    // Who names a number of runs gets it.
    let end = arguments.runs.is_none().then(|| began + TIME);
    // What is written last is tried first.
    if let Some(file) = &arguments.report {
        output::write_file("--report", file, "")?;
    }
    let warnings = warnings();
    for warning in &warnings {
        note!("warning: {warning}");
    }
    let limits = Limits::measure(&interrupt, &say)?;
    let mut sections = Vec::new();
    let is_asked = |part: &&Part| arguments.only.is_empty() || arguments.only.contains(part);
    let parts: Vec<Part> = Part::value_variants()
        .iter()
        .filter(is_asked)
        .copied()
        .collect();
    for (number, &part) in parts.iter().enumerate() {
        interrupt.check()?;
        say.say(&format!("{}: up to {runs} runs", part.title()));
        let length = Length {
            runs,
            seconds,
            until: end.map(|end| share_of(&parts[number..], Instant::now(), end)),
        };
        let measured = measure(part, arguments, length, &limits, &interrupt);
        sections.push(match measured {
            Ok(section) => section,
            Err(error) if interrupt.came() || error.is::<Interrupted>() => return Err(error),
            Err(error) => {
                let mut section = Section::new(part, ["kernel", "Shunt"]);
                section.failures.push(format!("{error:#}"));
                section
            }
        });
    }
    let report = Report {
        version: env!("CARGO_PKG_VERSION"),
        kernel: tools::kernel_release(),
        processors: tools::processors(),
        runs,
        quick: arguments.quick,
        duration_s: began.elapsed().as_secs(),
        warnings,
        sections,
    };
    tell(arguments, &report)
}

/// What speaks against all figures of this run before it begins.
fn warnings() -> Vec<String> {
    let load = observe::load_average().filter(|load| *load >= LOADED);
    let busy = load.map(|load| {
        format!(
            "the machine was busy when this began (load {load:.1} on {} processors): what others did is in the figures, and some rows fail for it",
            tools::processors()
        )
    });
    let unoptimised = output::unoptimised().map(str::to_owned);
    unoptimised.into_iter().chain(busy).collect()
}

/// When the first of these parts has used up its share of the time that is left for all of them.
fn share_of(parts: &[Part], now: Instant, end: Instant) -> Instant {
    let all: u32 = parts.iter().map(|part| part.share_s()).sum();
    let first = parts.first().map_or(0, |part| part.share_s());
    now + end.saturating_duration_since(now) * first / all.max(1)
}

fn tell(arguments: &Arguments, report: &Report) -> anyhow::Result<ExitCode> {
    if let Some(file) = &arguments.report {
        output::write_file("--report", file, &page::page(report))?;
        note!("the page is {}", file.display());
    }
    output::print_result(arguments.json, report, || report.text())?;
    let failed = report.failed_parts();
    if !failed.is_empty() {
        note!(
            "exit status 1: something went wrong in, or nothing was measured of: {}; what and why stands below each",
            failed.join("; ")
        );
    }
    Ok(ExitCode::from(u8::from(!failed.is_empty())))
}

fn measure(
    part: Part,
    arguments: &Arguments,
    length: Length,
    limits: &Limits,
    interrupt: &Interrupt,
) -> anyhow::Result<Section> {
    if let Some(subject) = part.subject() {
        let found = micro::some_rows(subject, part.rows(), length, interrupt.clone())?;
        return Ok(of_rows(part, &found, limits));
    }
    let runs = length.runs;
    // These two look at no clock: three runs of theirs fit their share.
    let few = length.until.map_or(runs, |_| runs.min(LEAST_RUNS));
    match part {
        Part::Overload => overloaded(few, interrupt),
        Part::Mover => moved(&arguments.dir, few, interrupt),
        _ => {
            let mut section = Section::new(part, ["kernel", "Shunt"]);
            section.stages = Some(stages::measure(runs, interrupt)?);
            Ok(section)
        }
    }
}

fn of_rows(part: Part, found: &micro::report::Report, limits: &Limits) -> Section {
    let mut section = Section::new(part, ["kernel", "Shunt"]);
    section.conditions = found.conditions().lines().map(str::to_owned).collect();
    section
        .conditions
        .extend(found.notes.iter().map(|note| (*note).to_owned()));
    section.conditions.extend_from_slice(&found.published);
    let mut above = "";
    for row in &found.rows {
        // What is indented belongs to the row above it.
        let is_below = row.what.starts_with(' ');
        let what = if is_below {
            format!("{above}: {}", row.what.trim())
        } else {
            above = row.what.trim_end_matches(", p50");
            row.what.clone()
        };
        section.rows.push(Row {
            paper: if is_below { None } else { paper::of(&row.what) },
            limit: if is_below {
                None
            } else {
                limits.of(part, &row.what)
            },
            what,
            unit: row.unit,
            better: row.better,
            baseline: row.kernel.clone(),
            ours: row.shunt.clone(),
            interval: row.interval,
            ratio: row.ratio.as_ref().map(|ratio| ratio.median),
            missing: row.missing.clone(),
        });
    }
    section.skipped.clone_from(&found.skipped);
    section.failures.clone_from(&found.failures);
    section
}

/// Of the offered load, in multiples of what a server can answer.
const OVERLOAD: [f64; 2] = [1.0, 3.0];

fn overloaded(runs: u32, interrupt: &Interrupt) -> anyhow::Result<Section> {
    let mut section = Section::new(Part::Overload, ["kernel", "Shunt"]);
    let runs = u8::try_from(runs).unwrap_or(u8::MAX);
    let kept = overload::kept(&OVERLOAD, runs, interrupt.clone())?;
    let percent = kept.map(|of| {
        let percent: Vec<f64> = of.iter().map(|kept| 100.0 * kept).collect();
        Summary::of(&percent)
    });
    let what = "still answered at three times what it can, server inline".to_owned();
    let row = Row::compared(what, ("% of its best", Better::Higher), percent);
    section.rows.push(Row {
        paper: paper::of(&row.what),
        ..row
    });
    section.conditions.push(
        "UDP datagrams of 64 bytes, 20 µs of computation each; of the most that the same server answered under any load".to_owned(),
    );
    Ok(section)
}

/// Size of the file that travels.
const MOVED_BYTES: u64 = 256 << 20;

fn moved(folder: &Path, runs: u32, interrupt: &Interrupt) -> anyhow::Result<Section> {
    let found = mover::short(folder, MOVED_BYTES, runs, interrupt.clone())
        .with_context(|| format!("--dir {}", folder.display()))?;
    interrupt.check()?;
    let mut section = Section::new(Part::Mover, ["read/write", "ours"]);
    section.conditions.push(format!(
        "{}, from the page cache over loopback by the kernel's TCP, one stream; a fixed offset sends the same part again and again and is no \
         transfer, as in the paper",
        found.place()
    ));
    let rate = |key: &str| found.row(key).and_then(|row| row.gbit_per_s.clone());
    for (what, read_write, sendfile) in mover::paper_pairs() {
        let rates = [rate(&read_write), rate(&sendfile)];
        let row = Row::compared(what.to_owned(), ("Gbit/s", Better::Higher), rates);
        section.rows.push(Row {
            paper: paper::of(&row.what),
            ..row
        });
    }
    let what = "shunt send --hash xxh3, stored and synced".to_owned();
    let row = Row::compared(
        what,
        ("Gbit/s", Better::Higher),
        [None, rate(mover::keys::XXH3)],
    );
    section.rows.push(Row {
        paper: paper::of(&row.what),
        limit: rate(mover::keys::DISK_WRITE).map(|own| Limit {
            what: "the disk's own rate".to_owned(),
            value: own.median,
            unit: "Gbit/s",
        }),
        ..row
    });
    for row in &found.rows {
        let said = |why: &String| format!("{}: {why}", row.title);
        section.skipped.extend(row.skipped.iter().map(said));
        section.failures.extend(row.failed.iter().map(said));
    }
    Ok(section)
}

#[cfg(test)]
mod tests {
    use super::{report::Verdict, *};
    use crate::unit::ratio_figure;

    fn row(better: Better, ours: &[f64], theirs: &[f64]) -> Row {
        let sides = [Summary::of(theirs), Summary::of(ours)];
        Row::compared("round trip".to_owned(), ("µs", better), sides)
    }

    #[test]
    fn a_difference_counts_only_where_it_is_larger_than_the_noise() {
        let theirs = [10.0, 10.2, 9.8, 10.1];
        let faster = row(Better::Lower, &[5.0, 5.1, 4.9, 5.0], &theirs);
        assert_eq!(faster.verdict(), Verdict::Better);
        let slower = row(Better::Higher, &[5.0, 5.1, 4.9, 5.0], &theirs);
        assert_eq!(slower.verdict(), Verdict::Worse);
        let same = row(Better::Lower, &[10.1, 9.9, 10.0, 9.9], &theirs);
        assert_eq!(same.verdict(), Verdict::Noise);
        assert!(same.ratio_text().ends_with('~'));
        let two = row(Better::Lower, &[5.0, 5.0], &[10.0, 10.0]);
        assert_eq!(two.verdict(), Verdict::Unknown);
        assert_eq!(two.ratio_text(), "0.50");
    }

    #[test]
    fn a_small_ratio_is_no_nought() {
        for (ratio, text) in [
            (1.234, "1.23"),
            (0.1, "0.10"),
            (0.0123, "0.012"),
            (0.00309, "0.0031"),
            (0.0, "0.00"),
        ] {
            assert_eq!(ratio_figure(ratio), text);
        }
    }

    #[test]
    fn every_part_has_its_share_of_the_time_that_is_left() {
        let now = Instant::now();
        let all = Part::value_variants();
        let first = share_of(all, now, now + TIME) - now;
        let whole: u32 = all.iter().map(|part| part.share_s()).sum();
        let wanted = TIME * all[0].share_s() / whole;
        assert!(first.abs_diff(wanted) < Duration::from_millis(1));
        // What the first ones left over is the last one's.
        let last = &all[all.len() - 1..];
        assert_eq!(share_of(last, now, now + TIME), now + TIME);
        assert_eq!(share_of(last, now + TIME, now), now + TIME);
    }

    #[test]
    fn every_measurement_of_rows_is_on_the_page() {
        let on_page = Part::value_variants()
            .iter()
            .filter_map(|part| part.subject());
        let on_page: Vec<micro::Subject> = on_page.collect();
        for subject in micro::Subject::value_variants() {
            assert!(on_page.contains(subject), "{subject:?}");
        }
    }

    #[test]
    fn every_row_is_there() {
        for part in Part::value_variants() {
            if let Some(subject) = part.subject() {
                let kept = micro::names(subject, part.rows()).unwrap();
                assert!(kept.len() >= part.rows().len(), "{part:?}: {kept:?}");
            }
        }
    }

    #[test]
    fn a_part_that_measured_nothing_is_a_failure() {
        let mut section = Section::new(Part::Cpu, ["kernel", "Shunt"]);
        assert!(section.is_empty());
        section.rows.push(row(Better::Lower, &[1.0], &[]));
        assert!(!section.is_empty());
    }

    #[test]
    fn the_page_has_every_row_and_loads_nothing() {
        let mut section = Section::new(Part::Latency, ["kernel", "Shunt"]);
        section
            .rows
            .push(row(Better::Lower, &[5.0, 5.1, 4.9], &[10.0, 10.1, 9.9]));
        section.rows[0].paper = paper::of("inline both ends (AF_PACKET), kernel spinning, p50");
        section.rows[0].what = "<script>".to_owned();
        section.failures.push("it broke".to_owned());
        let report = Report {
            version: "0",
            kernel: "6".to_owned(),
            processors: 2,
            runs: 3,
            quick: true,
            duration_s: 1,
            warnings: vec!["it is <busy>".to_owned()],
            sections: vec![section],
        };
        let page = page::page(&report);
        assert!(
            page.contains("&lt;script&gt;") && !page.contains("<script"),
            "{page}"
        );
        for word in ["http://", "https://", "<link", "@import", "url("] {
            assert!(!page.contains(word), "{word}");
        }
        assert!(
            page.contains("datacenter-latency") && page.contains("it broke"),
            "{page}"
        );
        let said = "Of 1 rows with a ratio ours is better in 1 and worse in 0";
        assert!(
            page.contains(said) && page.contains("it is &lt;busy&gt;"),
            "{page}"
        );
        assert_eq!(report.failed_parts(), [Part::Latency.title()]);
        assert!(report.text().contains(said));
        assert!(!page.contains("NaN") && !page.contains("inf"), "{page}");
    }
}
