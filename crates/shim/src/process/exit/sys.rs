//! The symbols of exit(3), _exit(2) and execve(2).
#![allow(unsafe_code)]

use std::ffi::{c_char, c_int};

use crate::abi::symbol::{Symbol, real};
use crate::inline::leave;
use crate::outcome::Failure;
use crate::process::environment::sys::current;
use crate::process::exec::sys::{Named, Strings, execute};
use crate::sys::{self, word};

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

/// Executes a program as the functions of the exec family do, which return only where they fail.
///
/// # Safety
/// As execve(2), with the environment null or valid.
unsafe fn by_path(path: *const c_char, arguments: Strings, environment: Strings) -> c_int {
    let by_libc = |environment| real!(execve(path: *const c_char, arguments: Strings, environment: Strings) -> c_int);
    // SAFETY: the caller's duty.
    unsafe { execute(Named::Path(path), arguments, environment, &by_libc) }
}

/// As execvpe(3).
///
/// # Safety
/// As [`by_path`].
unsafe fn by_search(file: *const c_char, arguments: Strings, environment: Strings) -> c_int {
    let by_libc = |environment| real!(execvpe(file: *const c_char, arguments: Strings, environment: Strings) -> c_int);
    // SAFETY: the caller's duty.
    unsafe { execute(Named::Searched(file), arguments, environment, &by_libc) }
}

/// As execveat(2).
///
/// # Safety
/// As [`by_path`].
unsafe fn by_folder(
    folder: c_int,
    path: *const c_char,
    arguments: Strings,
    environment: Strings,
    flags: c_int,
) -> c_int {
    // SAFETY: the caller's duty; the fifth argument is the last that the call has.
    unsafe {
        execute(
            Named::At(folder, path),
            arguments,
            environment,
            &|environment| {
                let (arguments, environment) = (word(arguments), word(environment));
                let (folder, flags) = (folder.into(), flags.into());
                let whole = [folder, word(path), arguments, environment, flags, 0];
                let done = sys::call(libc::SYS_execveat, whole);
                c_int::try_from(done).unwrap_or(-1)
            },
        )
    }
}

/// Exports functions of the exec family.
macro_rules! execs {
    ($(fn $name:ident($($arg:ident: $type:ty),*) by $by:expr;)*) => {$(
        /// As libc's function of this name.
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $type),*) -> c_int {
            // SAFETY: the caller has met the preconditions of libc's function, which are the same.
            unsafe { $by }
        }
    )*};
}

execs! {
    fn execve(path: *const c_char, arguments: Strings, environment: Strings) by by_path(path, arguments, environment);
    fn execv(path: *const c_char, arguments: Strings) by by_path(path, arguments, current());
    fn execvp(file: *const c_char, arguments: Strings) by by_search(file, arguments, current());
    fn execvpe(file: *const c_char, arguments: Strings, environment: Strings) by by_search(file, arguments, environment);
    fn fexecve(fd: c_int, arguments: Strings, environment: Strings)
        by by_folder(fd, c"".as_ptr(), arguments, environment, libc::AT_EMPTY_PATH);
    fn execveat(folder: c_int, path: *const c_char, arguments: Strings, environment: Strings, flags: c_int)
        by by_folder(folder, path, arguments, environment, flags);
}
