//! The exported functions that start programs, and what they do with C's arrays of strings. See execve(2), exec(3),
//! posix_spawn(3).

#![allow(unsafe_code)]

use std::ffi::{CStr, OsStr, OsString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::ptr;

use super::{Plan, plan};
use crate::abi::symbol::{Symbol, real};
use crate::fd_table::inherited;
use crate::inline::leave;
use crate::outcome::Failure;
use crate::process::note_departure;
use crate::sys::{self, Inside, set_errno};
use switch::attached;

/// An array of strings that null ends.
pub type Strings = *const *const c_char;

/// Whether a supervisor hears this process's calls.
pub fn is_supervised() -> bool {
    // SAFETY: the call takes numbers; the kernel refuses it.
    let answer = unsafe { libc::syscall(libc::SYS_shutdown, -1, hostif::supervision::QUESTION) };
    answer == hostif::supervision::ANSWER
}

/// A variable of the environment. Not by Rust's own way, whose lock another thread may have held when this process
/// was forked.
pub fn variable(name: &CStr) -> Option<OsString> {
    // SAFETY: the name ends with NUL; what comes back is a string of the environment or null, and is copied at once.
    unsafe {
        let value = libc::getenv(name.as_ptr());
        (!value.is_null()).then(|| OsStr::from_bytes(CStr::from_ptr(value).to_bytes()).to_owned())
    }
}

/// Executes the program under a supervisor if it needs one; returns only where that failed. `None`: it needs none.
///
/// # Safety
/// As execve(2): the name and the strings of both arrays are valid. `environment` may be null: the process's own.
pub unsafe fn execute(
    file: *const c_char,
    searches: bool,
    arguments: Strings,
    environment: Strings,
) -> Option<c_int> {
    // SAFETY: the caller's duty.
    if crate::process::is_borrowed_memory() {
        about_to_start();
    }
    // SAFETY: the caller's duty.
    let plan = unsafe { planned(file, searches, arguments) }?;
    // SAFETY: as above.
    let line = unsafe { line(&plan, arguments) };
    let environment = if environment.is_null() {
        // SAFETY: libc's array, or null.
        unsafe { environ }
    } else {
        environment
    };
    let left = leave();
    // SAFETY: the binary's name, the line that ends with null, and the caller's environment.
    let result = unsafe {
        libc::syscall(
            libc::SYS_execve,
            plan.binary.as_ptr(),
            line.as_ptr(),
            environment,
        )
    };
    if let Some(left) = left {
        let errno = sys::errno();
        left.call_off();
        set_errno(errno);
    }
    Some(c_int::try_from(result).unwrap_or(-1))
}

unsafe extern "C" {
    static environ: Strings;
}

unsafe fn planned(file: *const c_char, searches: bool, arguments: Strings) -> Option<Plan> {
    if file.is_null() || arguments.is_null() {
        return None;
    }
    let _inside = Inside::enter();
    // SAFETY: the caller's strings; the first of them may be the null that ends the array.
    let (file, name) = unsafe {
        let name = *arguments;
        let file = CStr::from_ptr(file);
        let name = if name.is_null() {
            file
        } else {
            CStr::from_ptr(name)
        };
        (file, name)
    };
    plan(file, searches, name)
}

/// The plan's arguments, then the program's own behind its name, then null.
unsafe fn line(plan: &Plan, arguments: Strings) -> Vec<*const c_char> {
    let mut line: Vec<_> = plan.arguments.iter().map(|word| word.as_ptr()).collect();
    let mut at = arguments;
    // SAFETY: the array is valid up to the null that ends it, which is not passed.
    unsafe {
        if !(*at).is_null() {
            at = at.add(1);
            while !(*at).is_null() {
                line.push(*at);
                at = at.add(1);
            }
        }
    }
    line.push(ptr::null());
    line
}

/// Another program is about to be started by libc: it inherits descriptors that no session of an engine knows of.
fn about_to_start() {
    let _inside = Inside::enter();
    note_departure();
    inherited::leave_all();
    attached::share_all();
}

type Spawn = unsafe extern "C" fn(
    *mut libc::pid_t,
    *const c_char,
    *const c_void,
    *const c_void,
    Strings,
    Strings,
) -> c_int;

/// Exports posix_spawn(3) and its like that looks a name up.
macro_rules! spawns {
    ($(fn $name:ident as $c_name:literal, $searches:literal;)*) => {$(
        /// As libc's function of this name.
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            pid: *mut libc::pid_t,
            file: *const c_char,
            actions: *const c_void,
            attributes: *const c_void,
            arguments: Strings,
            environment: Strings,
        ) -> c_int {
            static REAL: Symbol = Symbol::new($c_name);
            let Some(address) = REAL.address() else {
                set_errno(libc::ENOSYS);
                return libc::ENOSYS;
            };
            // SAFETY: libc's function of this name has this signature, and the caller of ours has met its
            // preconditions; the plan's own strings live through the call, which starts the program.
            unsafe {
                let function: Spawn = std::mem::transmute(address);
                about_to_start();
                match planned(file, $searches, arguments) {
                    Some(plan) => {
                        let line = line(&plan, arguments);
                        let file = plan.binary.as_ptr();
                        function(pid, file, actions, attributes, line.as_ptr(), environment)
                    }
                    None => function(pid, file, actions, attributes, arguments, environment),
                }
            }
        }
    )*};
}

/// As libc's function of this name.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn system(command: *const c_char) -> c_int {
    about_to_start();
    real!(system(command: *const c_char) -> c_int)
}

/// As libc's function of this name.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn popen(command: *const c_char, mode: *const c_char) -> *mut c_void {
    about_to_start();
    real!(popen(command: *const c_char, mode: *const c_char) -> *mut c_void)
}

spawns! {
    fn posix_spawn as c"posix_spawn", false;
    fn posix_spawnp as c"posix_spawnp", true;
}
