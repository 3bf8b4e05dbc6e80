//! SO_BINDTODEVICE and SO_BINDTOIFINDEX (socket(7)): a socket that uses one interface only, which says which stack
//! serves it. The kernel's socket keeps the number, and has judged whether the program may choose it.

use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU8, Ordering};

use client::engines::{self, AllNetworks, EngineIndex};
use client::route::LOOPBACK_INDEX;

use crate::backing;

/// asm-generic/socket.h.
pub const SO_BINDTOIFINDEX: i32 = 62;

/// Whose interface a socket uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// None in particular.
    Any,
    /// That of an engine.
    Engine(EngineIndex),
    /// `lo`, which an engine has for this process. The kernel's is used too.
    Loopback(EngineIndex),
    /// Another one.
    Kernel,
}

/// The device that a socket remembers; `Any` at first.
#[derive(Default)]
pub struct Chosen(AtomicU8);

/// In [`Chosen`]; from [`ENGINE`] on the places of engines.
const KERNEL: u8 = 1;
const ENGINE: u8 = 2;

impl Chosen {
    /// No device yet.
    pub const fn none() -> Chosen {
        Chosen(AtomicU8::new(0))
    }

    /// The device that was stored last.
    pub fn load(&self) -> Device {
        match self.0.load(Ordering::Relaxed) {
            KERNEL => Device::Kernel,
            number => {
                let place = number.checked_sub(ENGINE);
                let place = place.and_then(|index| EngineIndex::new(index.into()));
                place.map_or(Device::Any, Device::Engine)
            }
        }
    }

    /// Remembers another one.
    pub fn store(&self, device: Device) {
        let number = match device {
            Device::Any => 0,
            // Only what has arrived by it is noted so.
            Device::Kernel | Device::Loopback(_) => KERNEL,
            Device::Engine(place) => u8::try_from(place.index()).map_or(0, |index| index + ENGINE),
        };
        self.0.store(number, Ordering::Relaxed);
    }
}

/// Whether an option names the interface of a socket.
pub fn is_named_by(level: i32, name: i32) -> bool {
    level == libc::SOL_SOCKET && [libc::SO_BINDTODEVICE, SO_BINDTOIFINDEX].contains(&name)
}

/// The number of the interface that a socket is bound to.
pub fn index_of(fd: impl AsRawFd) -> Option<u32> {
    let mut index = [0; 4];
    backing::option(fd, libc::SOL_SOCKET, SO_BINDTOIFINDEX, &mut index).ok()?;
    Some(u32::from_ne_bytes(index)).filter(|index| *index != 0)
}

/// Whose interface a socket is bound to; of several engines on one interface the first.
pub fn of(fd: impl AsRawFd, all: &AllNetworks) -> Device {
    whose(index_of(fd).unwrap_or(0), all)
}

fn whose(index: u32, all: &AllNetworks) -> Device {
    if index == 0 {
        return Device::Any;
    }
    let with_loopback = || all.iter().position(|one| one.has_loopback);
    if index == LOOPBACK_INDEX
        && let Some(place) = with_loopback().and_then(EngineIndex::new)
    {
        return Device::Loopback(place);
    }
    engines::of_interface(index, all).map_or(Device::Kernel, Device::Engine)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use client::route::EngineNetworks;

    use super::*;

    #[test]
    fn a_device_is_remembered() {
        let chosen = Chosen::none();
        assert_eq!(chosen.load(), Device::Any);
        let places = [0, 1, 7].map(|index| Device::Engine(EngineIndex::new(index).unwrap()));
        for device in places.into_iter().chain([Device::Kernel, Device::Any]) {
            chosen.store(device);
            assert_eq!(chosen.load(), device);
        }
    }

    #[test]
    fn the_interface_says_which_stack_serves() {
        let engine = |scope_id| {
            Arc::new(EngineNetworks {
                scope_id,
                ..EngineNetworks::default()
            })
        };
        let all = [engine(3), engine(5), engine(3)];
        assert_eq!(whose(0, &all), Device::Any);
        assert_eq!(whose(3, &all), Device::Engine(EngineIndex::FIRST));
        assert_eq!(whose(5, &all), Device::Engine(EngineIndex::new(1).unwrap()));
        assert_eq!(whose(1, &all), Device::Kernel);
        assert_eq!(whose(3, &[engine(0)]), Device::Kernel, "no engine");
        let with_loopback = Arc::new(EngineNetworks {
            scope_id: 3,
            has_loopback: true,
            ..EngineNetworks::default()
        });
        let all = [engine(5), with_loopback];
        let second = EngineIndex::new(1).unwrap();
        assert_eq!(whose(1, &all), Device::Loopback(second));
        assert_eq!(whose(3, &all), Device::Engine(second));
    }
}
