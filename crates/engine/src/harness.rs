//! For tests and fuzz targets: two engine cores on one wire, a clock that the test sets, and programs
//! that speak rings and control channel by hand. No thread, no client library, no real time.
//!
//! Everything here panics where a test has to end.

pub mod datagrams;
mod program;

pub use program::{Channel, Program, Socket, kernel_socket, kernel_socket_on};

use crate::core::{EngineCore, sessions};
use core::net::Ipv4Addr;
use engine_config::{Address, Config, Limits};
use hostif::{Layout, RingEntries};
use nic::Driver;
use nic::wire::{self, WireEnd};
use rustix::fd::AsFd as _;
use stack::FastOpenModes;
use std::sync::Arc;
use tcp::{Duration, Instant};

/// The two engines' addresses.
pub const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 9, 0, 1), Ipv4Addr::new(10, 9, 0, 2)];
/// Which of the cores is the other engine's; all others are the first one's.
pub const OTHER: usize = 1;
/// No engine stays busy for more polls than this without the clock moving.
const TURNS_MAX: usize = 200_000;

/// Limits that tests reach quickly.
pub fn small_limits() -> Limits {
    Limits {
        connections: 32,
        listeners: 4,
        time_waits: 16,
        datagrams: 8,
        sessions: 8,
        region: Layout {
            ring_entries: RingEntries {
                command: 64,
                send: 64,
                receive: 64,
                completion: 64,
            },
            socket_headers: 64,
            window_pairs: 64,
            send_window_bytes: 16_384,
            receive_window_bytes: 16_384,
        },
        ..Limits::default()
    }
}

/// A core over one end of a wire.
pub fn core_on(
    end: impl Driver + 'static,
    address: Ipv4Addr,
    limits: Limits,
    now: Instant,
) -> EngineCore {
    let own = Address {
        address: address.into(),
        prefix_len: 24,
    };
    let config = Config {
        fast_open: FastOpenModes::CLIENT | FastOpenModes::SERVER,
        limits,
        ..Config::new("test", "wire", vec![own])
    };
    EngineCore::new(config, Box::new(end), [7; 16], now).expect("the limits are good")
}

/// What a core is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Packets and rings.
    Poll,
    /// See [`Wired::serve`].
    Serve,
    /// What came over the control channel of a slot.
    Control(usize),
    /// Who waits at the control socket that its keeper holds.
    Accept,
}

impl Act {
    /// Does it. How much there was to do.
    pub fn perform(self, core: &mut EngineCore, now: Instant) -> usize {
        match self {
            Self::Poll => return core.poll(now, None),
            Self::Serve => serve(core, now),
            Self::Control(slot) => core.handle_control(now, slot),
            Self::Accept => accept_all(core),
        }
        0
    }
}

/// Does what one of the first engine's cores is asked for in another way ([`Act::perform`]): all cores, and which of them it is.
pub type StandIn = Box<dyn FnMut(&mut [EngineCore], usize, Instant, Act) -> usize>;

/// Two engines on one wire.
pub struct Wired {
    /// The first engine's core, the other one's ([`OTHER`]), and what more cores the first has.
    pub cores: Vec<EngineCore>,
    /// The time that all are told.
    pub now: Instant,
    /// Performs what the first engine's cores are asked to do.
    pub stand_in: Option<StandIn>,
}

impl Wired {
    /// Two idle cores with the same limits.
    pub fn new(limits: Limits) -> Self {
        let config = wire::Config::default();
        let (left, right) = WireEnd::pair(&config).expect("memory for a wire");
        Self::over([left, right], limits)
    }

    /// Two idle cores on drivers that are joined somehow.
    pub fn over<D: Driver + 'static>([left, right]: [D; 2], limits: Limits) -> Self {
        let now = Instant::from_us(1_000_000);
        let cores = [
            core_on(left, ADDRESSES[0], limits, now),
            core_on(right, ADDRESSES[1], limits, now),
        ];
        let mut wired = Self::of(cores, now);
        wired.run_until_idle();
        wired
    }

    /// These cores, which have not been polled yet.
    pub fn of(cores: impl Into<Vec<EngineCore>>, now: Instant) -> Self {
        Self {
            cores: cores.into(),
            now,
            stand_in: None,
        }
    }

    /// Has a core do something. How much there was to do.
    pub fn perform(&mut self, side: usize, act: Act) -> usize {
        match &mut self.stand_in {
            Some(stand_in) if side != OTHER => stand_in(&mut self.cores, side, self.now, act),
            _ => act.perform(&mut self.cores[side], self.now),
        }
    }

    /// Polls each core once; nothing but packets and rings.
    pub fn turn(&mut self) -> usize {
        let mut work = 0;
        for side in 0..self.cores.len() {
            work += self.perform(side, Act::Poll);
            if let Some(error) = self.cores[side].failure() {
                panic!("the driver failed: {error}");
            }
        }
        work
    }

    /// What the thread around a core does besides: control channels, ends of sessions, housekeeping.
    pub fn serve(&mut self) {
        for side in 0..self.cores.len() {
            self.perform(side, Act::Serve);
        }
    }

    /// Polls until neither core has anything to do at this time.
    pub fn run_until_idle(&mut self) {
        self.serve();
        for _ in 0..TURNS_MAX {
            if self.turn() == 0 {
                self.serve();
                if self.turn() == 0 {
                    return;
                }
            }
        }
        panic!("the engines find work for ever");
    }

    /// Lets time pass, timer by timer.
    pub fn advance(&mut self, time: Duration) {
        let end = self.now + time;
        for _ in 0..TURNS_MAX {
            self.run_until_idle();
            let due = self
                .cores
                .iter()
                .filter_map(EngineCore::next_deadline)
                .min();
            match due {
                Some(due) if due <= end => {
                    // Something due already gets a little time, so that it cannot come for ever.
                    let soon = self.now + Duration::from_us(1);
                    self.now = if due > soon { due } else { soon };
                }
                _ => {
                    self.now = end;
                    self.run_until_idle();
                    return;
                }
            }
        }
        panic!("timers fire for ever");
    }

    /// Sockets, regions, sessions, connections, listeners, TIME-WAIT records of each core.
    pub fn holdings(&self) -> Vec<[usize; 6]> {
        self.cores.iter().map(holdings).collect()
    }
}

/// A user whose descriptors are closed at once.
#[cfg(test)]
pub(crate) fn user() -> std::sync::Arc<crate::programs::users::User> {
    let users = crate::programs::users::Users::direct();
    users.user(1_000).expect("no thread is needed")
}

fn accept_all(core: &mut EngineCore) {
    let kept = core.config.kept.as_ref();
    let listener = Arc::clone(&kept.expect("a core with a keeper").listener);
    while let Ok(Some(control)) = sessions::accept(listener.as_fd()) {
        core.accept_session(control);
    }
}

/// See [`Wired::serve`].
pub fn serve(core: &mut EngineCore, now: Instant) {
    if core.shard.bell().is_some() {
        core.take_messages(now);
    }
    for slot in 0..core.programs.slots() {
        core.handle_control(now, slot);
    }
    core.drop_faulty(now);
    core.keep_house(now);
    // As before a sleep; the next poll acts on whatever it finds.
    let _ = core.layer.link.driver.prepare_wait();
    core.programs.new.clear();
    core.programs.closing.clear();
}

/// See [`Wired::holdings`].
pub fn holdings(core: &EngineCore) -> [usize; 6] {
    [
        core.layer.sockets.count(),
        core.layer.sockets.regions.len(),
        core.programs.iter().count(),
        core.layer.stack.connections().count(),
        core.layer.stack.listeners().count(),
        core.layer.stack.time_waits().count(),
    ]
}
