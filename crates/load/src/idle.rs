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
pub struct IdleLatency(Result<File, &'static str>);

impl IdleLatency {
    /// Asks for a latency of 0 µs where that is allowed and does anything.
    pub fn hold() -> Self {
        let request = || -> std::io::Result<File> {
            let mut file = OpenOptions::new()
                .write(true)
                .open("/dev/cpu_dma_latency")?;
            file.write_all(&0_i32.to_ne_bytes())?;
            Ok(file)
        };
        let driver = std::fs::read_to_string("/sys/devices/system/cpu/cpuidle/current_driver");
        Self(match has_states(driver.ok().as_deref()) {
            true => request().map_err(|_| "no permission for /dev/cpu_dma_latency"),
            false => Err("without a cpuidle driver /dev/cpu_dma_latency does nothing here"),
        })
    }

    /// Why it does not hold.
    pub fn why_not(&self) -> Option<&'static str> {
        self.0.as_ref().err().copied()
    }
}

/// Whether the kernel chooses among states of idleness: without a driver it halts, whatever latency is asked for (`cpuidle_idle_call`).
fn has_states(driver: Option<&str>) -> bool {
    driver.is_some_and(|name| name.trim() != "none")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_driver_for_idleness_nothing_is_held() {
        assert!(has_states(Some("haltpoll\n")));
        assert!(!has_states(Some("none\n")));
        assert!(!has_states(None));
    }
}
