//! Spans of a send window as the driver wants them.
#![allow(unsafe_code)]

use nic::SharedSlice;

/// A span that `hostif::Window::spans` gave.
pub fn shared<'a>(start: *const u8, len: usize) -> SharedSlice<'a> {
    // SAFETY: the spans come from a checked window of a region that the caller keeps mapped for as
    // long as the frame exists; the program may write there meanwhile, which `SharedSlice` allows.
    unsafe { SharedSlice::from_raw(start, len) }
}
