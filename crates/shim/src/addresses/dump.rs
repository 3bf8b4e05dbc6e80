//! What netlink sockets still have to say for the engines.

use std::collections::VecDeque;
use std::io::IoSliceMut;
use std::sync::{Mutex, PoisonError};

/// The answers that a netlink socket's program has not received yet.
#[derive(Default)]
pub struct Dump(Mutex<VecDeque<Vec<u8>>>);

impl Dump {
    /// In place of those to an earlier question.
    pub fn set(&self, answers: VecDeque<Vec<u8>>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = answers;
    }

    /// The next one, with `flags` of recv(2); how many bytes the call tells.
    pub fn give(&self, slices: &mut [IoSliceMut<'_>], flags: i32) -> Option<usize> {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = waiting.front()?;
        let len = bytes.len();
        let mut given = 0;
        for slice in slices {
            let part = slice.len().min(len - given);
            slice[..part].copy_from_slice(&bytes[given..given + part]);
            given += part;
        }
        if flags & libc::MSG_PEEK == 0 {
            waiting.pop_front();
        }
        Some(if flags & libc::MSG_TRUNC != 0 {
            len
        } else {
            given
        })
    }
}
