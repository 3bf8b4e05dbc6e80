//! `shunt top`: engines, programs and connections with their rates, on the whole screen or as text.
//!
//! `sample` asks the engines, `model` makes rates of two samples and keeps what is sorted, filtered and selected, `view`
//! draws, `screen` has terminal and keys, `batch` writes text.

mod batch;
pub mod live;
mod model;
mod program;
mod sample;
mod screen;
mod view;

use std::{
    io::{IsTerminal as _, stdin, stdout},
    process::ExitCode,
    time::Duration,
};

use anyhow::bail;
use clap::{Args, ValueEnum};

use crate::engines::Which;

/// Watch engines, programs and connections: rates, retransmissions, round trips.
///
/// Keys: Tab or 1 2 3 choose connections, programs or engines; arrows, PgUp, PgDn, Home, End move; F6 or s sorts by the
/// next column, r reverses; / or F4 filters (Esc ends that); p pauses; q, F10 or Ctrl-C quits. What two
/// programs pass each other through shared memory counts too.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  shunt top
  shunt top --sort rtt --filter 10.0.0.5
  shunt top --once                     one frame as text, for scripts
  shunt top --batch --iterations 10    ten of them
  shunt top --once --json | jq '.connections[] | select(.sent_bytes_per_s > 1e6)'

Exit status: 0; 2 where no engine runs or there is no terminal.")]
pub struct Arguments {
    #[command(flatten)]
    which: Which,
    /// Seconds between two samples.
    #[arg(long, short = 'd', value_name = "SECONDS", default_value = "1", value_parser = parse_interval)]
    interval: Duration,
    /// By what connections and programs are sorted at the start, the largest first.
    #[arg(long, value_enum, default_value_t)]
    sort: Sort,
    /// Only rows in which this text stands, in any column.
    #[arg(long, value_name = "TEXT", default_value = "")]
    filter: String,
    /// Print frames as text instead of taking the screen, until Ctrl-C or --iterations.
    #[arg(long, short)]
    batch: bool,
    /// With --batch: so many frames.
    #[arg(long, short = 'n', value_name = "COUNT", requires = "batch", value_parser = clap::value_parser!(u64).range(1..))]
    iterations: Option<u64>,
    /// Print one frame as text and end.
    #[arg(long, conflicts_with = "batch")]
    once: bool,
    /// With --once: print JSON.
    #[arg(long, requires = "once")]
    json: bool,
}

/// A column by which rows are sorted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Sort {
    /// Bytes a second in both directions.
    #[default]
    Rate,
    /// Bytes a second towards the peer.
    Sent,
    /// Bytes a second from the peer.
    Received,
    /// Segments sent again.
    Retransmissions,
    /// Smoothed round trip.
    Rtt,
    /// Bytes that wait, in both directions.
    Queue,
    /// Name of the program.
    Program,
}

impl Sort {
    /// The one after it, and the first after the last.
    pub fn next(self) -> Self {
        let all = Self::value_variants();
        let at = all.iter().position(|one| *one == self).unwrap_or(0);
        all[(at + 1) % all.len()]
    }

    /// As on the command line.
    pub fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

fn parse_interval(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (0.1..=3600.0).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err("give 0.1 to 3600 seconds".to_owned())
    }
}

/// Runs the command.
pub fn execute(arguments: Arguments) -> anyhow::Result<ExitCode> {
    // That there is none is said before the screen is taken.
    arguments.which.find()?;
    let model = model::Model::new(arguments.sort, arguments.filter);
    let frames = match (arguments.once, arguments.batch) {
        (true, _) => Some(Some(1)),
        (_, true) => Some(arguments.iterations),
        _ => None,
    };
    if let Some(frames) = frames {
        batch::run(
            &arguments.which,
            model,
            arguments.interval,
            frames,
            arguments.json,
        )?;
        return Ok(ExitCode::SUCCESS);
    }
    if !stdin().is_terminal() || !stdout().is_terminal() {
        bail!("shunt top needs a terminal: use --once or --batch for text");
    }
    screen::run(arguments.which, model, arguments.interval)?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_column_comes_once_before_the_first_comes_again() {
        let mut seen = vec![Sort::default()];
        while seen.last().unwrap().next() != seen[0] {
            seen.push(seen.last().unwrap().next());
        }
        assert_eq!(seen.len(), Sort::value_variants().len());
    }

    #[test]
    fn an_interval_is_a_number_of_seconds_within_bounds() {
        assert_eq!(parse_interval("0.5"), Ok(Duration::from_millis(500)));
        for text in ["0", "-1", "nan", "1e9", "x"] {
            assert!(parse_interval(text).is_err(), "{text}");
        }
    }
}
