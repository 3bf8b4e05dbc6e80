//! execve(2) and posix_spawn(3) of a program into which this library will not be loaded: it is started by
//! `shunt run`, which puts it under a supervisor. Everything else is executed as it is; of a program that cannot be served
//! (a set-user-id one, a 32-bit one) that is said, and where the engine alone is wanted it is refused.
//!
//! system(3) and popen(3) start a shell, whose calls are seen.

mod list;
pub mod sys;

use std::env;
use std::ffi::{CStr, CString, OsStr};
use std::os::fd::RawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::io::FdFlags;

use crate::{fd_table::descriptors, report};

/// Where `shunt` itself lies; set by `shunt run`.
const BINARY_VARIABLE: &CStr = c"SHUNT_BINARY";
const POLICY_VARIABLE: &CStr = c"SHUNT_POLICY";
const KERNEL_ONLY: &str = "kernel-only";
const ENGINE_ONLY: &str = "engine-only";
const LOOPBACK_VARIABLE: &CStr = c"SHUNT_LOOPBACK";

/// How a program is started instead.
pub struct Plan {
    /// `shunt`.
    pub binary: CString,
    /// Its arguments, in front of the program's own from the second on.
    pub arguments: Vec<CString>,
}

/// The plan for a file; `None`: it is executed as it is. A name without a slash is looked up where `searches`.
pub fn plan(file: &CStr, searches: bool, name: &CStr) -> Option<Plan> {
    let binary = sys::variable(BINARY_VARIABLE)?;
    let policy = sys::variable(POLICY_VARIABLE).unwrap_or_else(|| "auto".into());
    if policy == KERNEL_ONLY || sys::is_supervised() {
        return None;
    }
    let path = find(OsStr::from_bytes(file.to_bytes()), searches)?;
    if path.as_os_str() == binary {
        return None;
    }
    match elf::inspect(&path) {
        Ok(program) if program.way.supervises() => tell_of_what_is_left(&path),
        // `shunt run` refuses it, with the reason.
        Err(refusal) if refusal.runs_anyway() && policy == ENGINE_ONLY => {}
        Err(refusal) if refusal.runs_anyway() => {
            report::line(&format!("{refusal}. Its sockets are the kernel's"));
            return None;
        }
        // A file that nobody can execute gets the kernel's answer.
        _ => return None,
    }
    let text = |text: &OsStr| CString::new(text.as_bytes()).ok();
    let mut arguments = Vec::with_capacity(9);
    arguments.push(c"shunt".to_owned());
    arguments.push(c"run".to_owned());
    // What it starts has loopback where this program has it.
    if sys::variable(LOOPBACK_VARIABLE).is_some_and(|text| text == "1") {
        arguments.push(c"--loopback".to_owned());
    }
    arguments.push(c"--policy".to_owned());
    arguments.push(text(&policy)?);
    arguments.push(c"--name".to_owned());
    arguments.push(name.to_owned());
    arguments.push(c"--".to_owned());
    arguments.push(text(path.as_os_str())?);
    Some(Plan {
        binary: CString::new(binary.into_vec()).ok()?,
        arguments,
    })
}

/// A supervisor serves what its program connects itself: what that inherits of an engine's fails there.
fn tell_of_what_is_left(path: &Path) {
    let left: Vec<String> = descriptors::tracked_in(0, RawFd::MAX)
        .filter(|fd| is_served(*fd) && is_inherited(*fd))
        .map(|fd| fd.to_string())
        .collect();
    if !left.is_empty() {
        report::line(&format!(
            "{} runs under a supervisor, where the sockets that it inherits do not work: descriptors {}. With \
             `shunt run --supervise only` they do",
            path.display(),
            left.join(", ")
        ));
    }
}

fn is_served(fd: RawFd) -> bool {
    let file = descriptors::lookup(fd);
    let socket = file.as_ref().and_then(|file| file.socket());
    socket.is_some_and(|socket| socket.borrow_stream().is_some())
}

fn is_inherited(fd: RawFd) -> bool {
    let flags = crate::sys::borrow(fd).and_then(rustix::io::fcntl_getfd);
    flags.is_ok_and(|flags| !flags.contains(FdFlags::CLOEXEC))
}

/// Looks a program up as execvp(3) does.
fn find(file: &OsStr, searches: bool) -> Option<PathBuf> {
    if !searches || file.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(file));
    }
    let search = sys::variable(c"PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    let is_executable =
        |path: &PathBuf| rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok();
    env::split_paths(&search)
        .map(|folder| folder.join(Path::new(file)))
        .find(|path| path.is_file() && is_executable(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_looked_up_only_where_libc_would() {
        assert!(find(OsStr::new("sh"), true).unwrap().is_absolute());
        assert_eq!(find(OsStr::new("sh"), false).unwrap(), Path::new("sh"));
        assert_eq!(find(OsStr::new("./sh"), true).unwrap(), Path::new("./sh"));
        assert!(find(OsStr::new("no-such-program-anywhere"), true).is_none());
    }

    #[test]
    fn outside_of_shunt_run_everything_is_executed_as_it_is() {
        assert!(plan(c"/bin/busybox", false, c"busybox").is_none());
    }
}
