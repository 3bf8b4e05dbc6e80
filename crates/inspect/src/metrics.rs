//! `shunt metrics`: the figures of all engines for Prometheus and its kin, once or over HTTP.
//!
//! Each answer is made when it is asked for, by the questions that `shunt status` asks; nothing runs in between, and
//! engines know nothing of it.

mod exposition;
mod server;

use std::{net::SocketAddr, process::ExitCode};

use clap::{Args, ValueEnum};

use crate::{
    engines::{Which, answer::ask_each},
    status,
};
use output::print;

/// Print the counters and gauges of all engines as OpenMetrics, or serve them over HTTP.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  shunt metrics                                   once, on standard output
  shunt metrics --listen 127.0.0.1:9477           for a scraper, at /metrics; Ctrl-C ends it
  shunt metrics --format prometheus | promtool check metrics

Whoever reaches the address may read: names, addresses and numbers of engines, nothing of what programs send.
Exit status: 0; 2 where it cannot listen.")]
pub struct Arguments {
    #[command(flatten)]
    which: Which,
    /// Serve at http://ADDRESS:PORT/metrics instead of printing once.
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// How it is written; over HTTP the scraper's Accept header chooses.
    #[arg(long, value_enum, default_value_t, conflicts_with = "listen")]
    format: Format,
}

/// How metrics are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// OpenMetrics 1.0, <https://openmetrics.io>.
    #[default]
    Openmetrics,
    /// The text format 0.0.4 of Prometheus.
    Prometheus,
}

impl Format {
    /// What a scraper that sends this header understands.
    fn accepted(header: &str) -> Self {
        if header.contains("application/openmetrics-text") {
            Self::Openmetrics
        } else {
            Self::Prometheus
        }
    }

    fn content_type(self) -> &'static str {
        match self {
            Self::Openmetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// Runs the command.
pub fn execute(arguments: Arguments) -> anyhow::Result<ExitCode> {
    match arguments.listen {
        Some(listen) => server::serve(listen, arguments.which)?,
        None => print(&gather(&arguments.which, arguments.format))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Asks all engines that there are now, perhaps none.
fn gather(which: &Which, format: Format) -> String {
    let answers = ask_each(which.find_any(), status::report);
    exposition::write(&answers, format)
}
