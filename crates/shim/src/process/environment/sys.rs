//! C's arrays of variables: reading this process's at load, and making that of a program which is started.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt as _;
use std::ptr;

use hostif::environment::{Kept, keep};

use super::{MARK, PRELOAD, Seen, name_of, own};
use crate::process::exec::sys::Strings;

/// Variables for which the stack has room; the array of more lies in the heap, where a child of vfork(2) leaves it.
const ON_STACK: usize = 512;
/// Bytes of an LD_PRELOAD that was put together. A longer one stays as it is.
const LIST: usize = 4096;

unsafe extern "C" {
    #[link_name = "environ"]
    static mut ENVIRONMENT: *mut *const c_char;
}

/// This process's environment, as it is now.
pub fn current() -> Strings {
    // SAFETY: libc's pointer, which programs change only where nobody reads it (environ(7)).
    unsafe { ENVIRONMENT.cast_const() }
}

/// Before `main`: keeps what is Shunt's, and takes out of the environment what was put back into it. Neither allocates nor locks.
pub fn at_load() {
    let mut kept = Kept::default();
    let mut is_behind_mark = false;
    // SAFETY: nobody else runs yet; the array and its strings are those of the start, up to the null that ends it.
    unsafe {
        let mut at = ENVIRONMENT;
        while !at.is_null() && !(*at).is_null() {
            let entry = CStr::from_ptr(*at);
            is_behind_mark |= entry == MARK;
            if entry != MARK {
                kept.add(entry);
            }
            // All of them to null: who looks for what lies behind the environment finds nothing in between.
            if is_behind_mark {
                *at = ptr::null();
            }
            at = at.add(1);
        }
    }
    keep(kept);
}

/// The strings of an array.
///
/// # Safety
/// Null, or valid up to the null that ends it, as long as the strings are used.
unsafe fn entries<'a>(array: Strings) -> impl Iterator<Item = &'a CStr> + Clone {
    let mut at = array;
    std::iter::from_fn(move || {
        // SAFETY: the caller's duty; the null is not passed.
        unsafe {
            if at.is_null() || (*at).is_null() {
                return None;
            }
            let entry = CStr::from_ptr(*at);
            at = at.add(1);
            Some(entry)
        }
    })
}

impl Seen<'_> {
    /// What an array says.
    ///
    /// # Safety
    /// As execve(2): it is null, or valid as long as what is returned.
    pub unsafe fn of(environment: Strings) -> Self {
        let mut seen = Self::default();
        // SAFETY: the caller's duty.
        unsafe { entries(environment) }.for_each(|entry| seen.add(entry));
        seen
    }
}

/// Calls `start` with the environment and what it lost, if anything: the library too, behind a mark, where it is to be loaded.
///
/// # Safety
/// As [`Seen::of`].
pub unsafe fn with_put_back(
    environment: Strings,
    loads: bool,
    start: &dyn Fn(Strings) -> c_int,
) -> c_int {
    // SAFETY: the caller's duty.
    let seen = unsafe { Seen::of(environment) };
    let Some((kept, library)) = own().filter(|_| seen.is_lost()) else {
        return start(environment);
    };
    // SAFETY: the caller's duty.
    let given = || unsafe { entries(environment) };
    let mut list = [0; LIST];
    let others = seen.others.map(|others| [b":", others.as_bytes()]);
    let pieces = [PRELOAD.as_bytes(), b"=", library.as_bytes()];
    let pieces = pieces.into_iter().chain(others.into_iter().flatten());
    let Some(list) = joined(&mut list, pieces) else {
        return start(environment);
    };
    let is_missing = |entry: &&CStr| given().all(|own| name_of(own) != name_of(entry));
    let library = loads.then_some([MARK, list]);
    let all = given()
        .chain(library.into_iter().flatten())
        .chain(kept.entries().filter(is_missing))
        .map(CStr::as_ptr);
    let mut few = [ptr::null(); ON_STACK];
    let mut len = 0;
    for entry in all.clone() {
        if let Some(place) = few.get_mut(len) {
            *place = entry;
        }
        len += 1;
    }
    if len < ON_STACK {
        return start(few.as_ptr());
    }
    let many: Vec<_> = all.chain([ptr::null()]).collect();
    start(many.as_ptr())
}

/// The pieces behind each other as a string, if there is room.
fn joined<'a, 'b>(room: &'a mut [u8], pieces: impl Iterator<Item = &'b [u8]>) -> Option<&'a CStr> {
    let mut len = 0;
    for piece in pieces {
        room.get_mut(len..len + piece.len())?.copy_from_slice(piece);
        len += piece.len();
    }
    CStr::from_bytes_until_nul(room).ok()
}
