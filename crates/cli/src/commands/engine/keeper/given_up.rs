//! The end of a service in which no engine lives: the peers of its connections hear RST, so that none waits for somebody who
//! is gone (docs/decisions/0075-a-short-pause.md).

use anyhow::Context as _;
use hostif::Steering;
use nic::af_xdp::fallback::Opened;
use rustix::process::{WaitOptions, waitpid};

use super::Keeper;
use crate::commands::engine::arguments::{Arguments, DriverName};
use crate::commands::engine::{config, confined, drivers};
use crate::sys;

impl Keeper {
    /// Resets the connections that are left; with the kernel's addresses the kernel answers their peers. A process with
    /// descriptors of its own does it, after it has given up its rights: it reads rows that an engine has written, and what
    /// ended the engines may end it too.
    pub(super) fn reset_connections(&self, arguments: &Arguments) {
        if arguments.is_shared() {
            return;
        }
        match sys::fork() {
            Ok(None) => {
                self.signals.let_go();
                let reset = self.reset_in_helper(arguments);
                let status = match reset {
                    Ok(count) => {
                        note!("shunt: {count} connections that no engine serves were reset");
                        0
                    }
                    Err(error) => {
                        note!("shunt: peers of the connections are not told: {error:#}");
                        1
                    }
                };
                std::process::exit(status);
            }
            // How it ended it has said.
            Ok(Some(helper)) => drop(waitpid(Some(helper), WaitOptions::empty())),
            Err(error) => note!("shunt: peers of the connections are not told: {error}"),
        }
    }

    fn reset_in_helper(&self, arguments: &Arguments) -> anyhow::Result<usize> {
        let state = self.kept.state.try_clone().context("the engine's state")?;
        confined::begin(arguments);
        let cores = arguments.cores;
        let mut count = 0;
        for core in 0..cores {
            let driver = self.device(arguments)?.queues.into_iter().next();
            let driver =
                driver.with_context(|| format!("--nic {}: it has no queue", arguments.nic))?;
            let state = state.try_clone().context("the engine's state")?;
            let section = engine::Section { core, cores };
            count += engine::reset_left(config(arguments)?, state, section, driver)?;
        }
        Ok(count)
    }

    /// By which the peers of a core's connections are reached: all frames are its own, as the others have ended or not begun.
    fn device(&self, arguments: &Arguments) -> anyhow::Result<Opened> {
        if arguments.driver() != DriverName::Tap {
            return drivers::open(arguments, Steering::SINGLE, None);
        }
        // Nobody can open it beside the descriptor that is there.
        let mut config = config(arguments)?;
        config.kept = Some(self.kept.clone());
        let left = engine::left_behind(&config, arguments.cores);
        let left = left.context("no engine has begun")?;
        let steering = Steering {
            key: left.steering_key,
            ..Steering::SINGLE
        };
        Ok(drivers::open_kept(arguments, steering, None, left.queues)?.0)
    }
}
