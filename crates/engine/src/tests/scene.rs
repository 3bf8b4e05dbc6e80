//! Two programs, one on each of two cores, of which the second listens.

use crate::harness::{Program, Socket, Wired, small_limits};
use core::net::SocketAddr;
use engine_config::Limits;
use hostif::{WriteMode, Written};

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

    /// The active program writes the first bytes of its stream, of which the last is urgent.
    pub fn write_urgent(&mut self, socket: &Socket, bytes: &[u8]) {
        let header = socket.header();
        let window = self.active.region.window(header.windows().0).unwrap();
        window.copy_in(0, bytes);
        let end = bytes.len() as u64;
        header.program_set_written(end);
        let note = Written {
            socket: socket.id,
            start: 0,
            end,
            source: None,
            mode: WriteMode::Urgent,
            in_place: false,
            stamps: 0,
        };
        self.active.written.push(&note).unwrap();
    }
}
