//! `shunt ping` and `shunt echo`: what they do is the crate `meter`'s; here Ctrl-C ends them, and what was measured until
//! then is printed.

use std::process::ExitCode;

use load::interrupt::Interrupt;

pub fn ping(arguments: &meter::ping::Arguments) -> anyhow::Result<ExitCode> {
    meter::ping::execute(arguments, Interrupt::catch()?.flag())
}

pub fn echo(arguments: &meter::echo::Arguments) -> anyhow::Result<ExitCode> {
    meter::echo::execute(arguments, Interrupt::catch()?.flag())
}
