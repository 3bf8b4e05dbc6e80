//! The beginning of an engine where another one was before: it left its rows in a file and its descriptors open, and a
//! keeper process holds both. See docs/decisions/0067-state-that-outlives-its-engine.md.

use crate::core::EngineCore;
use crate::process::clock::{Origin, clock_ns};
use crate::programs::resume::Taken;
use crate::start_error::StartError;
use crate::state::rows::{EngineRow, Held, Slot as _};
use crate::state::{State, StateError, duplicate, layout};
use engine_config::{Config, KeptState, Limits};
use hostif::Steering;
use nic::af_packet::{Handover, Numbers};
use rustix::fd::{OwnedFd, RawFd};
use rustix::io::Errno;
use shards::section::Section;
use std::io;
use tcp::Instant;

/// The engine before.
pub struct Before {
    row: EngineRow,
    /// What was open when this process began, and is not this engine's own.
    left: Vec<RawFd>,
}

/// What the engine before has left; `None`: there was none, or it had not begun to serve. The limits are those of a core.
///
/// # Errors
/// The rows are not of this build, or not of an engine with these limits and cores.
pub fn find(config: &mut Config, cores: u16) -> Result<Option<Before>, StartError> {
    let Some(mut kept) = config.kept.take() else {
        return Ok(None);
    };
    let mut before = None;
    if kept.goes_on {
        let row = read_row(&kept, &config.limits, Section { core: 0, cores });
        if let Ok(EngineRow { used: 0, .. }) = row {
            kept.goes_on = false;
            kept.left
                .drain(..)
                .filter_map(crate::state::take)
                .for_each(drop);
        } else {
            let left = core::mem::take(&mut kept.left);
            before = Some(Before { row: row?, left });
        }
    }
    config.kept = Some(kept);
    Ok(before)
}

/// Whether an engine with this configuration and so many cores can go on with the state.
///
/// # Errors
/// It cannot, and why.
pub fn check_state(config: &Config, cores: u16) -> Result<(), StartError> {
    let Some(kept) = &config.kept else {
        return Ok(());
    };
    let limits = config.limits.of_core(cores);
    for core in 0..cores {
        if read_row(kept, &limits, Section { core, cores })?.used != 1 {
            return Err(StateError::Foreign.into());
        }
    }
    Ok(())
}

/// What of the engine before counts before the device is open.
pub struct Left {
    /// Key of the hash that spreads connections over cores ([`hostif::Steering`]).
    pub steering_key: u32,
    /// The queues of its device, if this one may go on with all of them; else none.
    pub queues: Vec<Handover>,
}

/// What the engine before has left, if this one goes on.
#[must_use]
pub fn left_behind(config: &Config, cores: u16) -> Option<Left> {
    let kept = config.kept.as_ref().filter(|kept| kept.goes_on)?;
    let limits = config.limits.of_core(cores);
    let row = |core| {
        let row = read_row(kept, &limits, Section { core, cores });
        row.ok().filter(|row| row.used == 1)
    };
    let steering_key = row(0)?.steering_key;
    let queue = |core| {
        let Numbers {
            socket,
            kernel_drop,
            geometry,
        } = row(core)?.device.numbers()?;
        // Duplicates: the numbers are closed with all that nobody takes up.
        Some(Handover {
            socket: duplicate(socket)?,
            kernel_drop: kernel_drop.and_then(duplicate),
            geometry,
        })
    };
    let queues: Option<Vec<_>> = (0..cores).map(queue).collect();
    Some(Left {
        steering_key,
        queues: queues.unwrap_or_default(),
    })
}

fn read_row(kept: &KeptState, limits: &Limits, section: Section) -> Result<EngineRow, StartError> {
    let rows = limits.rows();
    let file = rustix::io::fcntl_dupfd_cloexec(&*kept.state, 0)
        .map_err(|errno| StartError::System("duplicate a descriptor", errno))?;
    let row = State::engine_row(&file, limits, rows, section)?;
    if row.used != 0 && row.layout != layout(limits, rows) {
        return Err(StateError::Foreign.into());
    }
    Ok(row)
}

impl Before {
    /// Its control socket.
    pub fn listener(&self) -> Result<OwnedFd, StartError> {
        let listener = self.row.listener.number().and_then(crate::state::take);
        listener.ok_or(StartError::System(
            "take up the control socket",
            Errno::BADF,
        ))
    }

    /// When its time began.
    pub fn origin(&self) -> Origin {
        Origin::at_ns(self.row.origin_ns)
    }

    /// Takes up what its cores had, and closes what nobody needs of that.
    pub fn go_on(&self, cores: &mut [EngineCore], now: Instant) {
        let mut taken = Taken::default();
        for core in cores.iter_mut() {
            core.resume(now, &mut taken);
        }
        for core in cores.iter_mut() {
            core.note_device();
        }
        let listener = self.row.listener.number();
        let old = self.left.iter().copied();
        let old = old.filter(|number| Some(*number) != listener && !taken.has(*number));
        // Whatever it was, its owner is gone. To close a device's socket takes the kernel some 30 ms.
        let old: Vec<OwnedFd> = old.filter_map(crate::state::take).collect();
        let closing = std::thread::Builder::new().name("shunt-closing".to_owned());
        // Without a thread it is done here, by dropping the closure.
        let _ = closing.spawn(move || drop(old));
        let stopped = cores.first().and_then(|core| core.config.kept.as_ref());
        let stopped_ns = stopped.map_or(0, |kept| kept.stopped_ns);
        let pause_us = clock_ns().saturating_sub(stopped_ns) / 1_000;
        let kept = cores
            .iter_mut()
            .filter_map(|core| core.config.kept.as_mut());
        kept.for_each(|kept| kept.history.pause_us = Some(pause_us));
        // Whoever uses another core uses the first one, too.
        let programs = cores.first().map_or(0, |core| core.programs.iter().count());
        let connections = |core: &EngineCore| core.layer.stack.connection_names().count();
        let connections: usize = cores.iter().map(connections).sum();
        tracing::info!(
            "going on with {programs} programs and {connections} connections, {pause_us} µs after the end of the engine before",
        );
    }
}

/// An engine begins to serve: what comes after it may go on. The first core says so last, for all.
pub fn note_begin(
    cores: &mut [EngineCore],
    listener: &OwnedFd,
    origin: Origin,
    steering: Steering,
) {
    for core in cores.iter_mut().rev() {
        core.note_begin(listener, origin, steering);
    }
}

impl EngineCore {
    fn note_begin(&mut self, listener: &OwnedFd, origin: Origin, steering: Steering) {
        let row = &mut *self.programs.engine;
        let begun = EngineRow {
            listener: Held::of(listener),
            origin_ns: origin.as_ns(),
            steering_key: steering.key,
            ..*row
        };
        row.put(begun);
        self.note_device();
    }

    /// What the next engine finds of the device.
    fn note_device(&mut self) {
        let kept = self.config.kept.as_ref();
        let device = kept.and_then(|kept| kept.device.get(usize::from(self.shard.core)));
        self.programs.engine.device.put(device);
    }
}

/// One above the highest number that a descriptor of this process may have now.
///
/// # Errors
/// proc(5) is not there.
pub fn descriptor_numbers() -> io::Result<RawFd> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let size = status.lines().find_map(|line| line.strip_prefix("FDSize:"));
    let size = size.and_then(|size| size.trim().parse().ok());
    size.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// The numbers of all descriptors of this process, in their order.
///
/// # Errors
/// proc(5) is not there.
pub fn open_descriptors() -> io::Result<Vec<RawFd>> {
    // The kernel makes an entry for each that /proc/self/fd lists: 2.5 µs a descriptor. To ask for a number takes 0.2 µs.
    Ok((0..descriptor_numbers()?)
        .filter(|number| crate::state::is_open(*number))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fd::AsRawFd as _;

    #[test]
    fn every_open_descriptor_is_listed_and_no_closed_one() {
        let low = std::fs::File::open("/dev/null").unwrap();
        let high = rustix::io::fcntl_dupfd_cloexec(&low, 900).unwrap();
        let [low_number, high_number] = [low.as_raw_fd(), high.as_raw_fd()];
        let open = open_descriptors().unwrap();
        assert!(open.is_sorted() && open.contains(&low_number) && open.contains(&high_number));
        drop(high);
        assert!(!open_descriptors().unwrap().contains(&high_number));
    }
}
