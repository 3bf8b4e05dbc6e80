//! SO_BINDTODEVICE and SO_BINDTOIFINDEX (socket(7)): a socket that uses one interface only, which says which stack
//! serves it. The kernel's socket keeps the number, and has judged whether the program may choose it.

use std::os::fd::RawFd;

use crate::socket::{Place, Socket};
use crate::sys;
use client::engines::{self, AllNetworks};

/// asm-generic/socket.h.
const SO_BINDTOIFINDEX: i32 = 62;

/// Whose interface a socket is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// It is bound to none.
    Any,
    /// That of an engine.
    Engine(Place),
    /// Another one.
    Kernel,
}

/// Whose interface a socket is bound to; of several engines on one interface the first.
pub fn of(fd: RawFd, socket: &Socket, all: &AllNetworks) -> Device {
    let is_set = |name| socket.log.has(libc::SOL_SOCKET, name);
    if !is_set(libc::SO_BINDTODEVICE) && !is_set(SO_BINDTOIFINDEX) {
        return Device::Any;
    }
    let mut index = [0; 4];
    match sys::option(fd, libc::SOL_SOCKET, SO_BINDTOIFINDEX, &mut index) {
        Ok(_) => whose(u32::from_ne_bytes(index), all),
        Err(_) => Device::Any,
    }
}

fn whose(index: u32, all: &AllNetworks) -> Device {
    if index == 0 {
        return Device::Any;
    }
    engines::of_interface(index, all).map_or(Device::Kernel, Device::Engine)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use client::route::EngineNetworks;

    use super::*;

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
        assert_eq!(whose(3, &all), Device::Engine(Place::FIRST));
        assert_eq!(whose(5, &all), Device::Engine(Place::new(1).unwrap()));
        assert_eq!(whose(1, &all), Device::Kernel);
        assert_eq!(whose(3, &[engine(0)]), Device::Kernel, "no engine");
    }
}
