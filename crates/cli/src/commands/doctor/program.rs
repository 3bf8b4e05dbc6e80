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
}

fn report(file: &Path) -> ProgramReport {
    let (loads, way, reason) = match elf::inspect(file) {
        Ok(program) => {
            let (way, reason) = words(program.way);
            (Some(program.file), way, reason)
        }
        Err(refusal) => (None, "none", refusal.to_string()),
    };
    ProgramReport {
        program: file.to_owned(),
        loads,
        way,
        reason,
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
pub fn execute(file: &Path, json: bool) -> anyhow::Result<ExitCode> {
    let report = report(file);
    if json {
        output::print_json(&report)?;
    } else {
        let mut text = format!("{}: {}\n", file.display(), report.way);
        if let Some(loads) = report.loads.as_ref().filter(|loads| *loads != file) {
            text += &format!("  the kernel loads {}\n", loads.display());
        }
        output::print(&(text + &format!("  {}\n", report.reason)))?;
    }
    Ok(ExitCode::from(u8::from(report.way == "none")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_is_preloaded_and_text_is_not_served() {
        let shell = report(Path::new("/bin/sh"));
        assert_eq!((shell.way, shell.loads.is_some()), ("preload", true));
        let text = report(Path::new("/etc/passwd"));
        assert_eq!(text.way, "none");
        assert!(
            text.reason.contains("neither an ELF program"),
            "{}",
            text.reason
        );
        assert!(
            report(Path::new("/nowhere"))
                .reason
                .contains("cannot be read")
        );
    }
}
