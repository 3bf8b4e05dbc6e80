//! `shunt load`: the small programs that put load on a stack where no well-known program measures the same: for
//! `shunt bench`, `shunt sim calibrate`, `shunt sim plan --verify` and `shunt doctor --measure`.
//!
//! Plain sockets of the C library, as any program would use them: the same binary runs on the kernel and under
//! `shunt run`. A client prints one line of JSON; a server runs until it is killed. The command is hidden from the help.
//!
//! What those measurements share is here too: `trial` starts a server and its clients in a lab, `competing` computes
//! beside them, `idle` keeps processors awake, `interrupt` ends it all at Ctrl-C. What is measured with it is the users'.

#![deny(clippy::print_stderr, clippy::print_stdout)] // they end the process where nobody reads: see `output`

#[macro_use]
extern crate output;

pub mod calls;
mod common;
pub mod competing;
pub mod connections;
pub mod create;
pub mod datagrams;
mod echo;
pub mod flood;
pub mod idle;
pub mod interrupt;
pub mod market;
mod pace;
pub mod ping;
pub mod requests;
pub mod start;
mod sys;
pub mod transfer;
pub mod trial;
mod wake;

use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Subcommand};
use serde::Serialize;

pub use common::Latency;

/// Small programs that put load on a stack, for measurements.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(subcommand)]
    role: Role,
}

#[derive(Debug, Subcommand)]
enum Role {
    Echo(echo::Arguments),
    Ping(ping::Arguments),
    Accept(connections::AcceptArguments),
    Connect(connections::ConnectArguments),
    Stream(calls::StreamArguments),
    Calls(calls::CallsArguments),
    Create(create::Arguments),
    Start(start::Arguments),
    Count(datagrams::Count),
    Pour(datagrams::Pour),
    Wake(wake::Arguments),
    Serve(requests::Serve),
    Ask(requests::Ask),
    Pace(pace::Arguments),
    Exchange(market::Exchange),
    Trade(market::Trade),
    Answer(flood::Answer),
    Flood(flood::Flood),
    Receive(transfer::ReceiveArguments),
    Send,
}

/// Runs the command.
pub fn execute(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    match &arguments.role {
        Role::Echo(arguments) => echo::execute(arguments)?,
        Role::Ping(arguments) => say(&ping::execute(arguments)?)?,
        Role::Accept(arguments) => connections::accept(arguments)?,
        Role::Connect(arguments) => say(&connections::connect(arguments)?)?,
        Role::Stream(arguments) => calls::stream(arguments)?,
        Role::Calls(arguments) => say(&calls::execute(arguments)?)?,
        Role::Create(arguments) => say(&create::execute(arguments)?)?,
        Role::Start(arguments) => say(&start::execute(arguments)?)?,
        Role::Count(arguments) => arguments.run()?,
        Role::Pour(arguments) => say(&arguments.run()?)?,
        Role::Wake(arguments) => say(&wake::execute(arguments)?)?,
        Role::Serve(arguments) => arguments.run()?,
        Role::Ask(arguments) => say(&arguments.run()?)?,
        Role::Pace(arguments) => say(&pace::execute(arguments)?)?,
        Role::Exchange(arguments) => arguments.run()?,
        Role::Trade(arguments) => say(&arguments.run()?)?,
        Role::Answer(arguments) => arguments.run()?,
        Role::Flood(arguments) => say(&arguments.run()?)?,
        Role::Receive(arguments) => transfer::receive(arguments)?,
        Role::Send => transfer::send()?,
    }
    Ok(ExitCode::SUCCESS)
}

fn say(result: &impl Serialize) -> anyhow::Result<()> {
    let text = serde_json::to_string(result).context("composing JSON")?;
    output::print(&(text + "\n"))
}
