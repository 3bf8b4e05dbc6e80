//! Finding libc's own functions: dlsym(3).

#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use super::originals;

/// A function of libc, found behind this library in the search order on first use.
pub struct Symbol {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

/// Stands in for a function that this libc does not have.
static ABSENT: c_char = 0;

impl Symbol {
    /// A function by its name.
    pub const fn new(name: &'static CStr) -> Self {
        Self {
            name,
            address: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// Its address, or `None` where libc has no such function.
    pub fn address(&self) -> Option<*mut c_void> {
        let known = self.address.load(Ordering::Relaxed);
        let address = if known.is_null() {
            self.resolve()
        } else {
            known
        };
        (address.cast_const() != (&raw const ABSENT).cast()).then_some(address)
    }

    #[cold]
    fn resolve(&self) -> *mut c_void {
        // SAFETY: the name is NUL-terminated and static; RTLD_NEXT asks for the next object after
        // this library. A race resolves twice and stores the same address.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        let address = if found.is_null() {
            (&raw const ABSENT).cast_mut().cast()
        } else {
            originals::original(found)
        };
        // Before, what is found may lead back here a moment later.
        if originals::is_frozen() {
            self.address.store(address, Ordering::Relaxed);
        }
        address
    }
}

/// Calls libc's function of this name. Where it is used, `Symbol`, `Failure` and `sys` have their names.
macro_rules! real {
    ($name:ident($($arg:ident: $type:ty),*) -> $ret:ty) => {
        real!($name: unsafe extern "C-unwind" fn($($type),*) -> $ret, ($($arg),*), $ret)
    };
    ($name:ident: $signature:ty, ($($arg:expr),*), $ret:ty) => {{
        static REAL: Symbol = Symbol::new(
            match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => unreachable!(),
            },
        );
        match REAL.address() {
            Some(address) => {
                // SAFETY: libc's function of this name has this signature, and the caller of ours
                // has met its preconditions.
                unsafe {
                    let function: $signature = std::mem::transmute(address);
                    function($($arg),*)
                }
            }
            None => {
                sys::set_errno(libc::ENOSYS);
                <$ret as Failure>::FAILED
            }
        }
    }};
}

pub(crate) use real;
