//! Two programs, one on each of two cores, of which the second listens.

use crate::config::Limits;
use crate::harness::{Program, Socket, Wired, small_limits};
use core::net::SocketAddr;

pub struct Scene {
    pub wired: Wired,
    pub active: Program,
    pub passive: Program,
    pub listener: (Socket, SocketAddr),
}

impl Scene {
    pub fn new() -> Self {
        Self::with(small_limits())
    }

    pub fn with(limits: Limits) -> Self {
        let mut wired = Wired::new(limits);
        let active = wired.attach(0);
        let mut passive = wired.attach(1);
        let listener = passive.listen(&mut wired, 8).unwrap();
        Self {
            wired,
            active,
            passive,
            listener,
        }
    }

    pub fn connected(&mut self) -> (Socket, Socket) {
        let programs = [&mut self.active, &mut self.passive];
        Program::connected(&mut self.wired, programs, &self.listener)
    }
}
