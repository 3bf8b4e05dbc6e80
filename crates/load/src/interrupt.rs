//! Ctrl-C during a measurement: noticed, so that everything that was started is ended.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use anyhow::Context;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// What a shell reports for SIGINT.
pub const STATUS: u8 = 130;

/// Somebody asked this process to end; its exit status is then 130.
#[derive(Debug, Clone, Copy)]
pub struct Interrupted;

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("interrupted")
    }
}

impl std::error::Error for Interrupted {}

/// Whether somebody asked this process to end.
#[derive(Debug, Clone, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Catches SIGINT, SIGTERM and SIGHUP from now on; a second one ends the process at once.
    pub fn catch() -> anyhow::Result<Self> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            // The order matters: the first signal finds the flag unset and only sets it.
            signal_hook::flag::register_conditional_shutdown(
                signal,
                STATUS.into(),
                Arc::clone(&flag),
            )
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&flag)))
            .context("catching signals")?;
        }
        Ok(Self(flag))
    }

    /// True once a signal has come.
    pub fn came(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// The flag itself, for those who know nothing else of this.
    pub fn flag(&self) -> &AtomicBool {
        &self.0
    }

    /// An error once a signal has come.
    pub fn check(&self) -> anyhow::Result<()> {
        if self.came() {
            return Err(Interrupted.into());
        }
        Ok(())
    }
}
