//! SO_BINDTODEVICE and SO_BINDTOIFINDEX (socket(7)): a socket that uses one interface only, which says which stack
//! serves it. The kernel's socket keeps the number, and has judged whether the program may choose it.

use std::os::fd::RawFd;

use crate::accelerated;
use crate::route::EngineNetworks;
use crate::socket::Socket;
use crate::sys;

/// asm-generic/socket.h.
const SO_BINDTOIFINDEX: i32 = 62;

/// Whose interface a socket is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// It is bound to none.
    Any,
    /// The engine's.
    Engine,
    /// Another one.
    Kernel,
}

/// Whose interface a socket is bound to.
pub fn of(fd: RawFd, socket: &Socket) -> Device {
    let is_set = |name| socket.log.has(libc::SOL_SOCKET, name);
    if !is_set(libc::SO_BINDTODEVICE) && !is_set(SO_BINDTOIFINDEX) {
        return Device::Any;
    }
    let mut index = [0; 4];
    match sys::option(fd, libc::SOL_SOCKET, SO_BINDTOIFINDEX, &mut index) {
        Ok(_) => whose(u32::from_ne_bytes(index), &accelerated::networks()),
        Err(_) => Device::Any,
    }
}

fn whose(index: u32, engine: &EngineNetworks) -> Device {
    match index {
        0 => Device::Any,
        index if index == engine.scope_id => Device::Engine,
        _ => Device::Kernel,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interface_says_which_stack_serves() {
        let engine = EngineNetworks {
            scope_id: 3,
            ..EngineNetworks::default()
        };
        assert_eq!(whose(0, &engine), Device::Any);
        assert_eq!(whose(3, &engine), Device::Engine);
        assert_eq!(whose(1, &engine), Device::Kernel);
        assert_eq!(
            whose(3, &EngineNetworks::default()),
            Device::Kernel,
            "no engine"
        );
    }
}
