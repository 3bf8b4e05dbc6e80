//! The symbols of exit(3), _exit(2) and execve(2).
#![allow(unsafe_code)]

use std::ffi::{c_char, c_int};

use crate::abi::symbol::{Symbol, real};
use crate::inline::leave;
use crate::outcome::Failure;
use crate::process::exec::sys::{Strings, execute};
use crate::sys;

/// Ends the process by the kernel's call.
pub fn end(status: c_int) -> ! {
    loop {
        // SAFETY: ends the process.
        unsafe { libc::syscall(libc::SYS_exit_group, status) };
    }
}

/// Runs after the program's own exit handlers.
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = at_exit;

extern "C" fn at_exit() {
    std::mem::forget(leave());
}

/// As libc's _exit.
///
/// # Safety
/// None.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _exit(status: c_int) -> ! {
    at_exit();
    end(status)
}

/// As libc's _Exit.
///
/// # Safety
/// None.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _Exit(status: c_int) -> ! {
    at_exit();
    end(status)
}

/// Exports functions of the exec family, which return only where they fail.
macro_rules! execs {
    ($(fn $name:ident($($arg:ident: $type:ty),*) $(by $file:ident, $searches:literal, $arguments:ident, $environment:expr)?;)*) => {$(
        /// As libc's function of this name.
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $type),*) -> c_int {
            $(
                // SAFETY: the caller has met the preconditions of libc's function, which are the same.
                let started = unsafe { execute($file, $searches, $arguments, $environment) };
                if let Some(failed) = started {
                    return failed;
                }
            )?
            let left = leave();
            let result = real!($name($($arg: $type),*) -> c_int);
            if let Some(left) = left {
                let errno = sys::errno();
                left.call_off();
                sys::set_errno(errno);
            }
            result
        }
    )*};
}

execs! {
    fn execve(path: *const c_char, arguments: Strings, environment: Strings) by path, false, arguments, environment;
    fn execv(path: *const c_char, arguments: Strings) by path, false, arguments, std::ptr::null();
    fn execvp(file: *const c_char, arguments: Strings) by file, true, arguments, std::ptr::null();
    fn execvpe(file: *const c_char, arguments: Strings, environment: Strings) by file, true, arguments, environment;
    fn fexecve(fd: c_int, arguments: Strings, environment: Strings);
}
