//! `shunt path`: end-to-end latency as a sum of components, after the `datacenter-latency` paper.

use std::{collections::BTreeMap, fs, path::PathBuf, process::ExitCode};

use anyhow::{Context, bail, ensure};
use clap::{Args, Subcommand};
use serde::{Deserialize, Serialize};
use sim::{
    path::{
        Component, Composition, Path, builtin, builtin_names, components, results, technologies,
    },
    report::document::Document,
};

/// Compose the latency of a path from its parts
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    arg_required_else_help = true,
    after_help = "Examples:
  shunt path pcie-fabric                       720 ns: a path that comes with the program
  shunt path mine.toml --bytes 64..1024 --load 0.6
  shunt measure memory --json > measured.json  this machine's memory
  shunt path list                              components and paths that come with the program
  shunt path compare --with measured.json      network technologies, own measurements beside them
  shunt path diff dpdk-64 --with measured.json expected and measured, stage by stage

measured.json holds names and nanoseconds: {\"cable\": 15, \"own engine, one way\": 8200}"
)]
pub struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    show: Show,
}

#[derive(Debug, Args)]
struct Show {
    /// A file (TOML), or the name of a path that comes with the program
    path: Option<String>,
    /// Packet sizes: 64, 64,1500 or 64..1024 (doubling)
    #[arg(long, default_value = "64", value_parser = sizes)]
    bytes: Sizes,
    /// Load of every queue on the path, below 1
    #[arg(long, default_value_t = 0.0)]
    load: f64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the components and paths that come with the program
    #[command(after_help = "Examples:
  shunt path list
  shunt path list --json
  shunt path tier3                             a path of the list

A path of your own names components by `use`: docs/simulator.md lists the keys.")]
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Compare network technologies (Table 1 of the paper)
    #[command(after_help = "Examples:
  shunt path compare
  shunt path compare --with measured.json     own measurements beside them")]
    Compare {
        /// Own measurements: names and nanoseconds as JSON, or what `shunt ping --stages --json` prints
        #[arg(long, value_name = "FILE")]
        with: Option<PathBuf>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show expected against measured, stage by stage
    Diff(Diff),
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  shunt measure memory --json > measured.json
  shunt path diff memory-nic --with measured.json
  shunt ping --stages --json > stages.json && shunt path diff stages --with stages.json
  shunt path diff mine.toml --with measured.json --bytes 1024 --load 0.6 --json")]
struct Diff {
    /// A file (TOML), or the name of a path that comes with the program
    path: String,
    /// Own measurements: names of stages and nanoseconds as JSON, or what `shunt ping --stages --json` prints
    #[arg(long, value_name = "FILE")]
    with: PathBuf,
    /// Packet size
    #[arg(long, default_value = "64", value_parser = size)]
    bytes: f64,
    /// Load of every queue on the path, below 1
    #[arg(long, default_value_t = 0.0)]
    load: f64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone)]
struct Sizes(Vec<f64>);

fn size(text: &str) -> Result<f64, String> {
    let value: Option<f64> = text.trim().parse().ok();
    value
        .filter(|v| v.is_finite() && *v >= 1.0 && *v <= 1e9)
        .ok_or_else(|| format!("{text} is no size in bytes"))
}

fn sizes(text: &str) -> Result<Sizes, String> {
    if let Some((from, to)) = text.split_once("..") {
        let (from, to) = (size(from)?, size(to)?);
        if to < from {
            return Err(format!("{text}: the second size is below the first"));
        }
        let doubled = std::iter::successors(Some(from), |size| Some(size * 2.0));
        return Ok(Sizes(doubled.take_while(|size| *size <= to).collect()));
    }
    text.split(',')
        .map(size)
        .collect::<Result<_, _>>()
        .map(Sizes)
}

/// Runs the command.
pub fn execute(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    match &arguments.command {
        None => show(&arguments.show)?,
        Some(Command::List { json }) => list(*json)?,
        Some(Command::Compare { with, json }) => compare(with.as_ref(), *json)?,
        Some(Command::Diff(arguments)) => diff(arguments)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn load(name: &str) -> anyhow::Result<Path> {
    let text = match builtin(name) {
        Some(text) => text.to_owned(),
        None => fs::read_to_string(name).with_context(|| {
            let known: Vec<&str> = builtin_names().collect();
            format!(
                "reading {name}; paths that come with the program: {}",
                known.join(", ")
            )
        })?,
    };
    Path::parse(&text).with_context(|| format!("in {name}"))
}

fn steady(load: f64) -> anyhow::Result<()> {
    ensure!(
        (0.0..1.0).contains(&load),
        "--load {load}: must be 0 or more and below 1: a queue at its limit has no steady state"
    );
    Ok(())
}

#[derive(Debug, Serialize)]
struct Whole<'a> {
    #[serde(flatten)]
    composition: &'a Composition,
    least_ns: f64,
    most_ns: f64,
    round_trip_least_ns: f64,
    round_trip_most_ns: f64,
}

fn show(arguments: &Show) -> anyhow::Result<()> {
    let Some(name) = &arguments.path else {
        bail!("give a path: a file, or one of `shunt path list`");
    };
    steady(arguments.load)?;
    let path = load(name)?;
    let sizes = arguments.bytes.0.iter();
    let all: Vec<Composition> = sizes
        .map(|bytes| path.compose(*bytes, arguments.load))
        .collect::<Result<_, _>>()?;
    if arguments.json {
        let whole: Vec<Whole> = all.iter().map(whole).collect();
        return output::print_json(&whole);
    }
    let mut document = Document::new(path.title.clone());
    if let [one] = all.as_slice() {
        stages(&mut document, one);
    } else {
        let rows = all.iter().map(|c| {
            let values = [
                c.bytes,
                c.least_ns(),
                c.most_ns(),
                2.0 * c.least_ns(),
                2.0 * c.most_ns(),
            ];
            values.map(ns).to_vec()
        });
        let headings =
            "bytes | one way ns, least | most | round trip ns, least | most".split(" | ");
        document.table(headings, rows.collect());
    }
    output::print(&document.to_text())
}

fn whole(composition: &Composition) -> Whole<'_> {
    let (least_ns, most_ns) = (composition.least_ns(), composition.most_ns());
    Whole {
        composition,
        least_ns,
        most_ns,
        round_trip_least_ns: 2.0 * least_ns,
        round_trip_most_ns: 2.0 * most_ns,
    }
}

fn ns(value: f64) -> String {
    format!("{}", (value * 10.0).round() / 10.0)
}

fn stages(document: &mut Document, c: &Composition) {
    let row = |name: &str, least: f64, most: f64, rest: String| {
        vec![name.to_owned(), ns(least), ns(most), rest]
    };
    let mut rows: Vec<_> = c
        .stages
        .iter()
        .map(|s| row(&s.name, s.least_ns, s.most_ns, s.source.clone()))
        .collect();
    let (least, most) = (c.least_ns(), c.most_ns());
    rows.push(row(
        "one way",
        least,
        most,
        format!("{} bytes, load {}", c.bytes, c.load),
    ));
    rows.push(row("round trip", 2.0 * least, 2.0 * most, String::new()));
    document.table(["component", "least ns", "most ns", "source"], rows);
    let kinds = c.by_kind().into_iter();
    let kinds = kinds
        .map(|(kind, least, most)| vec![format!("{kind:?}").to_lowercase(), ns(least), ns(most)]);
    document.heading("By kind");
    document.table(["kind", "least ns", "most ns"], kinds.collect());
}

fn list(json: bool) -> anyhow::Result<()> {
    if json {
        #[derive(Serialize)]
        struct List<'a> {
            components: &'a BTreeMap<String, Component>,
            paths: BTreeMap<&'static str, String>,
        }
        let paths = builtin_names().map(|name| Ok((name, load(name)?.title)));
        return output::print_json(&List {
            components: components(),
            paths: paths.collect::<anyhow::Result<_>>()?,
        });
    }
    let mut document = Document::new("Components");
    let rows = components().iter().map(|(name, c)| {
        let value = match (c.latency_ns, c.latency_ns_per_m) {
            (Some(sim::path::Latency::Exact(value)), _) => ns(value),
            (Some(sim::path::Latency::Between([a, b])), _) => format!("{}–{}", ns(a), ns(b)),
            (None, Some(per_m)) => format!("{} per m", ns(per_m)),
            (None, None) => String::new(),
        };
        vec![name.clone(), value, c.source.clone().unwrap_or_default()]
    });
    document.table(["name", "ns", "source"], rows.collect());
    document.heading("Paths");
    let rows = builtin_names().map(|name| {
        let title = load(name).map(|path| path.title).unwrap_or_default();
        vec![name.to_owned(), title]
    });
    document.table(["name", "what"], rows.collect());
    output::print(&document.to_text())
}

/// What --with reads.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Measured {
    /// Names and nanoseconds.
    Named(BTreeMap<String, f64>),
    /// The result of `shunt ping --stages --json`, of which the first stack counts.
    Stages { modes: Vec<StagesOfMode> },
}

#[derive(Debug, Deserialize)]
struct StagesOfMode {
    mode: String,
    stages_ns: BTreeMap<String, f64>,
}

/// Names and nanoseconds.
#[derive(Debug, Default)]
struct Own {
    ns: BTreeMap<String, f64>,
    /// Of several stacks in the file the one that was taken.
    whose: Option<String>,
}

/// What a file has.
fn measured(file: &PathBuf) -> anyhow::Result<Own> {
    let text =
        fs::read_to_string(file).with_context(|| format!("--with: reading {}", file.display()))?;
    let wrong = || {
        format!(
            "--with: {} must hold names and nanoseconds, {{\"own engine, one way\": 8200}}, or be what \
             shunt ping --stages --json prints",
            file.display()
        )
    };
    match serde_json::from_str(&text).with_context(wrong)? {
        Measured::Named(ns) => Ok(Own { ns, whose: None }),
        Measured::Stages { modes } => {
            let names: Vec<String> = modes.iter().map(|one| one.mode.clone()).collect();
            let first = modes.into_iter().next().with_context(wrong)?;
            let whose = (names.len() > 1).then(|| {
                format!(
                    "Measured: {}, the first stack of {} ({}).",
                    first.mode,
                    file.display(),
                    names.join(", ")
                )
            });
            Ok(Own {
                ns: first.stages_ns,
                whose,
            })
        }
    }
}

fn compare(with: Option<&PathBuf>, json: bool) -> anyhow::Result<()> {
    let own = with.map(measured).transpose()?.unwrap_or_default().ns;
    if json {
        #[derive(Serialize)]
        struct Comparison<'a> {
            technologies: &'a [sim::path::Technology],
            results: &'a [sim::path::KnownResult],
            measured_ns: &'a BTreeMap<String, f64>,
        }
        return output::print_json(&Comparison {
            technologies: technologies(),
            results: results(),
            measured_ns: &own,
        });
    }
    let mut document = Document::new("Network technologies (datacenter-latency, Table 1)");
    let latency = |t: &sim::path::Technology| match t.latency_ns.as_slice() {
        [least, most] => format!("{}–{}", ns(*least), ns(*most)),
        [least] => format!("≥ {}", ns(*least)),
        _ => String::new(),
    };
    let mut rows: Vec<_> = technologies()
        .iter()
        .map(|t| {
            vec![
                t.name.clone(),
                ns(t.bandwidth_gbps),
                latency(t),
                t.nodes_about.to_string(),
                t.note.clone(),
            ]
        })
        .collect();
    let line = |name: &str, value: f64, note: &str| {
        let cells = [name, "", &ns(value), "", note];
        cells.map(str::to_owned).to_vec()
    };
    let of_others = results().iter();
    rows.extend(of_others.map(|one| line(&one.name, one.latency_ns, &one.note)));
    rows.extend(
        own.iter()
            .map(|(name, value)| line(name, *value, "measured")),
    );
    document.table(["what", "Gbit/s", "ns", "nodes", ""], rows);
    output::print(&document.to_text())
}

/// A stage of a path beside what was measured of it.
#[derive(Debug, Serialize)]
struct Stage {
    name: String,
    /// None for what was measured and is no stage of the path.
    expected_ns: Option<[f64; 2]>,
    measured_ns: Option<f64>,
}

impl Stage {
    fn cells(&self) -> Vec<String> {
        let verdict = match (self.expected_ns, self.measured_ns) {
            (None, _) => "not on the path".to_owned(),
            (_, None) => "not measured".to_owned(),
            (Some([least, _]), Some(value)) if value < least => {
                format!("{} below", ns(least - value))
            }
            (Some([_, most]), Some(value)) if value > most => format!("{} above", ns(value - most)),
            _ => "within".to_owned(),
        };
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "–".to_owned());
        let range = |[least, most]: [f64; 2]| format!("{}–{}", ns(least), ns(most));
        vec![
            self.name.clone(),
            or_dash(self.expected_ns.map(range)),
            or_dash(self.measured_ns.map(ns)),
            verdict,
        ]
    }
}

fn diff(arguments: &Diff) -> anyhow::Result<()> {
    steady(arguments.load)?;
    let path = load(&arguments.path)?;
    let composition = path.compose(arguments.bytes, arguments.load)?;
    let own = measured(&arguments.with)?;
    let mut stages: Vec<Stage> = composition
        .stages
        .iter()
        .map(|stage| Stage {
            name: stage.name.clone(),
            expected_ns: Some([stage.least_ns, stage.most_ns]),
            measured_ns: own.ns.get(&stage.name).copied(),
        })
        .collect();
    // What was measured and is no stage of the path is not dropped in silence.
    for (name, value) in own.ns {
        if !stages.iter().any(|stage| stage.name == name) {
            stages.push(Stage {
                name,
                expected_ns: None,
                measured_ns: Some(value),
            });
        }
    }
    if arguments.json {
        return output::print_json(&stages);
    }
    let mut document = Document::new(composition.title.clone());
    let rows = stages.iter().map(Stage::cells).collect();
    document.table(["stage", "expected ns", "measured ns", ""], rows);
    if let Some(whose) = own.whose {
        document.text(whose);
    }
    output::print(&document.to_text())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_several_stacks_the_one_that_is_taken_is_named() {
        let file = std::env::temp_dir().join(format!("shunt-path-{}.json", std::process::id()));
        let of = |text: &str| {
            fs::write(&file, text).unwrap();
            let own = measured(&file).unwrap();
            (own.ns["ring"], own.whose)
        };
        let one = r#"{"mode": "inline", "stages_ns": {"ring": 80.0}}"#;
        let other = r#"{"mode": "kernel", "stages_ns": {"ring": 1.0}}"#;
        let (ns, whose) = of(&format!(r#"{{"modes": [{one}, {other}]}}"#));
        let whose = whose.unwrap();
        assert!(
            ns == 80.0 && whose.starts_with("Measured: inline, "),
            "{whose}"
        );
        assert!(whose.ends_with("(inline, kernel)."), "{whose}");
        assert_eq!(of(&format!(r#"{{"modes": [{one}]}}"#)), (80.0, None));
        assert_eq!(of(r#"{"ring": 7.0}"#), (7.0, None));
        fs::remove_file(&file).unwrap();
    }

    #[test]
    fn sizes_are_lists_or_doublings() {
        assert_eq!(
            sizes("64..1024").unwrap().0,
            [64.0, 128.0, 256.0, 512.0, 1024.0]
        );
        assert_eq!(sizes("64,1500").unwrap().0, [64.0, 1500.0]);
        assert_eq!(sizes("64..64").unwrap().0, [64.0]);
        assert!(sizes("1024..64").is_err());
        assert!(sizes("0").is_err() && sizes("x").is_err() && sizes("64,").is_err());
    }
}
