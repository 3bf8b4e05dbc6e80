//! Backing sockets that lie ready for connections that listeners will accept (`backing.rs`).

use rustix::net::AddressFamily;

use crate::private::PrivateFd;

/// The sockets that wait, and how many listeners there are to want them.
#[derive(Default)]
pub struct Pool {
    /// By core, as far as there were any, for IPv4 and for IPv6.
    pub ready: Vec<[Vec<Backing>; 2]>,
    /// Some were made already.
    pub refilled: bool,
    /// Listeners of this process.
    pub listeners: usize,
}

/// A socket that an engine core knows under a handle.
pub struct Backing {
    /// The core.
    pub core: u16,
    /// AF_INET or AF_INET6.
    pub family: AddressFamily,
    /// The engine's handle.
    pub handle: u32,
    /// Our end of it.
    pub fd: PrivateFd,
    /// It has the number and the flags that the program's descriptor is to have.
    pub is_in_place: bool,
}

impl Pool {
    /// Those for a core and a family.
    pub fn of(&mut self, core: u16, family: AddressFamily) -> &mut Vec<Backing> {
        let core = usize::from(core);
        if self.ready.len() <= core {
            self.ready.resize_with(core + 1, Default::default);
        }
        &mut self.ready[core][usize::from(family == AddressFamily::INET6)]
    }

    /// Forgets everything: the handles are those of an engine, or a process, that is gone.
    pub fn clear(&mut self) {
        self.ready.clear();
        self.refilled = false;
    }

    /// As `clear`, of an engine on which nothing listens any more.
    pub fn start_anew(&mut self) {
        self.clear();
        self.listeners = 0;
    }
}
