//! `shunt sim calibrate`: measures what stacks cost on this machine and writes a preset in which every
//! value says where it is from.
//!
//! The kernel's calls over loopback; then kernel, engine inside the program and engine beside it with a
//! server and clients in a lab. What is not measured here keeps its value and is no longer called
//! measured, and a value that nobody has stays assumed: nothing is filled in silently.

mod file;
mod fit;
pub mod loopback;
mod stacks;
pub mod trials;
pub mod works;

use std::{fs, path::PathBuf, process::ExitCode, thread};

use anyhow::Context;
use clap::Args;
use sim::plan::{Costs, Preset, Source, Value};

use crate::control::Control;
use load::{
    interrupt::Interrupt,
    trial::{Say, Stack, Testbed},
};
use output::write_file;
use statistics::Summary;

/// Measure this machine's costs for `shunt sim plan`
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  shunt sim calibrate                    prints the preset
  shunt sim calibrate --out mine.toml    then: shunt sim plan my.toml --preset mine.toml
  shunt sim calibrate --only-calls       the kernel's calls over loopback, a few seconds

It takes some minutes and wants an otherwise idle machine. Measured are the kernel's costs and
those of Shunt's engine inside and beside a program: a request, a wake-up, a byte and several
packets apart, by servers with few and many connections. DPDK's virtual devices sit on packet sockets,
and no card was tried: DPDK and NICs keep the shipped values under their labels, literature and
assumed; the file says so.")]
pub struct Arguments {
    /// Write to this file in place of standard output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Batches of each measurement; the median counts
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u8).range(3..=100))]
    batches: u8,
    /// Only the kernel's calls, without a lab
    #[arg(long)]
    only_calls: bool,
}

pub fn execute(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let mut preset = of_the_calls(arguments.batches)?;
    if !arguments.only_calls {
        match Testbed::create(Interrupt::catch()?) {
            Ok(testbed) => {
                let say = Say::from_now();
                let batches = arguments.batches;
                let control = Control::start(&testbed, &say)?;
                for stack in Stack::ALL {
                    of_a_stack(&mut preset, (&testbed, &control), stack, batches, &say)?;
                }
            }
            // The calls alone are worth having; their labels say what is missing.
            Err(error) => {
                note!("the stacks are not measured, only the kernel's calls: {error:#}")
            }
        }
    }
    let missing = preset
        .stacks
        .iter()
        .filter(|(_, costs)| !file::measured(costs));
    for (name, _) in missing {
        note!("{name}: nothing of it is measured{}", file::why(name));
    }
    let text = file::to_toml(&preset);
    match &arguments.out {
        Some(file) => write_file("--out", file, &text)?,
        None => output::print(&text)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The shipped preset with the kernel's calls as they are here.
pub fn of_the_calls(batches: u8) -> anyhow::Result<Preset> {
    let mut preset = Preset::shipped();
    let load = observe::load_average();
    if let Some(load) = load.filter(|load| *load > BUSY) {
        note!("this machine is busy (load {load}): costs will come out too high");
    }
    let from = std::mem::replace(&mut preset.machine, machine(load));
    for costs in preset.stacks.values_mut() {
        no_longer_measured(costs, &from);
    }
    let measured = loopback::measure(batches)?;
    if let Some(kernel) = preset.stacks.get_mut("kernel") {
        for (name, value) in measured {
            kernel.set(name, value);
        }
    }
    Ok(preset)
}

/// What a server and its clients cost on a stack; false: nothing could be measured, its values keep their labels.
pub fn of_a_stack(
    preset: &mut Preset,
    (testbed, control): (&Testbed, &Control),
    stack: Stack,
    batches: u8,
    say: &Say,
) -> anyhow::Result<bool> {
    let found = stacks::measure(testbed, control, stack, batches, say);
    let fitted = found.and_then(|found| Ok((stacks::fitted(stack, &found)?, found)));
    if fitted.is_err() {
        testbed.check_interrupt()?;
    }
    let fitted = fitted.with_context(|| trial_of(stack, observe::load_average()));
    let (fitted, found) = match fitted {
        // Not every kernel and interface has AF_XDP, and an inline server that others kept from its processor tells nothing.
        Err(error) if stack != Stack::Kernel => {
            note!("{stack} is not measured: {error:#}");
            return Ok(false);
        }
        fitted => fitted?,
    };
    let costs = preset.stacks.get_mut(stack.name());
    let costs = costs.context("invariant: the shipped preset knows every stack")?;
    fitted.apply(stack, costs)?;
    costs.trials = trials::beside(&found.seen, &found.checks, costs, &fitted.client());
    Ok(true)
}

/// What went wrong where a trial did; beside others it is most often for lack of a processor.
fn trial_of(stack: Stack, load: Option<f64>) -> String {
    match load.filter(|load| *load > BUSY) {
        Some(load) => format!(
            "calibrating {stack} while others use the processors (load {load}), which may be why: it needs a quiet machine"
        ),
        None => format!("calibrating {stack}"),
    }
}

/// Programs that want to run on average; with more than this, measurements wait for others.
const BUSY: f64 = 1.0;

/// The processor's name and count, and whether others were using it.
fn machine(load: Option<f64>) -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let name = name.map_or("unknown processor", |(_, name)| name);
    match load.filter(|load| *load > BUSY) {
        Some(load) => format!("{cores} × {name}, busy with load {load}"),
        None => format!("{cores} × {name}"),
    }
}

/// A value that was measured on another machine is one that was read.
fn no_longer_measured(costs: &mut Costs, machine: &str) {
    let measured: Vec<&str> = costs
        .values()
        .into_iter()
        .filter(|(_, value)| value.source == Source::Measured)
        .map(|(name, _)| name)
        .collect();
    costs.trials.clear();
    for name in measured {
        if let Some(value) = costs.value_mut(name) {
            value.source = Source::Literature;
            value.how = format!("not measured here; on {machine}: {}", value.how);
        }
    }
}

fn value(samples: &[f64], how: &str) -> anyhow::Result<Value> {
    let summary = Summary::of(samples).context("no sample")?;
    Ok(Value {
        value: (summary.median * 1000.0).round() / 1000.0,
        source: Source::Measured,
        how: how.to_owned(),
        spread: Some((summary.spread() * 100.0).round() / 100.0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_machine_measured_is_not_called_measured() {
        let mut preset = Preset::shipped();
        let inline = preset.stacks["inline"].values();
        assert!(
            inline
                .iter()
                .any(|(_, value)| value.source == Source::Measured)
        );
        for costs in preset.stacks.values_mut() {
            no_longer_measured(costs, "another");
            let values = costs.values();
            assert!(
                values
                    .iter()
                    .all(|(_, value)| value.source != Source::Measured)
            );
        }
        let send = &preset.stacks["kernel"].send_ns;
        assert_eq!(send.source, Source::Literature);
        assert!(send.how.contains("another"));
    }

    #[test]
    fn a_trial_that_went_wrong_beside_others_says_so() {
        assert_eq!(trial_of(Stack::Kernel, Some(0.4)), "calibrating kernel");
        assert_eq!(trial_of(Stack::Kernel, None), "calibrating kernel");
        let busy = trial_of(Stack::Inline, Some(17.0));
        assert!(
            busy.contains("inline") && busy.contains("load 17"),
            "{busy}"
        );
    }
}
