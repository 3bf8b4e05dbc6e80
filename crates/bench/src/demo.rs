//! `shunt bench apps`: unmodified programs, and below them what Shunt is for.

use std::process::ExitCode;

use load::interrupt::Interrupt;

use crate::{apps, micro};

pub fn execute(arguments: &apps::Arguments) -> anyhow::Result<ExitCode> {
    let interrupt = Interrupt::catch()?;
    let programs = apps::measure_all(arguments, interrupt.clone())?;
    let purpose = arguments.purpose();
    let purpose = purpose.map(|(runs, seconds)| micro::purpose(runs, seconds, interrupt));
    let purpose = purpose.transpose()?;
    if arguments.json() {
        let mut whole = serde_json::to_value(&programs)?;
        if whole.is_null() {
            whole = serde_json::json!({});
        }
        whole["purpose"] = serde_json::to_value(&purpose)?;
        output::print_json(&whole)?;
    } else {
        let programs = programs.as_ref().map(apps::report::Report::text);
        let purpose = purpose.as_ref().map(micro::report::Report::text);
        output::print(&(programs.unwrap_or_default() + &purpose.unwrap_or_default()))?;
    }
    let failed = programs.is_some_and(|programs| programs.failed())
        || purpose.is_some_and(|purpose| purpose.failed());
    Ok(ExitCode::from(u8::from(failed)))
}
