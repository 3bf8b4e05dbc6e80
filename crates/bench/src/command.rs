//! `shunt bench`: side-by-side measurements against the kernel.

use std::process::ExitCode;

use clap::{Args, Subcommand};

use crate::{
    apps,
    goals::{self, Subject},
    mover, overload, tcp,
};

/// Measure Shunt and the kernel side by side.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  shunt bench apps
  shunt bench latency
  shunt bench bulk --runs 9 --json
  shunt bench latency --only 'same host'      two programs on one host; bulk has such rows too
  shunt bench tcp --quick
  shunt bench mover --quick
  shunt bench overload
  shunt bench apps --only nginx,redis --runs 7 --json

Exit status: 0 measured (a goal that is missed is printed, no failure), 1 a run failed, 2 wrong
usage, 130 interrupted.")]
pub struct Arguments {
    #[command(subcommand)]
    benchmark: Benchmark,
}

#[derive(Debug, Subcommand)]
enum Benchmark {
    Apps(apps::Arguments),
    Tcp(tcp::Arguments),
    Mover(mover::Arguments),
    Overload(overload::Arguments),
    /// Round trips of 64 bytes: inline and server only, over the cable and on one host; the tail too.
    Latency(goals::Arguments),
    /// One stream of iperf3 as fast as it goes: over veth and TAP, each way, on one host.
    Bulk(goals::Arguments),
    /// Small requests: redis for each CPU second of its server, pipelined messages.
    Rate(goals::Arguments),
    /// Short connections: accepted and closed, sockets created and closed, a few requests each.
    Connect(goals::Arguments),
    /// Processor time: a program's calls with an engine, an idle engine, how fast that wakes.
    Cpu(goals::Arguments),
}

/// Runs the command.
pub fn execute(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    match &arguments.benchmark {
        Benchmark::Apps(arguments) => apps::execute(arguments),
        Benchmark::Tcp(arguments) => tcp::execute(arguments),
        Benchmark::Mover(arguments) => mover::execute(arguments),
        Benchmark::Overload(arguments) => overload::execute(arguments),
        Benchmark::Latency(arguments) => goals::execute(Subject::Latency, arguments),
        Benchmark::Bulk(arguments) => goals::execute(Subject::Bulk, arguments),
        Benchmark::Rate(arguments) => goals::execute(Subject::Rate, arguments),
        Benchmark::Connect(arguments) => goals::execute(Subject::Connect, arguments),
        Benchmark::Cpu(arguments) => goals::execute(Subject::Cpu, arguments),
    }
}
