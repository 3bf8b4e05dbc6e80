//! Ctrl-C during a measurement: noticed, so that everything that was started is ended.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use anyhow::{Context, bail};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Whether somebody asked this process to end.
#[derive(Debug, Clone)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Catches SIGINT, SIGTERM and SIGHUP from now on; a second one ends the process at once.
    pub fn catch() -> anyhow::Result<Self> {
        /// What a shell reports for SIGINT.
        const STATUS: i32 = 130;
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            // The order matters: the first signal finds the flag unset and only sets it.
            signal_hook::flag::register_conditional_shutdown(signal, STATUS, Arc::clone(&flag))
                .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&flag)))
                .context("catching signals")?;
        }
        Ok(Self(flag))
    }

    /// True once a signal has come.
    pub fn came(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// An error once a signal has come.
    pub fn check(&self) -> anyhow::Result<()> {
        if self.came() {
            bail!("interrupted");
        }
        Ok(())
    }
}
