//! `shunt ping`: its flags, and which measurement they ask for.

mod compare;
mod flags;
mod hops;
mod single;
mod stages;
mod sweep;

pub use flags::{Arguments, DEFAULT_PORT, parse_time};

use std::{ffi::OsString, process::ExitCode, sync::atomic::AtomicBool};

use anyhow::Context;

use crate::{
    probe::link::FrameDriver,
    testbed::{Mode, Testbed},
};

/// Measures, and says what was found.
///
/// # Errors
/// The flags do not fit each other, or something is missing. What was measured and failed is the exit status 1.
pub fn execute(arguments: &Arguments, stop: &AtomicBool) -> anyhow::Result<ExitCode> {
    arguments.check()?;
    hostif::stages::begin("program").context("noting stages")?;
    if arguments.stages {
        stages::execute(arguments, stop)
    } else if !arguments.compare.is_empty() {
        compare::execute(arguments, stop)
    } else if arguments.target.is_none() && arguments.nic.is_empty() {
        in_laboratory(arguments, stop)
    } else if arguments.hops {
        hops::execute(arguments, stop)
    } else if !arguments.sizes.is_empty() {
        sweep::execute(arguments, stop)
    } else {
        single::execute(arguments, stop)
    }
}

/// The same command on one of two hosts of this machine, for those who name no host.
fn in_laboratory(arguments: &Arguments, stop: &AtomicBool) -> anyhow::Result<ExitCode> {
    note!(
        "no HOST is named: two hosts of this machine are measured, made for this run (shunt lab)"
    );
    let testbed = Testbed::create(stop)?;
    let mode = match arguments.driver {
        None => Mode::Kernel,
        Some(FrameDriver::AfPacket) => Mode::AfPacket,
        Some(FrameDriver::AfXdp) => Mode::AfXdp,
    };
    // What stands behind `ping` on this process's own command line.
    let words: Vec<OsString> = std::env::args_os().skip(2).collect();
    let ended = testbed.hand_over(arguments.kind(), mode, &words, arguments.spin)?;
    let code = ended.code().and_then(|code| u8::try_from(code).ok());
    code.map(ExitCode::from)
        .context("the measuring program was killed")
}

fn status(is_failure: bool) -> ExitCode {
    ExitCode::from(u8::from(is_failure))
}
