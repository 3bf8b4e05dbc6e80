//! Questions for addresses by rtnetlink(7): they go to the kernel as they are, and the engines' answers are received first.

use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::RawFd;
use std::sync::{Mutex, PoisonError};

use client::addresses::netlink::{QUESTION_MAX, Question, port};

use crate::descriptors;
use crate::file::Kind;
use crate::outcome::Switched;
use crate::sys;

/// What a netlink socket still has to say for the engines.
#[derive(Default)]
pub struct Dump(Mutex<VecDeque<Vec<u8>>>);

/// Whether the number stands for a netlink socket that is followed.
pub fn is_dump(fd: RawFd) -> bool {
    with_dump(fd, |_| ()).is_some()
}

fn with_dump<T>(fd: RawFd, look: impl FnOnce(&Dump) -> T) -> Option<T> {
    match &descriptors::borrow(fd)?.as_ref()?.kind {
        Kind::Dump(dump) => Some(look(dump)),
        _ => None,
    }
}

/// The program sends this to the kernel.
pub fn observe(fd: RawFd, slices: &[IoSlice<'_>]) {
    if !is_dump(fd) {
        return;
    }
    let mut bytes = [0; QUESTION_MAX];
    let mut len = 0;
    for slice in slices {
        let end = (len + slice.len()).min(QUESTION_MAX);
        bytes[len..end].copy_from_slice(&slice[..end - len]);
        len = end;
    }
    let Some(question) = Question::of(&bytes[..len]) else {
        return;
    };
    let Ok(socket) = sys::borrow(fd) else { return };
    let answer = question.answer(port(socket), &super::own(socket));
    with_dump(fd, |dump| {
        *dump.0.lock().unwrap_or_else(PoisonError::into_inner) = answer;
    });
}

/// What is to be told before the kernel's answer, with `flags` of recv(2).
pub fn receive(fd: RawFd, slices: &mut [IoSliceMut<'_>], flags: i32) -> Switched<usize> {
    let told = with_dump(fd, |dump| {
        let mut waiting = dump.0.lock().unwrap_or_else(PoisonError::into_inner);
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
    });
    Ok(told.flatten())
}
