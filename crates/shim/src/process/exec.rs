//! execve(2) and posix_spawn(3). A program into which this library will not be loaded is started by
//! `shunt run`, which puts it under a supervisor. Any other gets the library, whatever its environment has lost (`environment`); of
//! a program that cannot be served (a set-user-id one, a 32-bit one) that is said, and where the engine alone is wanted it is refused.
//!
//! system(3) and popen(3) start a shell by libc's posix_spawn(3), whose entry leads here.

mod list;
pub mod sys;

use std::env;
use std::ffi::{CStr, CString, OsStr, OsString};
use std::os::fd::RawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::io::FdFlags;

use elf::Service;
use hostif::environment::value;
use hostif::{BINARY_VARIABLE, LOOPBACK_VARIABLE, POLICY_VARIABLE};

use crate::process::environment::KERNEL_ONLY;
use crate::{fd_table::descriptors, report};

const ENGINE_ONLY: &str = "engine-only";

/// How a program is started.
pub enum Start {
    /// As it is.
    AsItIs,
    /// With the library, which its environment may have lost.
    Preloaded,
    /// By `shunt run`.
    Supervised(Plan),
}

/// How a program is started instead.
pub struct Plan {
    /// `shunt`.
    pub binary: CString,
    /// Its arguments, in front of the program's own from the second on.
    pub arguments: Vec<CString>,
}

/// How a file is started; `is_lost`: the environment has not what `shunt run` put into this program's.
pub fn start_of(path: PathBuf, name: &CStr, is_lost: bool) -> Start {
    let policy = value(POLICY_VARIABLE).unwrap_or_else(|| "auto".into());
    let Some(binary) = value(BINARY_VARIABLE).filter(|_| policy != KERNEL_ONLY) else {
        return Start::AsItIs;
    };
    let is_supervised = crate::sys::is_supervised();
    if is_supervised && !is_lost {
        return Start::AsItIs;
    }
    if path.as_os_str() == binary {
        return Start::AsItIs;
    }
    match elf::inspect(&path) {
        // A file without a name of its own is gone once `shunt` is executed.
        Ok(program) if program.way.supervises() && path.starts_with("/proc/self/fd") => {
            report::line(
                "a program without a file is executed that needs a supervisor. Its sockets are the kernel's",
            );
            return Start::AsItIs;
        }
        Ok(program) if !is_supervised && program.way.supervises() => {
            tell_of_what_is_left(&path, "runs under a supervisor");
        }
        Ok(program) if !matches!(program.way, Service::Supervise(_)) => return Start::Preloaded,
        // `shunt run` refuses it, with the reason.
        Err(refusal) if refusal.runs_anyway() && !is_supervised && policy == ENGINE_ONLY => {}
        Err(refusal) if refusal.runs_anyway() && !is_supervised => {
            report::line(&format!("{refusal}. Its sockets are the kernel's"));
            tell_of_what_is_left(&path, "runs on the kernel");
            return Start::AsItIs;
        }
        // A file that nobody can execute gets the kernel's answer.
        _ => return Start::AsItIs,
    }
    let plan = supervised(binary, &policy, name, &path);
    plan.map_or(Start::AsItIs, Start::Supervised)
}

/// The words for `shunt run`.
fn supervised(binary: OsString, policy: &OsStr, name: &CStr, path: &Path) -> Option<Plan> {
    let text = |text: &OsStr| CString::new(text.as_bytes()).ok();
    let mut arguments = Vec::with_capacity(9);
    arguments.push(c"shunt".to_owned());
    arguments.push(c"run".to_owned());
    // What it starts has loopback where this program has it.
    if value(LOOPBACK_VARIABLE).is_some_and(|text| text == "1") {
        arguments.push(c"--loopback".to_owned());
    }
    arguments.push(c"--policy".to_owned());
    arguments.push(text(policy)?);
    arguments.push(c"--name".to_owned());
    arguments.push(name.to_owned());
    arguments.push(c"--".to_owned());
    arguments.push(text(path.as_os_str())?);
    Some(Plan {
        binary: CString::new(binary.into_vec()).ok()?,
        arguments,
    })
}

/// A supervisor serves what its program connects itself, and the kernel knows of no connection of an engine's: what the program inherits of
/// those fails there, and a listener hears nobody.
pub fn tell_of_what_is_left(path: &Path, how: &str) {
    let left: Vec<String> = descriptors::tracked_in(0, RawFd::MAX)
        .filter(|fd| is_served(*fd) && is_inherited(*fd))
        .map(|fd| fd.to_string())
        .collect();
    if !left.is_empty() {
        report::line(&format!(
            "{} {how}, where the sockets that it inherits do not work: descriptors {}. With \
             `shunt run --supervise only` for all of them they do",
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
pub fn found(file: &OsStr) -> Option<PathBuf> {
    if file.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(file));
    }
    let search = sys::variable(c"PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    let is_executable =
        |path: &PathBuf| rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok();
    env::split_paths(&search)
        .map(|folder| folder.join(Path::new(file)))
        .find(|path| path.is_file() && is_executable(path))
}

/// Looks it up as execveat(2) does. By its own name, where it has one: the descriptor may be closed by the call.
pub fn from_folder(folder: RawFd, path: &OsStr) -> PathBuf {
    if folder == libc::AT_FDCWD {
        return PathBuf::from(path);
    }
    let mut whole = PathBuf::from(format!("/proc/self/fd/{folder}"));
    if !path.is_empty() {
        whole.push(path);
    }
    whole.canonicalize().unwrap_or(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_looked_up_only_where_libc_would() {
        assert!(found(OsStr::new("sh")).unwrap().is_absolute());
        assert_eq!(found(OsStr::new("./sh")).unwrap(), Path::new("./sh"));
        assert!(found(OsStr::new("no-such-program-anywhere")).is_none());
    }

    #[test]
    fn what_is_open_is_known_by_its_own_name() {
        let folder = std::fs::File::open("/proc").unwrap();
        let fd = std::os::fd::AsRawFd::as_raw_fd(&folder);
        assert_eq!(from_folder(fd, OsStr::new("")), Path::new("/proc"));
        assert_eq!(
            from_folder(fd, OsStr::new("version")),
            Path::new("/proc/version")
        );
        assert_eq!(
            from_folder(fd, OsStr::new("/proc/../dev")),
            Path::new("/dev")
        );
        assert_eq!(from_folder(libc::AT_FDCWD, OsStr::new("a")), Path::new("a"));
    }

    #[test]
    fn outside_of_shunt_run_everything_is_executed_as_it_is() {
        let start = start_of(PathBuf::from("/bin/busybox"), c"busybox", true);
        assert!(matches!(start, Start::AsItIs));
    }
}
