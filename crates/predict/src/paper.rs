//! `shunt sim paper`: the `nic-net` paper's tables and figures, published values beside ours.

use std::{fs, path::PathBuf, process::ExitCode};

use anyhow::Context;
use clap::{Args, ValueEnum};
use serde::Serialize;
use sim::{
    paper::{Check, Figure, Miss, Study},
    report::document::Block,
};

use output::write_file;

/// Reproduce the tables and figures of the nic-net paper
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  shunt sim paper                      every table and figure
  shunt sim paper --figure fig8
  shunt sim paper --check              sixteen checks; exit status 1 if one fails
  shunt sim paper --report > study.md  the study as Markdown
  shunt sim paper --plot out/          charts, and the study as one HTML page")]
pub struct Arguments {
    /// Only this table or figure; may be given several times
    #[arg(long, value_enum)]
    figure: Vec<Name>,
    /// Check the reproduction; exit status 1 where it fails
    #[arg(long)]
    check: bool,
    /// The whole study as Markdown
    #[arg(long, conflicts_with_all = ["json", "figure"])]
    report: bool,
    /// Write charts (SVG) and the whole study (HTML) into this folder
    #[arg(long, value_name = "DIR", conflicts_with = "figure")]
    plot: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Name {
    Table1,
    Table2,
    Fig7,
    Fig8,
    Fig9,
    Fig10,
}

impl Name {
    fn figure(self) -> Figure {
        match self {
            Self::Table1 => Figure::Table1,
            Self::Table2 => Figure::Table2,
            Self::Fig7 => Figure::Fig7,
            Self::Fig8 => Figure::Fig8,
            Self::Fig9 => Figure::Fig9,
            Self::Fig10 => Figure::Fig10,
        }
    }
}

#[derive(Debug, Serialize)]
struct Result<'a> {
    study: &'a Study,
    checks: &'a [Check],
    misses: &'a [Miss],
}

pub fn execute(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let every = Name::value_variants().iter().map(|name| name.figure());
    let every: Vec<Figure> = every.collect();
    // A check or a whole report needs everything, whatever is shown.
    let shown: Vec<Figure> = match arguments.figure.is_empty() {
        true => every.clone(),
        false => arguments.figure.iter().map(|name| name.figure()).collect(),
    };
    let whole = arguments.check || arguments.figure.is_empty();
    let study = Study::of(if whole { &every } else { &shown });
    let (checks, misses) = match whole {
        true => (study.checks(), study.misses()),
        false => (Vec::new(), Vec::new()),
    };
    if let Some(folder) = &arguments.plot {
        plot(&study, folder)?;
    }
    if arguments.json {
        output::print_json(&Result {
            study: &study,
            checks: &checks,
            misses: &misses,
        })?;
    } else if arguments.report {
        output::print(&study.full_report().to_markdown())?;
    } else {
        let shown = match arguments.check && arguments.figure.is_empty() {
            true => &[][..],
            false => &shown,
        };
        output::print(&study.report(shown, whole).to_text())?;
    }
    let failed = checks.iter().filter(|check| !check.is_as_known()).count();
    if arguments.check && failed > 0 {
        note!(
            "shunt sim paper: {failed} of {} checks failed",
            checks.len()
        );
        return Ok(ExitCode::from(1));
    }
    Ok(ExitCode::SUCCESS)
}

fn plot(study: &Study, folder: &PathBuf) -> anyhow::Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("--plot: making {}", folder.display()))?;
    let report = study.full_report();
    for block in &report.blocks {
        if let Block::Plot(plot) = block {
            let name = plot.title.split(':').next().unwrap_or("plot");
            let name = name.to_lowercase().replace(' ', "");
            write_file("--plot", &folder.join(format!("{name}.svg")), &plot.svg())?;
        }
    }
    write_file("--plot", &folder.join("paper.html"), &report.to_html())
}
