//! Keeping idle processors awake while latency is compared, see Documentation/power/pm_qos_interface.
//!
//! Leaving idle costs a sleeping round trip more than any network stack does. An engine with the
//! privilege removes that cost for its programs; a comparison must then remove it for the kernel too.

use std::{
    fs::{File, OpenOptions},
    io::Write,
};

/// The request; it holds as long as the file is open.
#[derive(Debug)]
pub struct IdleLatency(Option<File>);

impl IdleLatency {
    /// Asks for a latency of 0 µs where that is allowed.
    pub fn hold() -> Self {
        let request = || -> std::io::Result<File> {
            let mut file = OpenOptions::new()
                .write(true)
                .open("/dev/cpu_dma_latency")?;
            file.write_all(&0_i32.to_ne_bytes())?;
            Ok(file)
        };
        Self(request().ok())
    }

    /// True where it was allowed.
    pub fn held(&self) -> bool {
        self.0.is_some()
    }
}
