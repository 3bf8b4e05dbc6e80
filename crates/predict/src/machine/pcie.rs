//! PCIe: a read of four bytes of a device's configuration space through sysfs, less the same call on a file that asks no device:
//! the `datacenter-latency` paper timed a command to a device with a modified lspci. In a virtual machine such a read goes to
//! the hypervisor; it is measured and called that, and no path takes it for a bus.

use std::{fs, os::unix::fs::FileExt, path::Path, process::ExitCode, time::Instant};

use anyhow::{Context, ensure};
use clap::Args;
use statistics::Summary;

use super::{Measured, is_virtual, tell};

/// Measure how long this machine's PCIe devices take to answer
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  shunt measure pcie
  shunt measure pcie 0000:00:03.0 --json

In JSON: names and median nanoseconds. Exit status: 0 measured, 1 no device could be asked, 2 wrong usage.")]
pub struct Arguments {
    /// A device, as lspci -D names it [default: the first eight]
    #[arg(value_name = "ADDRESS")]
    device: Option<String>,
    /// Measurements of each; the median counts
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u8).range(3..=100))]
    runs: u8,
    /// Print names and nanoseconds as JSON
    #[arg(long)]
    json: bool,
}

/// Reads of one run: a millisecond or so.
const CONFIG_READS: u32 = 500;
/// Devices beyond these say nothing new.
const MOST_DEVICES: usize = 8;
const DEVICES: &str = "/sys/bus/pci/devices";

/// Runs the command.
pub fn execute(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let mut skipped = Vec::new();
    let found = measure(arguments, &mut skipped)?;
    for reason in &skipped {
        note!("skipped: {reason}");
    }
    tell(
        "This machine's PCIe devices",
        &found,
        "The paper has 170–325 ns for a command to a PCIe device.",
        arguments.json,
    )?;
    Ok(ExitCode::from(u8::from(found.is_empty())))
}

fn measure(arguments: &Arguments, skipped: &mut Vec<String>) -> anyhow::Result<Vec<Measured>> {
    let mut paths = match &arguments.device {
        Some(name) => {
            let path = Path::new(DEVICES).join(name);
            let is_there = !name.contains('/') && path.exists();
            ensure!(is_there, "{name}: no such device; lspci -D lists them");
            vec![path]
        }
        None => {
            let entries = fs::read_dir(DEVICES).into_iter().flatten();
            entries.flatten().map(|entry| entry.path()).collect()
        }
    };
    paths.sort();
    if paths.is_empty() {
        skipped.push(format!("no device in {DEVICES}"));
    }
    let is_virtual = is_virtual();
    let mut found = Vec::new();
    for path in paths.iter().take(MOST_DEVICES) {
        let address = path.file_name().unwrap_or_default().to_string_lossy();
        match device(path, arguments.runs) {
            Ok(samples) => found.push(Measured {
                name: name(&address, is_virtual),
                ns: Summary::of(&samples).context("no run")?,
                how: how(&kind(path), is_virtual),
            }),
            Err(error) => skipped.push(format!("{address}: {error:#}")),
        }
    }
    Ok(found)
}

fn name(address: &str, is_virtual: bool) -> String {
    let whom = if is_virtual {
        "hypervisor for pcie"
    } else {
        "pcie"
    };
    format!("{whom} {address}")
}

fn how(kind: &str, is_virtual: bool) -> String {
    let of = if is_virtual {
        ", which the hypervisor answers: no bus is measured"
    } else {
        ""
    };
    format!("{kind}: reading configuration space, less the call{of}")
}

/// What serves the device, or what it is by number.
fn kind(device: &Path) -> String {
    let driver = fs::read_link(device.join("driver")).ok();
    let driver = driver.as_deref().and_then(Path::file_name);
    match driver {
        Some(driver) => driver.to_string_lossy().into_owned(),
        None => "no driver".to_owned(),
    }
}

/// Nanoseconds of a read of four bytes of configuration space, run by run.
fn device(path: &Path, runs: u8) -> anyhow::Result<Vec<f64>> {
    let asked = fs::File::open(path.join("config")).context("opening config")?;
    // A binary file as well, which the kernel answers from memory.
    let call = fs::File::open("/proc/self/auxv").context("opening /proc/self/auxv")?;
    (0..runs)
        .map(|_| Ok((read_ns(&asked)? - read_ns(&call)?).max(0.0)))
        .collect()
}

fn read_ns(file: &fs::File) -> anyhow::Result<f64> {
    let mut word = [0; 4];
    let began = Instant::now();
    for _ in 0..CONFIG_READS {
        file.read_exact_at(&mut word, 0).context("reading")?;
    }
    Ok(began.elapsed().as_secs_f64() * 1e9 / f64::from(CONFIG_READS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_hypervisor_answers_is_called_that() {
        assert_eq!(
            name("0000:00:01.0", true),
            "hypervisor for pcie 0000:00:01.0"
        );
        assert!(how("virtio-pci", true).contains("no bus is measured"));
        assert!(!how("nvme", false).contains("hypervisor"));
    }
}
