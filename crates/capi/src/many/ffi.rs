//! The functions of `shunt.h` that look at many sockets, wait for them, and move bytes of many.
#![allow(unsafe_code)]
#![allow(clippy::missing_safety_doc)] // the header says what is required of each pointer

use core::ffi::{c_int, c_void};

use native::{Event, Readiness};

use super::{Look, Notes};
use crate::calls::{self, Outcome};
use crate::ffi::{Returned as _, count, done, edge, exported, memory, memory_mut};

/// `struct shunt_polled`
#[repr(C)]
pub struct CPolled {
    socket: i64,
    interest: u32,
    ready: u32,
}

/// `struct shunt_event`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CEvent {
    token: u64,
    ready: u32,
    reserved: u32,
}

/// `struct shunt_item`
#[repr(C)]
pub struct Item {
    socket: i64,
    data: *mut c_void,
    len: usize,
    result: isize,
}

exported! {
    /// See shunt.h.
    fn shunt_poll(polled: *mut CPolled, len: usize, timeout_ms: c_int) -> c_int {
        // SAFETY: the header asks for it.
        let polled = unsafe { memory_mut(polled, len) }?;
        let look = |one: &CPolled| Look { socket: one.socket, interest: one.interest, ready: 0 };
        let mut looks: Vec<Look> = polled.iter().map(look).collect();
        let ready = super::look_at(&mut looks, timeout_ms);
        for (one, look) in polled.iter_mut().zip(looks) {
            one.ready = look.ready;
        }
        count(ready)
    }
    /// See shunt.h.
    fn shunt_poller(engine: i64) -> i64 {
        calls::poller(engine)
    }
    /// See shunt.h.
    fn shunt_poller_add(poller: i64, socket: i64, token: u64, interest: u32) -> c_int {
        done(calls::poller_add(poller, socket, token, interest))
    }
    /// See shunt.h.
    fn shunt_poller_modify(poller: i64, token: u64, interest: u32) -> c_int {
        done(calls::poller_modify(poller, token, interest))
    }
    /// See shunt.h.
    fn shunt_poller_remove(poller: i64, token: u64) -> c_int {
        done(calls::poller_remove(poller, token))
    }
    /// See shunt.h.
    fn shunt_poller_wait(
        poller: i64, events: *mut CEvent, len: usize, timeout_ms: c_int
    ) -> c_int {
        // SAFETY: the header asks for it.
        let places = unsafe { memory_mut(events, len) }?;
        let mut found = vec![Event { token: 0, ready: Readiness::empty() }; len.min(EVENTS_MAX)];
        let ready = calls::poller_wait(poller, &mut found, timeout_ms)?;
        for (place, event) in places.iter_mut().zip(&found[..ready]) {
            *place = CEvent { token: event.token, ready: event.ready.bits(), reserved: 0 };
        }
        count(Ok(ready))
    }
    /// See shunt.h.
    fn shunt_poller_descriptor(poller: i64) -> c_int {
        calls::poller_descriptor(poller)
    }
    /// See shunt.h.
    fn shunt_poller_arm(poller: i64) -> c_int {
        done(calls::poller_arm(poller))
    }
    /// See shunt.h.
    fn shunt_poller_disarm(poller: i64) -> c_int {
        done(calls::poller_disarm(poller))
    }
    /// See shunt.h.
    fn shunt_send_many(items: *mut Item, len: usize) -> c_int {
        each_item(items, len, |notes, item| {
            // SAFETY: the header asks for it.
            let bytes = unsafe { memory(item.data.cast_const().cast::<u8>(), item.len) }?;
            notes.send(item.socket, bytes)
        })
    }
    /// See shunt.h.
    fn shunt_receive_many(items: *mut Item, len: usize) -> c_int {
        each_item(items, len, |notes, item| {
            // SAFETY: the header asks for it.
            let bytes = unsafe { memory_mut(item.data.cast::<u8>(), item.len) }?;
            notes.receive(item.socket, bytes)
        })
    }
}

/// Events that one call tells of.
const EVENTS_MAX: usize = 1 << 16;

/// Does the same with each item; how many did something.
fn each_item(
    items: *mut Item,
    len: usize,
    work: impl Fn(&mut Notes, &Item) -> Outcome<usize>,
) -> Outcome<c_int> {
    // SAFETY: the header asks for it.
    let items = unsafe { memory_mut(items, len) }?;
    let mut notes = Notes::default();
    let mut good = 0;
    for item in items {
        item.result = match count(work(&mut notes, item)) {
            Ok(bytes) => {
                good += 1;
                bytes
            }
            Err(errno) => isize::failed(errno),
        };
    }
    notes.ring();
    count(Ok(good))
}
