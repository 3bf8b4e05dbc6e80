//! `shunt doctor FILE`: which way a program gets onto Shunt (crate `elf`), in words and as JSON.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use elf::Service;
use serde::Serialize;

/// What `shunt run` would do with a program.
#[derive(Debug, Serialize)]
struct ProgramReport {
    /// The file that was asked for.
    program: PathBuf,
    /// The file that the kernel will load: another one for a script.
    #[serde(skip_serializing_if = "Option::is_none")]
    loads: Option<PathBuf>,
    /// preload, both, supervise or none; stable for programs.
    way: &'static str,
    /// What that means, and why.
    reason: String,
    /// Where its engine would run if it were started here without flags.
    #[serde(skip_serializing_if = "Option::is_none")]
    engine_mode: Option<Mode>,
}

/// What `--engine-mode auto` chooses.
#[derive(Debug, Serialize)]
pub struct Mode {
    /// inline or process; stable for programs.
    pub mode: &'static str,
    /// Why.
    pub because: String,
}

/// How `shunt run` chooses for a program. `None`: no engine can be started here, and `shunt run` says what is missing.
pub type Chooser = fn(&elf::Program) -> Option<Mode>;

fn report(file: &Path, choose: Chooser) -> ProgramReport {
    let program = match elf::inspect(file) {
        Ok(program) => program,
        Err(refusal) => {
            return ProgramReport {
                program: file.to_owned(),
                loads: None,
                way: "none",
                reason: refusal.to_string(),
                engine_mode: None,
            };
        }
    };
    let (way, reason) = words(program.way);
    let engine_mode = choose(&program);
    ProgramReport {
        program: file.to_owned(),
        loads: Some(program.file),
        way,
        reason,
        engine_mode,
    }
}

fn words(way: Service) -> (&'static str, String) {
    match way {
        Service::Preload => (
            "preload",
            "the dynamic loader loads Shunt's library into it".to_owned(),
        ),
        Service::Both(why) => (
            "both",
            format!(
                "the library is loaded into it, and a supervisor hears of its own system calls: {why}"
            ),
        ),
        Service::Supervise(why) => (
            "supervise",
            format!("a supervisor hears of its system calls: {why}"),
        ),
    }
}

/// Prints the report; 1 where the program cannot be served.
pub fn execute(file: &Path, json: bool, choose: Chooser) -> anyhow::Result<ExitCode> {
    let report = report(file, choose);
    if json {
        output::print_json(&report)?;
    } else {
        let mut text = format!("{}: {}\n", file.display(), report.way);
        if let Some(loads) = report.loads.as_ref().filter(|loads| *loads != file) {
            text += &format!("  the kernel loads {}\n", loads.display());
        }
        text += &format!("  {}\n", report.reason);
        if let Some(Mode { mode, because }) = &report.engine_mode {
            text +=
                &format!("  engine mode {mode}: {because} (`shunt run --engine-mode` chooses)\n");
        }
        output::print(&text)?;
    }
    Ok(ExitCode::from(u8::from(report.way == "none")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_is_preloaded_and_text_is_not_served() {
        let shell = report(Path::new("/bin/sh"), |_| None);
        assert_eq!((shell.way, shell.loads.is_some()), ("preload", true));
        let text = report(Path::new("/etc/passwd"), |_| None);
        assert_eq!(text.way, "none");
        assert!(
            text.reason.contains("neither an ELF program"),
            "{}",
            text.reason
        );
        assert!(
            report(Path::new("/nowhere"), |_| None)
                .reason
                .contains("cannot be read")
        );
    }
}
