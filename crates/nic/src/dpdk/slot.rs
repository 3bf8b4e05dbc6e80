//! The place of a device that may go and come back: opened once, and again when it is there with the driver of the kernel's that
//! it had (vfio-pci), after every queue has let it go.

use std::fs;
use std::io;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use super::config::{Config, Device};
use super::error::OpenError;
use super::port::{Attached, lock};
use super::sys::Port;

/// How soon a device that could not be opened is tried again: twice as long each time, up to the second.
const TRIED_AGAIN: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];

/// What the queues of an engine have in common, whatever becomes of the device.
pub(super) struct Slot {
    config: Config,
    queues: u16,
    /// Whose the device was when it was opened; `None`: it is on no bus of the kernel's.
    driver: Option<String>,
    groups: Mutex<Groups>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The device, while a queue has it. It ends under this lock.
    device: Weak<Attached>,
    /// For each queue that has not taken it since it was opened again.
    given: Vec<Option<Arc<Attached>>>,
    refusal: Option<Refusal>,
}

/// It could not be opened again.
struct Refusal {
    why: String,
    wait: Duration,
    not_before: Instant,
}

/// Groups that some queue listens to, with how often; the stack bounds them.
#[derive(Debug, Default)]
struct Groups(Vec<([u8; 6], u32)>);

impl Groups {
    /// One more listens to `group`, or one less; returns all that are listened to.
    fn change(&mut self, group: [u8; 6], listen: bool) -> Vec<[u8; 6]> {
        let at = self.0.iter().position(|(known, _)| *known == group);
        match (at, listen) {
            (Some(at), true) => self.0[at].1 += 1,
            (Some(at), false) => self.0[at].1 -= 1,
            (None, true) => self.0.push((group, 1)),
            (None, false) => {}
        }
        self.0.retain(|(_, count)| *count > 0);
        self.all()
    }

    fn all(&self) -> Vec<[u8; 6]> {
        self.0.iter().map(|(group, _)| *group).collect()
    }
}

impl Slot {
    /// Opens the device for `queues` cores.
    pub fn open(config: &Config, queues: u16) -> Result<(Arc<Self>, Arc<Attached>), OpenError> {
        let attached = Arc::new(Attached::open(config, queues)?);
        let slot = Self {
            config: config.clone(),
            queues,
            driver: driver_of(config),
            groups: Mutex::default(),
            state: Mutex::new(State {
                device: Arc::downgrade(&attached),
                ..State::default()
            }),
        };
        Ok((Arc::new(slot), attached))
    }

    /// Whose the device is to be.
    pub fn driver(&self) -> Option<&str> {
        self.driver.as_deref()
    }

    /// Why it cannot be opened though it is there.
    pub fn refusal(&self) -> Option<String> {
        let state = lock(&self.state);
        state.refusal.as_ref().map(|refusal| refusal.why.clone())
    }

    /// A queue lets the device go; with the last it is closed.
    pub fn put_back(&self, attached: Arc<Attached>) {
        let _state = lock(&self.state);
        drop(attached);
    }

    /// The device, for a queue that has let it go; `None`: it is not there, or another queue has it still.
    pub fn take_again(&self, queue: u16) -> Option<Arc<Attached>> {
        let mut state = lock(&self.state);
        let given = state.given.get_mut(usize::from(queue));
        if let Some(given) = given.and_then(Option::take) {
            return Some(given);
        }
        let is_elsewhere =
            state.device.strong_count() > 0 || driver_of(&self.config) != self.driver;
        let now = Instant::now();
        let waits = |refusal: &Refusal| now < refusal.not_before;
        if is_elsewhere || state.refusal.as_ref().is_some_and(waits) {
            return None;
        }
        let attached = match Attached::open(&self.config, self.queues) {
            Ok(attached) => Arc::new(attached),
            Err(error) => {
                let before = state.refusal.as_ref();
                let [first, longest] = TRIED_AGAIN;
                let wait = before.map_or(first, |before| (before.wait * 2).min(longest));
                state.refusal = Some(Refusal {
                    why: error.to_string(),
                    wait,
                    not_before: now + wait,
                });
                return None;
            }
        };
        // A device that does not take them gets none of those frames, as the first time.
        let _ = attached.port.listen_to(&mut lock(&self.groups).all());
        state.refusal = None;
        state.device = Arc::downgrade(&attached);
        state.given = (0..self.queues)
            .map(|_| Some(Arc::clone(&attached)))
            .collect();
        state.given[usize::from(queue)].take()
    }

    /// Lets in what is sent to `group`, until as many calls have taken that back.
    pub fn listen_to(&self, group: [u8; 6], listen: bool, port: Option<&Port>) -> io::Result<()> {
        let mut groups = lock(&self.groups);
        let mut all = groups.change(group, listen);
        port.map_or(Ok(()), |port| port.listen_to(&mut all))
    }
}

/// Which driver of the kernel's has the device of `config` now.
fn driver_of(config: &Config) -> Option<String> {
    let device = Device::parse(&config.device).ok()?;
    let link = fs::read_link(format!("/sys/bus/pci/devices/{}/driver", device.name)).ok()?;
    Some(link.file_name()?.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_let_in_until_nobody_listens_to_it() {
        let [one, other] = [[1; 6], [3; 6]];
        let mut groups = Groups::default();
        assert_eq!(groups.change(one, true), [one]);
        assert_eq!(groups.change(one, true), [one]);
        assert_eq!(groups.change(other, true), [one, other]);
        assert_eq!(groups.change(one, false), [one, other]);
        assert_eq!(groups.change(one, false), [other]);
        assert_eq!(groups.change(one, false), [other]);
        assert_eq!(groups.change(other, false), [[0; 6]; 0]);
    }
}
