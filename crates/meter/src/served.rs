//! Which engine `shunt run` has led this process to, and whether that is inside the process: `shunt run` names its control socket in
//! the environment, and the kernel tells who listens there (SO_PEERCRED, unix(7)).

use std::{
    env, fs, process, thread,
    time::{Duration, Instant},
};

use hostif::control;
use rustix::net::sockopt;
use serde::{Deserialize, Serialize};

/// How long an engine that `shunt run` has started may stay after its last program: a few seconds, more on a busy machine.
const LEAVING: Duration = Duration::from_secs(20);
/// How often it is looked whether it has ended.
const LOOK: Duration = Duration::from_millis(50);
/// Engines that `shunt run` starts have names that begin so; all others are somebody's service.
const STARTED: &str = "@shunt/run/";

/// The engine of a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Served {
    /// Its control socket.
    pub engine: String,
    /// Whether this very process is the engine.
    pub is_inside: bool,
}

impl Served {
    /// Of this process; none where `shunt run` did not start it, or no engine listens.
    pub fn of_this_process() -> Option<Self> {
        Self::by(&env::var(hostif::ENGINE_VARIABLE).ok()?)
    }

    fn by(names: &str) -> Option<Self> {
        // Of several engines the routes choose; the first one stands for them.
        let name = names.split(hostif::ENGINE_SEPARATOR).next()?;
        let socket = control::connect(name).ok()?;
        let listener = sockopt::socket_peercred(&socket).ok()?.pid;
        let own = process::id();
        Some(Self {
            engine: names.to_owned(),
            is_inside: u32::try_from(listener.as_raw_nonzero().get()) == Ok(own),
        })
    }

    /// For people.
    pub fn name(&self) -> String {
        match self.is_inside {
            true => format!("Shunt, engine {} inside this program", self.engine),
            false => format!("Shunt, engine {} beside this program", self.engine),
        }
    }

    /// Waits until an engine that was started for a program only has ended, as it does some seconds after that program. What is
    /// measured next would find it: instead of an engine inside, or beside the kernel.
    pub fn wait_until_ended(&self) {
        let deadline = Instant::now() + LEAVING;
        while self.engine.starts_with(STARTED)
            && is_bound(&self.engine)
            && Instant::now() < deadline
        {
            thread::sleep(LOOK);
        }
    }
}

/// Whether somebody listens at that name, without asking who: an engine that is asked stays longer.
fn is_bound(name: &str) -> bool {
    let sockets = fs::read_to_string("/proc/self/net/unix").unwrap_or_default();
    sockets
        .lines()
        .any(|line| line.split_ascii_whitespace().last() == Some(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_listens_itself_has_its_engine_inside() {
        let name = format!("@shunt/test/served/{}", process::id());
        assert_eq!(Served::by(&name), None);
        let listener = control::listen(&name).unwrap();
        let served = Served::by(&name).unwrap();
        assert!(served.is_inside && served.name().contains("inside"));
        assert!(is_bound(&name));
        drop(listener);
        assert!(!is_bound(&name));
    }
}
