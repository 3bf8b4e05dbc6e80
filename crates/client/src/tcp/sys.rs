//! Bytes of a window as slices.
#![allow(unsafe_code)]

use crate::tcp::receive::ReceivedBytes;
use crate::tcp::send::SendSpace;

/// The bytes of a window that the program reads in place.
pub fn received<'a>(bytes: &'a ReceivedBytes<'_>) -> [&'a [u8]; 2] {
    bytes.spans().map(|(start, len)| {
        // SAFETY: the span lies in the mapped window, which the socket keeps mapped as long as `bytes` borrows
        // it. Nobody writes there meanwhile: the engine, whom its programs trust, places nothing at positions
        // that have arrived and are not consumed, and the receive lock keeps other holders from consuming. The same
        // holds for a byte channel and its peer, which is root or of our own user (decision 23).
        unsafe { core::slice::from_raw_parts(start.cast_const(), len) }
    })
}

/// The free space of a window that the program fills.
pub fn reserved<'a>(space: &'a mut SendSpace<'_>) -> [&'a mut [u8]; 2] {
    space.spans().map(|(start, len)| {
        // SAFETY: the span lies in the mapped window, which the socket keeps mapped as long as `space` borrows
        // it; the two spans do not overlap. The send lock keeps other holders from writing there, the borrow
        // this one, and the engine reads nothing beyond what was committed.
        unsafe { core::slice::from_raw_parts_mut(start, len) }
    })
}
