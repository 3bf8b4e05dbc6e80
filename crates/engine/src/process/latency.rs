//! Keeps processors out of deep idle states while programs are attached. See
//! Documentation/power/pm_qos_interface.rst: the request holds for as long as the file is open.

use rustix::fd::{AsRawFd as _, OwnedFd, RawFd};
use rustix::fs::{Mode, OFlags};

/// Holds `/dev/cpu_dma_latency` at 0 while it exists.
pub struct IdleLatency {
    file: OwnedFd,
}

impl IdleLatency {
    /// `None` where the file is missing or may not be written: then sleeping costs more, nothing else.
    pub fn hold() -> Option<Self> {
        let file = rustix::fs::open(
            "/dev/cpu_dma_latency",
            OFlags::WRONLY | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .ok()?;
        rustix::io::write(&file, &0_i32.to_ne_bytes()).ok()?;
        let file = hostif::host_hooks::relocate_fd(file);
        Some(Self { file })
    }

    /// The open file's number.
    pub fn number(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}
