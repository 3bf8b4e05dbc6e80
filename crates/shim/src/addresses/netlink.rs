//! Questions for addresses by rtnetlink(7): they go to the kernel as they are, and the engines' answers are received first.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::RawFd;

use client::addresses::netlink::{QUESTION_MAX, Question, port};

use super::dump::Dump;
use crate::fd_table::descriptors;
use crate::fd_table::file::Kind;
use crate::outcome::Switched;
use crate::sys;

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
    with_dump(fd, |dump| dump.set(answer));
}

/// What is to be told before the kernel's answer, with `flags` of recv(2).
pub fn receive(fd: RawFd, slices: &mut [IoSliceMut<'_>], flags: i32) -> Switched<usize> {
    let told = with_dump(fd, |dump| dump.give(slices, flags));
    Ok(told.flatten())
}
