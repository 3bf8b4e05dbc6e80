//! What a process gives up once it has what it needs: capabilities, files, system calls, being looked into.
//!
//! Made for the engine, which reads what strangers and programs write: whoever takes it over by a fault of ours gets an
//! interface's frames, and neither this host's files nor another program. Each protection that cannot be had is named
//! ([`Protections`]), and the process goes on with the others. Read first: capabilities(7), seccomp(2), landlock(7), prctl(2),
//! docs/decisions/0063-what-an-engine-gives-up.md.
//!
//! Capabilities, Landlock and seccomp belong to a thread and what it starts later: [`apply`] is called before the threads are
//! started that do the work. What is refused is answered with EPERM and named by [`log_refused`].

mod calls;
mod capability;
mod files;
mod filter;
mod refused;
mod sys;

use std::path::PathBuf;
use std::sync::OnceLock;

pub use capability::Need;
pub use refused::{log_refused, refused};

/// What the process needs from now on.
#[derive(Clone, Debug, Default)]
pub struct Needs {
    /// Capabilities, as far as it has them.
    pub capabilities: Vec<Need>,
    /// Files to open again: read and written.
    pub devices: Vec<PathBuf>,
    /// Folders in which it may remove a file of its own.
    pub folders: Vec<PathBuf>,
    /// Its device is driven by a library that maps and opens what it likes (DPDK): neither system calls nor files are
    /// restricted.
    pub has_foreign_driver: bool,
}

/// What was given up; of what could not be, why.
#[derive(Clone, Debug)]
pub struct Protections {
    /// Capabilities that are left, by name.
    pub capabilities: Result<Vec<&'static str>, String>,
    /// No program that it executes gets more rights.
    pub no_new_privileges: Result<(), String>,
    /// No core dumps, and nobody without CAP_SYS_PTRACE reads its memory or takes its descriptors.
    pub undumpable: Result<(), String>,
    /// How much of what Landlock offers is in force.
    pub files: Result<&'static str, String>,
    /// System calls are restricted to so many.
    pub calls: Result<usize, String>,
}

impl Protections {
    /// What is missing, and why, a sentence each.
    pub fn missing(&self) -> Vec<String> {
        let of = |what: &str, why: Option<&String>| why.map(|why| format!("{what}: {why}"));
        let all = [
            of(
                "capabilities are not dropped",
                self.capabilities.as_ref().err(),
            ),
            of(
                "no_new_privs is not set",
                self.no_new_privileges.as_ref().err(),
            ),
            of("memory can be dumped", self.undumpable.as_ref().err()),
            of(
                "files are not restricted (Landlock)",
                self.files.as_ref().err(),
            ),
            of(
                "system calls are not restricted (seccomp)",
                self.calls.as_ref().err(),
            ),
        ];
        all.into_iter().flatten().collect()
    }
}

static APPLIED: OnceLock<Protections> = OnceLock::new();

/// Gives up what is not needed, for this thread and those that it starts from now on. Only the first call counts.
pub fn apply(needs: &Needs) -> &'static Protections {
    APPLIED.get_or_init(|| {
        let foreign = || "DPDK maps and opens what it needs by itself".to_owned();
        // In this order: a filter without CAP_SYS_ADMIN needs no_new_privs, and refuses the other calls.
        let undumpable = capability::be_undumpable();
        let no_new_privileges = capability::forgo_new_privileges();
        let files = if needs.has_foreign_driver {
            Err(foreign())
        } else {
            files::restrict(&needs.devices, &needs.folders)
        };
        let capabilities = if needs.has_foreign_driver {
            Err(foreign())
        } else {
            capability::keep(&needs.capabilities)
        };
        let calls = if needs.has_foreign_driver {
            Err(foreign())
        } else {
            filter::install(&calls::engine())
        };
        Protections {
            capabilities,
            no_new_privileges,
            undumpable,
            files,
            calls,
        }
    })
}

/// For a process that keeps its rights: nobody without CAP_SYS_PTRACE reads its memory or takes its descriptors. Where that cannot
/// be had [`apply`] names it.
pub fn be_undumpable() {
    let _ = capability::be_undumpable();
}

/// What [`apply`] did; `None`: it was not called.
pub fn applied() -> Option<&'static Protections> {
    APPLIED.get()
}

/// For a thread that does nothing but write lines to a descriptor which is open: no capability, and the few calls that this
/// takes. What cannot be given up there [`apply`] names for the process.
pub fn restrict_writer() {
    let _ = capability::forgo_new_privileges();
    let _ = capability::keep(&[]);
    let _ = filter::install(&calls::writer());
}
