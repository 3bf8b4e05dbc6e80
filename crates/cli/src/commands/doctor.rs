//! `shunt doctor`: what this machine can do for Shunt, what it lacks, and what to set.
//!
//! Every line comes from an attempt or from the kernel's own tables, made now; nothing is assumed.

mod advice;
mod busy;
mod card;
pub mod interfaces;
mod measure;
pub mod measured;
mod probes;
pub mod program;

use std::{path::PathBuf, process::ExitCode};

use clap::Args;
use serde::Serialize;

use interfaces::InterfaceReport;

/// Probe what this machine can do, what it lacks and what to set; of a program, which way it gets onto Shunt; of an
/// interface, how an engine reaches it, and which driver is fastest there.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  shunt doctor
  shunt doctor --json | jq '.findings[] | select(.state != \"ok\")'
  shunt doctor /usr/bin/curl
  shunt doctor --json ./my-go-server
  shunt doctor eth1                                   driver, queues, XDP, processors, and the commands
  shunt doctor --measure eth1                         (asks its router)
  shunt doctor --measure eth1 --peer 10.0.0.7 --in-use

Exit status: 0 where programs can run on Shunt here, if only in a lab; 1 where neither an engine
nor a lab is possible, or where the program cannot be served.")]
pub struct Arguments {
    /// Print the report as JSON.
    #[arg(long)]
    json: bool,
    /// A program: how `shunt run` would serve it, and why that way. An interface: how an engine would reach it, and
    /// why that way.
    #[arg(value_name = "FILE|IFACE")]
    subject: Option<PathBuf>,
    #[command(flatten)]
    measure: measure::Options,
}

/// How good a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    /// Usable.
    Ok,
    /// Usable in part.
    Limited,
    /// Not usable.
    Missing,
}

/// One thing that was looked at.
#[derive(Debug, Clone, Serialize)]
struct Finding {
    /// Short name, stable for programs.
    name: &'static str,
    state: State,
    found: String,
    /// What does not work without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    prevents: Option<&'static str>,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    set: Option<String>,
}

impl Finding {
    fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Self {
            name,
            state: State::Ok,
            found: found.into(),
            prevents: None,
            set: None,
        }
    }

    fn lack(
        name: &'static str,
        state: State,
        found: impl Into<String>,
        prevents: &'static str,
        set: impl Into<String>,
    ) -> Self {
        Self {
            name,
            state,
            found: found.into(),
            prevents: Some(prevents),
            set: Some(set.into()),
        }
    }
}

#[derive(Debug, Serialize)]
struct Report {
    kernel: String,
    architecture: &'static str,
    cores: usize,
    findings: Vec<Finding>,
    interfaces: Vec<InterfaceReport>,
    /// A command line to start with.
    recommended: String,
    reason: String,
}

impl Report {
    fn state_of(&self, name: &str) -> Option<State> {
        self.findings
            .iter()
            .find(|finding| finding.name == name)
            .map(|finding| finding.state)
    }

    fn has(&self, name: &str) -> bool {
        self.state_of(name) == Some(State::Ok)
    }
}

pub fn execute(arguments: &Arguments, choose: program::Chooser) -> anyhow::Result<ExitCode> {
    if let Some(subject) = &arguments.subject {
        return match subject.to_str().filter(|name| card::is_interface(name)) {
            Some(name) => card::execute(name, arguments.json),
            // A file of this folder that is not there is more likely the name of an interface.
            None if subject.components().count() == 1 && !subject.exists() => {
                let names: Vec<String> =
                    interfaces::all()?.into_iter().map(|one| one.name).collect();
                anyhow::bail!(
                    "{}: neither a program here nor an interface of this network namespace, which are {} (`ip link`); a program that PATH has is named by its path, such as $(which {0})",
                    subject.display(),
                    names.join(", ")
                )
            }
            None => program::execute(subject, arguments.json, choose),
        };
    }
    if let Some(interface) = &arguments.measure.measure {
        return measure::execute(interface, &arguments.measure, arguments.json);
    }
    let mut report = Report {
        kernel: probes::kernel_release(),
        architecture: std::env::consts::ARCH,
        cores: std::thread::available_parallelism()?.get(),
        findings: probes::all(),
        interfaces: interfaces::all()?,
        recommended: String::new(),
        reason: String::new(),
    };
    let usable = advice::advise(&mut report);
    output::print_result(arguments.json, &report, || text(&report))?;
    Ok(if usable {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(1)
    })
}

fn text(report: &Report) -> String {
    let mut text = format!(
        "Linux {}, {}, {} cores\n\n",
        report.kernel, report.architecture, report.cores
    );
    for finding in &report.findings {
        let state = match finding.state {
            State::Ok => "ok",
            State::Limited => "limited",
            State::Missing => "missing",
        };
        text += &format!("{state:>8}  {:<20}  {}\n", finding.name, finding.found);
        if let Some(prevents) = finding.prevents {
            text += &format!("{:>32}prevents: {prevents}\n", "");
        }
        if let Some(set) = &finding.set {
            text += &format!("{:>32}set: {set}\n", "");
        }
    }
    text += "\ninterfaces\n";
    for interface in &report.interfaces {
        text += &format!("  {}\n", interface.text());
    }
    text + &format!(
        "\nrecommended: {}\n  {}\n",
        report.recommended, report.reason
    )
}
