//! `shunt bench`: side-by-side measurements against the kernel.

use std::process::ExitCode;

use clap::{Args, Subcommand};

use crate::{
    all, apps, demo,
    micro::{self, Subject},
    mover, overload, tcp,
};

/// Measure Shunt and the kernel side by side.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  shunt bench all --report page.html          everything in one page, beside what the papers measured
  shunt bench apps
  shunt bench latency
  shunt bench bulk --runs 9 --json
  shunt bench latency --only 'same host'      two programs on one host; bulk has such rows too
  shunt bench tcp --quick
  shunt bench mover --quick
  shunt bench overload
  shunt bench left --quick                    what is left to other programs; calls, response, notify, matrix, driver, trading
  shunt bench apps --only nginx,redis --runs 7 --json

Exit status: 0 measured, 1 a run failed, 2 wrong usage, 130 interrupted.")]
pub struct Arguments {
    #[command(subcommand)]
    benchmark: Benchmark,
}

#[derive(Debug, Subcommand)]
enum Benchmark {
    All(all::Arguments),
    Apps(apps::Arguments),
    Tcp(tcp::Arguments),
    Mover(mover::Arguments),
    Overload(overload::Arguments),
    /// Round trips of 64 bytes: inline and server only, over the cable and on one host; the tail too.
    Latency(micro::Arguments),
    /// One stream of iperf3 as fast as it goes: over veth and TAP, each way, on one host.
    Bulk(micro::Arguments),
    /// Small requests: redis for each CPU second of its server, pipelined messages.
    Rate(micro::Arguments),
    /// Short connections: accepted and closed, sockets created and closed, a few requests each.
    Connect(micro::Arguments),
    /// Processor time: a program's calls with an engine, an idle engine, how fast that wakes.
    Cpu(micro::Arguments),
    /// Single calls: send, receive, make and close a socket, beside an engine and with one inside.
    Calls(micro::Arguments),
    /// Response time over the number of clients, and beside programs that compute.
    Response(micro::Arguments),
    /// What other programs get done beside a server that answers the same load on each stack.
    Left(micro::Arguments),
    /// When a sleeping program is told of what has come: rate against latency, policy by policy.
    Notify(micro::Arguments),
    /// Features of a device and of the stacks, each off and on: TSO, GRO, checksums, zero-copy, moderation, busy polling.
    Matrix(micro::Arguments),
    /// Ethernet frames without a stack, one at a time and in bursts: Shunt's drivers beside a packet socket.
    Driver(micro::Arguments),
    /// Quotes by multicast in, orders by TCP out, fills back: tick to order, and the share of each end.
    Trading(micro::Arguments),
    /// Two programs over two engines and over one, and one program over two engines: rates and the Jain index of shares.
    Placement(micro::Arguments),
}

/// Runs the command.
pub fn execute(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    match &arguments.benchmark {
        Benchmark::All(arguments) => all::execute(arguments),
        Benchmark::Apps(arguments) => demo::execute(arguments),
        Benchmark::Tcp(arguments) => tcp::execute(arguments),
        Benchmark::Mover(arguments) => mover::execute(arguments),
        Benchmark::Overload(arguments) => overload::execute(arguments),
        Benchmark::Latency(arguments) => micro::execute(Subject::Latency, arguments),
        Benchmark::Bulk(arguments) => micro::execute(Subject::Bulk, arguments),
        Benchmark::Rate(arguments) => micro::execute(Subject::Rate, arguments),
        Benchmark::Connect(arguments) => micro::execute(Subject::Connect, arguments),
        Benchmark::Cpu(arguments) => micro::execute(Subject::Cpu, arguments),
        Benchmark::Calls(arguments) => micro::execute(Subject::Calls, arguments),
        Benchmark::Response(arguments) => micro::execute(Subject::Response, arguments),
        Benchmark::Left(arguments) => micro::execute(Subject::Left, arguments),
        Benchmark::Notify(arguments) => micro::execute(Subject::Notify, arguments),
        Benchmark::Matrix(arguments) => micro::execute(Subject::Matrix, arguments),
        Benchmark::Driver(arguments) => micro::execute(Subject::Driver, arguments),
        Benchmark::Trading(arguments) => micro::execute(Subject::Trading, arguments),
        Benchmark::Placement(arguments) => micro::execute(Subject::Placement, arguments),
    }
}
