//! Why an engine did not start, or stopped.

use crate::state::StateError;
use rustix::io::Errno;

/// Why an engine did not start, or stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// No memory for the tables.
    #[error(transparent)]
    State(#[from] StateError),
    /// The stack refused an address, a route or a size.
    #[error("the configuration is refused: {0}")]
    Stack(#[from] stack::Error),
    /// The control socket's name is taken.
    #[error("an engine already answers at {0}: stop it, or choose another name with --name")]
    AlreadyRunning(String),
    /// A system call failed.
    #[error("cannot {0}: {1}")]
    System(&'static str, Errno),
    /// The kernel cannot be followed.
    #[error("cannot follow the kernel's addresses and routes: {0}")]
    Kernel(std::io::Error),
    /// The device is gone or failed.
    #[error("the device failed: {0}")]
    Device(std::io::Error),
    /// No thread for a core.
    #[error("cannot start a thread for another core: {0}")]
    Thread(std::io::Error),
    /// One of several cores ended.
    #[error("core {0} of the engine ended, and the others with it: {1}")]
    Core(u16, Box<StartError>),
}
