//! An engine with a keeper, and the one that goes on where it stopped.

use super::cable::{Cable, Losses, STEERING};
use super::sys::{self, End, Memory};
use crate::core::EngineCore;
use crate::harness::{ADDRESSES, Act, OTHER, small_limits};
use crate::process::resume::open_descriptors;
use crate::programs::resume::Taken;
use crate::programs::users::Users;
use core::ops::Range;
use engine_config::{Address, Config, History, KeptState, Limits};
use hostif::control::SocketAccess;
use hostif::{Layout, Steering};
use rustix::fd::{OwnedFd, RawFd};
use rustix::fs::{FileType, MemfdFlags};
use rustix::pipe::{PipeFlags, pipe_with};
use shards::Shard;
use std::cell::RefCell;
use std::collections::BTreeMap;
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
    /// A queue of the device for each core.
    queues: Vec<Arc<OwnedFd>>,
    name: String,
    listener: Arc<OwnedFd>,
    /// Sockets that engines have opened, with the number of each in the kernel.
    sockets: RefCell<BTreeMap<RawFd, u64>>,
    /// What those that ended opened last.
    opened: RefCell<Vec<RawFd>>,
}

impl Keeper {
    pub fn new(queues: Vec<Arc<OwnedFd>>) -> Self {
        let file = rustix::fs::memfd_create(c"shunt-state", MemfdFlags::CLOEXEC);
        let name = format!("@shunt-crashes-{}", std::process::id());
        let listener = hostif::control::listen_for(&name, SocketAccess::default());
        Self {
            state: Arc::new(file.unwrap()),
            queues,
            name,
            listener: Arc::new(listener.unwrap()),
            sockets: RefCell::default(),
            opened: RefCell::default(),
        }
    }

    /// The cores of the first engine, or of the next one, which has taken up nothing yet.
    pub fn cores(&self, goes_on: bool, now: Instant) -> impl Iterator<Item = EngineCore> {
        let steering = Steering {
            cores: u16::try_from(self.queues.len()).unwrap(),
            ..STEERING
        };
        let shards = Shard::all(steering).unwrap().into_iter();
        let users = Users::direct();
        shards.zip(&self.queues).map(move |(shard, queue)| {
            let device = Cable::new(vec![Arc::clone(queue)], 1, Arc::<Losses>::default());
            let (config, users) = (self.config(goes_on), Arc::clone(&users));
            EngineCore::with_shard(config, shard, users, Box::new(device), [7; 16], now)
                .expect("the state is taken up")
        })
    }

    fn config(&self, goes_on: bool) -> Config {
        let own = Address {
            address: ADDRESSES[0].into(),
            prefix_len: 24,
        };
        Config {
            limits: limits(),
            kept: Some(KeptState {
                state: Arc::clone(&self.state),
                keeper: std::process::id(),
                listener: Arc::clone(&self.listener),
                goes_on,
                left: Vec::new(),
                device: Vec::new(),
                stopped_ns: 0,
                history: History::default(),
            }),
            name: self.name.clone(),
            ..Config::new("test", "cable", vec![own])
        }
    }

    /// A core does what it is asked for, and the sockets that it opens are noted.
    pub fn perform(&self, core: &mut EngineCore, now: Instant, act: Act) -> usize {
        if !matches!(act, Act::Control(_) | Act::Accept) {
            return act.perform(core, now);
        }
        let before = open_descriptors().unwrap();
        let work = act.perform(core, now);
        let opened = opened_since(&before);
        let sockets = opened
            .iter()
            .filter_map(|number| Some((*number, socket_number(*number)?)));
        self.sockets.borrow_mut().extend(sockets);
        work
    }

    /// The engine does something in a process of its own, which ends at a point. How many points it passed, if it came to the end
    /// of what it did.
    pub fn end(
        &self,
        cores: &mut [EngineCore],
        (point, memory): (usize, Memory),
        act: impl FnOnce(&mut [EngineCore]),
    ) -> Option<usize> {
        let before = open_descriptors().unwrap();
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        let end = sys::in_copy(memory, point, || {
            if catch_unwind(AssertUnwindSafe(|| act(cores))).is_err() {
                std::process::abort();
            }
            let passed = sys::points().to_ne_bytes();
            rustix::io::write(&writer, &passed).unwrap();
        });
        let passed = match end {
            End::Exited(0) => {
                let mut passed = [0; 8];
                rustix::io::read(&reader, &mut passed).unwrap();
                Some(usize::from_ne_bytes(passed))
            }
            End::Signal(libc::SIGKILL) => None,
            end => panic!("the engine ended by itself: {end:?}"),
        };
        drop((reader, writer));
        self.opened.borrow_mut().extend(opened_since(&before));
        passed
    }

    /// Another engine is there, and takes up what that one had, which is not closed.
    pub fn take_over(&self, cores: &mut [EngineCore], now: Instant) -> Taken {
        let sides = (0..cores.len()).filter(|side| *side != OTHER);
        for (side, next) in sides.clone().zip(self.cores(true, now)) {
            core::mem::forget(core::mem::replace(&mut cores[side], next));
        }
        let mut taken = Taken::default();
        for side in sides {
            cores[side].resume(now, &mut taken);
        }
        taken
    }

    /// As an engine does that goes on: what none has taken up is closed.
    pub fn close_left(&self, taken: &Taken) {
        let opened = self.opened.take();
        let sockets = self.sockets.borrow();
        let sockets = sockets
            .iter()
            .filter(|(number, socket)| socket_number(**number) == Some(**socket))
            .map(|(number, _)| *number);
        let all = opened.into_iter().chain(sockets);
        for number in all.filter(|number| !taken.has(*number)) {
            drop(crate::state::take(number));
        }
    }
}

/// Descriptors that are open now and were not before.
fn opened_since(before: &[RawFd]) -> Vec<RawFd> {
    let now = open_descriptors().unwrap().into_iter();
    now.filter(|number| before.binary_search(number).is_err())
        .collect()
}

/// The kernel's number of a socket; `None`: it is none.
fn socket_number(number: RawFd) -> Option<u64> {
    let stat = rustix::fs::fstat(crate::state::duplicate(number)?).unwrap();
    (FileType::from_raw_mode(stat.st_mode) == FileType::Socket).then_some(stat.st_ino)
}

/// Where the tables of engines, the regions of programs but for the windows in them, and the memory between programs are mapped.
pub fn kept_memory() -> Vec<Range<usize>> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let ranges = maps.lines().filter_map(|line| {
        // See proc_pid_maps(5): the range, permissions, offset in the file, device, inode, name.
        let number = |text| usize::from_str_radix(text, 16).ok();
        let mut words = line.split_ascii_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let (start, end) = (number(start)?, number(end)?);
        let offset = number(words.nth(1)?)?;
        let name = words.nth(2)?;
        if ["/memfd:shunt-state", "/memfd:shunt-channel_region"].contains(&name) {
            return Some(start..end);
        }
        let headers = usize::try_from(limits().region.windows_start()).unwrap();
        let headers = headers.saturating_sub(offset);
        (name == "/memfd:shunt-region" && headers > 0).then(|| start..end.min(start + headers))
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
