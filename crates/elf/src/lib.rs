//! Which way a program file gets onto Shunt, read from the file: elf(5), ld.so(8), execve(2).
//!
//! A library can be preloaded into what a glibc loader starts. Everything else, and programs that make
//! system calls themselves beside libc's, need a supervisor (the `supervise` crate). Where neither would
//! work the reason is told before the program starts: preloading fails without a word. What is not done
//! here: starting anything.

mod calls;
mod image;
mod symbols;
mod window;

use std::{
    fs::File,
    io::{self, Read},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use calls::OwnCalls;
pub use image::{Image, Linkage};
pub use symbols::Symbols;
use window::Window;

/// How many interpreters of interpreters the kernel follows (fs/exec.c).
const MAX_INTERPRETERS: usize = 5;

/// Why a program cannot be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// A file could not be read.
    #[error("{}: cannot be read to see how it is linked: {error}", file.display())]
    Unreadable {
        /// Which.
        file: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// It gains privileges by its file.
    #[error(
        "{} is {bit}: such a program runs in secure mode, where the dynamic loader preloads nothing, and gains \
         no privileges under a supervisor. Run it as the user it changes to, or on the kernel without shunt",
        file.display()
    )]
    Privileged {
        /// Which.
        file: PathBuf,
        /// By which bit.
        bit: &'static str,
    },
    /// It gains capabilities by its file.
    #[error(
        "{} has file capabilities (getcap): such a program runs in secure mode, where the dynamic loader \
         preloads nothing, and gains no privileges under a supervisor. Run it as root, or a copy without them",
        file.display()
    )]
    Capabilities {
        /// Which.
        file: PathBuf,
    },
    /// Not a program for this machine.
    #[error("{} is {what}: it can neither be preloaded nor supervised", file.display())]
    Foreign {
        /// Which.
        file: PathBuf,
        /// What it is.
        what: String,
    },
    /// Scripts of scripts.
    #[error("{}: the script's interpreter is a script, more than {MAX_INTERPRETERS} deep", file.display())]
    TooDeep {
        /// The first of them.
        file: PathBuf,
    },
    /// A script without an interpreter.
    #[error("{}: the #! line names no interpreter", file.display())]
    NoInterpreter {
        /// Which.
        file: PathBuf,
    },
}

impl Refusal {
    /// Whether the kernel executes the program all the same: its sockets are the kernel's then.
    #[must_use]
    pub fn runs_anyway(&self) -> bool {
        match self {
            Refusal::Privileged { .. } | Refusal::Capabilities { .. } => true,
            Refusal::Foreign { what, .. } => what == image::SMALLER,
            Refusal::Unreadable { .. }
            | Refusal::TooDeep { .. }
            | Refusal::NoInterpreter { .. } => false,
        }
    }
}

/// How a program's sockets are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// The library is preloaded: its calls to libc are ours.
    Preload,
    /// The library is preloaded, and a supervisor serves what the program asks the kernel itself.
    Both(&'static str),
    /// A supervisor serves its system calls; the library would not be loaded, or does not fit.
    Supervise(&'static str),
}

impl Service {
    /// Whether the library belongs into its environment. A static program ignores it and hands it on, and in one that asks
    /// the kernel itself for readiness it does the same by itself.
    #[must_use]
    pub fn preloads(self) -> bool {
        !matches!(self, Service::Supervise(MUSL))
    }

    /// Whether it needs a supervisor.
    #[must_use]
    pub fn supervises(self) -> bool {
        self != Service::Preload
    }
}

const STATIC: &str = "it is statically linked, so no loader could preload a library";
const MUSL: &str = "it is linked with musl, into which a library for glibc does not fit";
const GO: &str = "it is a Go program, which makes its system calls itself";
/// How the runtime of the address sanitizer begins, which ends the program where another library is before it.
const SANITIZER: &str = "libasan.so";
const RING_LIBRARY: &str =
    "it is linked with liburing, whose system calls no preloaded library sees";
const OWN_CALLS: &str = "it has socket calls of its own beside libc's";
const OWN_READINESS: &str = "it asks the kernel itself which sockets are ready, which knows nothing of those that a preloaded library serves";

/// A program file, seen through its `#!` lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The file that the kernel will load.
    pub file: PathBuf,
    /// How it is served.
    pub way: Service,
    /// A library of the program's that refuses to be loaded behind a preloaded one, unless it is preloaded before that.
    pub first: Option<String>,
}

/// Follows the file to what the kernel will load, and says which way that gets.
pub fn inspect(program: &Path) -> Result<Program, Refusal> {
    let mut file = program.to_owned();
    for _ in 0..MAX_INTERPRETERS {
        check_privileges(&file)?;
        match script_interpreter(&file)? {
            Some(interpreter) => file = interpreter,
            None => return way_of(file),
        }
    }
    Err(Refusal::TooDeep {
        file: program.to_owned(),
    })
}

fn way_of(file: PathBuf) -> Result<Program, Refusal> {
    let read = || -> io::Result<(Image, OwnCalls)> {
        let mut opened = Window::new(File::open(&file)?);
        let image = image::read(&mut opened)?;
        let looks_for_calls = matches!(image.linkage, Linkage::Dynamic(_)) && !image.is_go;
        let own = match looks_for_calls {
            true => calls::find(&mut opened, &image.code)?,
            false => OwnCalls::default(),
        };
        Ok((image, own))
    };
    let (image, own) = match read() {
        Ok(read) => read,
        Err(error) => return Err(Refusal::Unreadable { file, error }),
    };
    let first = image.library(SANITIZER).map(str::to_owned);
    let has_ring_library = image.library("liburing.so").is_some();
    let way = match image.linkage {
        Linkage::Foreign(what) => return Err(Refusal::Foreign { file, what }),
        Linkage::Static if image.is_go => Service::Supervise(GO),
        Linkage::Static => Service::Supervise(STATIC),
        Linkage::Dynamic(loader) if loader.contains("ld-musl") => Service::Supervise(MUSL),
        Linkage::Dynamic(_) if image.is_go => Service::Both(GO),
        Linkage::Dynamic(_) if own.readiness => Service::Supervise(OWN_READINESS),
        Linkage::Dynamic(_) if has_ring_library => Service::Both(RING_LIBRARY),
        Linkage::Dynamic(_) if own.sockets => Service::Both(OWN_CALLS),
        Linkage::Dynamic(_) => Service::Preload,
    };
    Ok(Program { file, way, first })
}

/// A program that gains privileges by its file runs in secure mode, where LD_PRELOAD is ignored.
fn check_privileges(file: &Path) -> Result<(), Refusal> {
    const SET_UID: u32 = 0o4000;
    /// Set-group-id counts only together with group execution, see inode(7).
    const SET_GID: u32 = 0o2010;
    let metadata = file.metadata().map_err(|error| Refusal::Unreadable {
        file: file.to_owned(),
        error,
    })?;
    let uid = rustix::process::geteuid();
    let gains_user = metadata.mode() & SET_UID != 0 && metadata.uid() != uid.as_raw();
    let gains_group = metadata.mode() & SET_GID == SET_GID
        && metadata.gid() != rustix::process::getegid().as_raw();
    if gains_user || gains_group {
        return Err(Refusal::Privileged {
            file: file.to_owned(),
            bit: if gains_user {
                "set-user-id"
            } else {
                "set-group-id"
            },
        });
    }
    let mut value = [0_u8; 64];
    let has_capabilities =
        rustix::fs::getxattr(file, c"security.capability", &mut value[..]).is_ok_and(|len| len > 0);
    if has_capabilities && !uid.is_root() {
        return Err(Refusal::Capabilities {
            file: file.to_owned(),
        });
    }
    Ok(())
}

/// The interpreter in a `#!` line.
fn script_interpreter(file: &Path) -> Result<Option<PathBuf>, Refusal> {
    let read = || -> io::Result<Vec<u8>> {
        let mut start = Vec::new();
        File::open(file)?.take(256).read_to_end(&mut start)?;
        Ok(start)
    };
    let start = read().map_err(|error| Refusal::Unreadable {
        file: file.to_owned(),
        error,
    })?;
    let Some(line) = start.strip_prefix(b"#!") else {
        return Ok(None);
    };
    let line = line.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let name = String::from_utf8_lossy(line);
    match name.split_ascii_whitespace().next() {
        Some(interpreter) => Ok(Some(PathBuf::from(interpreter))),
        None => Err(Refusal::NoInterpreter {
            file: file.to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_programs_and_scripts_of_this_machine_are_preloaded() {
        assert_eq!(inspect(Path::new("/bin/sh")).unwrap().way, Service::Preload);
        let script = std::env::temp_dir().join(format!("shunt-elf-test-{}", std::process::id()));
        std::fs::write(&script, "#! /bin/sh -e\nexit 0\n").unwrap();
        let inspected = inspect(&script);
        std::fs::remove_file(&script).unwrap();
        let inspected = inspected.unwrap();
        assert_eq!(inspected.way, Service::Preload);
        assert_eq!(inspected.file, Path::new("/bin/sh"));
    }

    #[test]
    fn this_test_is_not_foreign() {
        let own = std::env::current_exe().unwrap();
        assert!(inspect(&own).is_ok());
    }

    #[test]
    fn only_a_library_for_another_libc_is_left_out_of_the_environment() {
        assert!(Service::Supervise(STATIC).preloads() && Service::Supervise(STATIC).supervises());
        assert!(Service::Supervise(OWN_READINESS).preloads());
        assert!(!Service::Supervise(MUSL).preloads());
        assert!(Service::Both(GO).preloads() && Service::Both(GO).supervises());
        assert!(Service::Preload.preloads() && !Service::Preload.supervises());
    }
}
