//! The way of a message, as `shunt ping --stages` finds it.

use std::process::Command;

use anyhow::{Context, ensure};
use load::interrupt::Interrupt;
use serde::{Deserialize, Serialize};

/// What is read of its JSON.
#[derive(Debug, Serialize, Deserialize)]
pub struct Stages {
    pub subject: String,
    pub modes: Vec<Mode>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Mode {
    pub mode: String,
    pub round_trips: u64,
    pub round_trip_ns: f64,
    pub unexplained_percent: f64,
    pub stretches: Vec<Stretch>,
    pub missing: Vec<String>,
}

/// A stage, or several that are not told apart.
#[derive(Debug, Serialize, Deserialize)]
pub struct Stretch {
    pub name: String,
    pub way: String,
    pub group: String,
    pub mean_ns: f64,
}

pub fn measure(runs: u32, interrupt: &Interrupt) -> anyhow::Result<Stages> {
    let own = lab::own_binary();
    let rounds = runs.to_string();
    let words = ["ping", "--stages", "--json", "--rounds", &rounds];
    let ended = Command::new(own)
        .args(words)
        .output()
        .context("starting shunt ping --stages")?;
    interrupt.check()?;
    let said = || String::from_utf8_lossy(&ended.stderr).trim().to_owned();
    let stages: Stages = serde_json::from_slice(&ended.stdout).with_context(said)?;
    ensure!(
        ended.status.success(),
        "stages do not add up to the round trip"
    );
    Ok(stages)
}

impl Stages {
    pub fn text(&self) -> String {
        let mut text = String::new();
        for mode in &self.modes {
            text += &format!(
                "{}: {:.2} µs, {:.1} % in no stage\n",
                mode.mode,
                mode.round_trip_ns / 1e3,
                mode.unexplained_percent
            );
        }
        text + "shunt ping --stages tells them one by one\n"
    }
}
