//! What can go wrong while a lab is built, found or left.

use std::{io, path::PathBuf};

/// An error of this crate; its text names the thing to change.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The description of the lab cannot be built.
    #[error("{0}")]
    Spec(String),
    /// A lab of that name stands already.
    #[error(
        "lab {name:?} is up already: use it with `shunt lab exec`, or remove it with `shunt lab down --name {name}`"
    )]
    AlreadyUp {
        /// Name of the lab.
        name: String,
    },
    /// No lab of that name is known to this user.
    #[error("there is no lab {name:?}: start one with `shunt lab up --name {name}`")]
    NotFound {
        /// Name of the lab.
        name: String,
    },
    /// The process that holds a host's namespaces is gone.
    #[error(
        "lab {name:?} lost the process that held host {host:?}: clean up with `shunt lab down --name {name}` and start it again"
    )]
    HolderGone {
        /// Name of the lab.
        name: String,
        /// Name of the host.
        host: String,
    },
    /// The lab has no host of that name.
    #[error("the lab has no host {host:?}; its hosts are {known}")]
    UnknownHost {
        /// The name that was asked for.
        host: String,
        /// The names that exist.
        known: String,
    },
    /// A lab cannot be removed by a process that runs on one of its hosts.
    #[error("this command itself runs on host {host:?} of the lab: remove the lab from outside")]
    Inside {
        /// Name of the host.
        host: String,
    },
    /// A namespace could not be created.
    #[error(
        "cannot create the namespaces of host {host:?}: {source}. Run as root (CAP_SYS_ADMIN), or allow user namespaces: \
         sysctl user.max_user_namespaces > 0, kernel.unprivileged_userns_clone=1 (Debian), \
         kernel.apparmor_restrict_unprivileged_userns=0 (Ubuntu); in a container, a seccomp profile that permits unshare(2)"
    )]
    Namespace {
        /// Name of the host.
        host: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// One step of the set-up inside a host failed.
    #[error("{step} on host {host:?}: {source}")]
    Setup {
        /// Name of the host.
        host: String,
        /// What was being done.
        step: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// A state file or directory is unusable.
    #[error("{path}: {problem}")]
    State {
        /// The file or directory.
        path: PathBuf,
        /// What is wrong and what to do.
        problem: String,
    },
    /// A program could not be started or watched.
    #[error("{program}: {problem}")]
    Program {
        /// Name of the program.
        program: String,
        /// What happened.
        problem: String,
    },
    /// A system call failed; the text says which.
    #[error("{what}: {source}")]
    System {
        /// What was being done.
        what: String,
        /// What the kernel said.
        source: io::Error,
    },
}

impl Error {
    /// Wraps a system error with what was being done.
    pub(crate) fn system(what: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self::System {
            what: what.into(),
            source: source.into(),
        }
    }
}
