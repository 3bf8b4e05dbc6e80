//! Calls on many sockets: polling them, and sending or receiving on all of them with one ring.

mod ffi;

use std::sync::Arc;

use client::Errno;
use native::{Engine, Polled, Readiness, poll, to_errno};

use crate::calls::Outcome;
use crate::object::{Object, duration};
use crate::table;

/// A socket, what is asked of it, and what holds: `POLLNVAL` where the handle stands for no socket.
pub struct Look {
    /// The handle.
    pub socket: i64,
    /// What is asked.
    pub interest: u32,
    /// What holds.
    pub ready: u32,
}

const INVALID: u32 = 0x20;

/// `shunt_poll`
pub fn look_at(looks: &mut [Look], timeout_ms: i32) -> Outcome<usize> {
    let objects: Vec<Outcome<Arc<Object>>> =
        looks.iter().map(|look| table::find(look.socket)).collect();
    let mut polled = Vec::with_capacity(looks.len());
    let mut places = Vec::with_capacity(looks.len());
    let mut invalid = 0;
    for (place, (look, object)) in looks.iter_mut().zip(&objects).enumerate() {
        look.ready = 0;
        let socket = object.as_ref().map_err(|errno| *errno);
        match socket.and_then(|object| object.pollable()) {
            Ok(socket) => {
                let interest = Readiness::from_bits(look.interest).ok_or(Errno::INVAL)?;
                polled.push(Polled {
                    socket,
                    interest,
                    ready: Readiness::empty(),
                });
                places.push(place);
            }
            Err(_) => {
                look.ready = INVALID;
                invalid += 1;
            }
        }
    }
    let timeout = if invalid > 0 { 0 } else { timeout_ms };
    let ready = poll(&mut polled, duration(timeout)).map_err(|error| to_errno(&error))?;
    for (place, one) in places.into_iter().zip(polled) {
        looks[place].ready = one.ready.bits();
    }
    Ok(ready + invalid)
}

/// The engines that a call left notes for.
#[derive(Default)]
pub struct Notes {
    engines: Vec<Engine>,
}

impl Notes {
    fn add(&mut self, engine: Engine) {
        if !self.engines.contains(&engine) {
            self.engines.push(engine);
        }
    }

    /// Rings those that sleep, once each.
    pub fn ring(self) {
        for engine in self.engines {
            engine.ring();
        }
    }

    /// An item of `shunt_send_many`.
    pub fn send(&mut self, socket: i64, bytes: &[u8]) -> Outcome<usize> {
        let object = table::find(socket)?;
        let stream = object.stream()?;
        let mut sending = stream.inner.sending()?;
        let half = sending.half().ok_or(Errno::BUSY)?;
        self.add(stream.inner.control.engine());
        half.try_send_later(bytes).map_err(|error| to_errno(&error))
    }

    /// An item of `shunt_receive_many`.
    pub fn receive(&mut self, socket: i64, bytes: &mut [u8]) -> Outcome<usize> {
        let object = table::find(socket)?;
        let stream = object.stream()?;
        let mut receiving = stream.inner.receiving()?;
        let half = receiving.half().ok_or(Errno::BUSY)?;
        self.add(stream.inner.control.engine());
        half.try_receive_later(bytes)
            .map_err(|error| to_errno(&error))
    }
}
