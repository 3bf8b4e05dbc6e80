//! `shunt measure`: what this machine's own parts take, whatever a stack does.

use std::process::ExitCode;

use bench::mover::disk;
use clap::{Args, Subcommand};
use meter::measure_clock as clock;
use predict::{
    layers,
    machine::{memory, pcie},
};

/// Measure parts of this machine: the kernel's layers, memory, PCIe devices, clocks, a disk.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  shunt measure layers --runs 10      what each layer of the kernel's TCP takes
  shunt measure memory                reads that wait for each other, in huge pages and in small ones
  shunt measure pcie                  how long a device takes to answer
  shunt measure clock                 what reading each clock costs, how they drift
  shunt measure disk /data            how fast the disk writes and reads by itself")]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Layers(layers::Arguments),
    Memory(memory::Arguments),
    Pcie(pcie::Arguments),
    Clock(clock::Arguments),
    Disk(disk::Arguments),
}

pub fn execute(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    match &arguments.command {
        Command::Layers(arguments) => layers::execute(arguments),
        Command::Memory(arguments) => memory::execute(arguments).map(|()| ExitCode::SUCCESS),
        Command::Pcie(arguments) => pcie::execute(arguments),
        Command::Clock(arguments) => clock::execute(arguments),
        Command::Disk(arguments) => disk::execute(arguments),
    }
}
