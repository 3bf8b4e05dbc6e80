//! `shunt ping`: its flags, and which measurement they ask for.

mod compare;
mod flags;
mod hops;
mod single;
mod sweep;

pub use flags::{Arguments, DEFAULT_PORT, parse_time};

use std::{process::ExitCode, sync::atomic::AtomicBool};

/// Measures, and says what was found.
///
/// # Errors
/// The flags do not fit each other, or something is missing. What was measured and failed is the exit status 1.
pub fn execute(arguments: &Arguments, stop: &AtomicBool) -> anyhow::Result<ExitCode> {
    arguments.check()?;
    if !arguments.compare.is_empty() {
        compare::execute(arguments, stop)
    } else if arguments.hops {
        hops::execute(arguments, stop)
    } else if !arguments.sizes.is_empty() {
        sweep::execute(arguments, stop)
    } else {
        single::execute(arguments, stop)
    }
}

fn status(is_failure: bool) -> ExitCode {
    ExitCode::from(u8::from(is_failure))
}
