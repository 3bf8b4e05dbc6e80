//! An engine core with a keeper, and the one that goes on where it stopped.

use super::cable::{Cable, Losses};
use super::sys::{self, End};
use crate::config::{Address, Config, History, KeptState, Limits};
use crate::core::EngineCore;
use crate::harness::{ADDRESSES, small_limits};
use core::ops::Range;
use hostif::Layout;
use rustix::fd::OwnedFd;
use rustix::fs::MemfdFlags;
use rustix::pipe::{PipeFlags, pipe_with};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use tcp::Instant;

/// Few rows, so that there is little to take up.
pub fn limits() -> Limits {
    let limits = small_limits();
    Limits {
        connections: 8,
        time_waits: 8,
        datagrams: 4,
        sessions: 4,
        region: Layout {
            socket_headers: 16,
            window_pairs: 16,
            ..limits.region
        },
        ..limits
    }
}

/// What stays where an engine ends.
pub struct Keeper {
    state: Arc<OwnedFd>,
    device: Arc<OwnedFd>,
}

impl Keeper {
    pub fn new(device: Arc<OwnedFd>) -> Self {
        let file = rustix::fs::memfd_create(c"shunt-state", MemfdFlags::CLOEXEC);
        Self {
            state: Arc::new(file.unwrap()),
            device,
        }
    }

    /// The first engine, or the next one, which has taken up nothing yet.
    pub fn core(&self, goes_on: bool, now: Instant) -> EngineCore {
        let own = Address {
            address: ADDRESSES[0].into(),
            prefix_len: 24,
        };
        let config = Config {
            limits: limits(),
            kept: Some(KeptState {
                state: Arc::clone(&self.state),
                keeper: std::process::id(),
                listener: Arc::clone(&self.state),
                goes_on,
                left: Vec::new(),
                device: Vec::new(),
                stopped_ns: 0,
                history: History::default(),
            }),
            ..Config::new("test", "cable", vec![own])
        };
        let device = Cable::new(Arc::clone(&self.device), 1, Arc::<Losses>::default());
        EngineCore::new(config, Box::new(device), [7; 16], now).expect("the state is taken up")
    }

    /// The engine does something in a process of its own, which ends at a point; another one is there then, and has taken up nothing
    /// yet. How many points the first passed, if it came to the end of what it did.
    pub fn end(
        &self,
        core: &mut EngineCore,
        now: Instant,
        point: u64,
        act: impl FnOnce(&mut EngineCore),
    ) -> Option<u64> {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        let end = sys::in_copy(&kept_memory(), point, || {
            if catch_unwind(AssertUnwindSafe(|| act(core))).is_err() {
                std::process::abort();
            }
            let passed = sys::points().to_ne_bytes();
            rustix::io::write(&writer, &passed).unwrap();
        });
        let passed = match end {
            End::Exited(0) => {
                let mut passed = [0; 8];
                rustix::io::read(&reader, &mut passed).unwrap();
                Some(u64::from_ne_bytes(passed))
            }
            End::Signal(libc::SIGKILL) => None,
            end => panic!("the engine ended by itself: {end:?}"),
        };
        // What it had is the next one's: nothing is closed.
        core::mem::forget(core::mem::replace(core, self.core(true, now)));
        passed
    }
}

/// Where the tables of engines, and the regions of programs but for the windows in them, are mapped.
fn kept_memory() -> Vec<Range<usize>> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let ranges = maps.lines().filter_map(|line| {
        let number = |text| usize::from_str_radix(text, 16).ok();
        let (start, rest) = line.split_once('-')?;
        let (start, end) = (number(start)?, number(rest.split(' ').next()?)?);
        if line.contains("/memfd:shunt-state") {
            return Some(start..end);
        }
        let headers = usize::try_from(limits().region.windows_start()).unwrap();
        line.contains("/memfd:shunt-region")
            .then(|| start..end.min(start + headers))
    });
    ranges.collect()
}

/// A number that is another one where kept memory holds something else.
pub fn fingerprint() -> u64 {
    let memory = std::fs::File::open("/proc/self/mem").unwrap();
    let mut hasher = DefaultHasher::new();
    for range in kept_memory() {
        let mut bytes = vec![0; range.len()];
        std::os::unix::fs::FileExt::read_exact_at(&memory, &mut bytes, range.start as u64).unwrap();
        bytes.hash(&mut hasher);
    }
    hasher.finish()
}
