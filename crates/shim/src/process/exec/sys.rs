//! The exported functions that start programs, and what they do with C's arrays of strings. See execve(2), exec(3),
//! posix_spawn(3).

#![allow(unsafe_code)]

use std::ffi::{CStr, OsStr, OsString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr;

use super::{Plan, Start, found, from_folder, start_of, tell_of_what_is_left};
use crate::abi::symbol::{Symbol, real};
use crate::fd_table::inherited;
use crate::inline::leave;
use crate::outcome::Failure;
use crate::process::environment::sys::with_put_back;
use crate::process::environment::{Seen, is_library_there};
use crate::process::note_departure;
use crate::sys::{self, Inside, set_errno, word};
use switch::attached;

/// An array of strings that null ends.
pub type Strings = *const *const c_char;

/// A variable of the environment. Not by Rust's own way, whose lock another thread may have held when this process
/// was forked.
pub fn variable(name: &CStr) -> Option<OsString> {
    // SAFETY: the name ends with NUL; what comes back is a string of the environment or null, and is copied at once.
    unsafe {
        let value = libc::getenv(name.as_ptr());
        (!value.is_null()).then(|| OsStr::from_bytes(CStr::from_ptr(value).to_bytes()).to_owned())
    }
}

/// How a file is named to a call of the exec family.
#[derive(Clone, Copy)]
pub enum Named {
    /// As execve(2).
    Path(*const c_char),
    /// As execvp(3): looked up, if it has no slash.
    Searched(*const c_char),
    /// As execveat(2): from this folder on, or what the descriptor itself is of.
    At(c_int, *const c_char),
}

impl Named {
    fn path(self) -> *const c_char {
        let (Named::Path(path) | Named::Searched(path) | Named::At(_, path)) = self;
        path
    }
}

/// Executes the program, under a supervisor if it needs one, and with what its environment has lost; returns only where that failed.
/// Where nothing is to be done about it, `by_libc` executes it with the environment that it gets.
///
/// # Safety
/// As execve(2): the name and the strings of both arrays are valid, or the environment is null.
pub unsafe fn execute(
    file: Named,
    arguments: Strings,
    environment: Strings,
    by_libc: &dyn Fn(Strings) -> c_int,
) -> c_int {
    if crate::process::is_borrowed_memory() {
        about_to_start();
    }
    // SAFETY: the caller's duty.
    let start = unsafe { start(file, arguments, environment) };
    let left = leave();
    let ends_engine = left.as_ref().is_some_and(|left| !left.has_heir());
    if ends_engine {
        inherited::hide_nonblocking(false);
    }
    // SAFETY: the caller's duty; the plan's strings live until the call comes back.
    let result = unsafe {
        match &start {
            Start::AsItIs => by_libc(environment),
            Start::Preloaded => with_put_back(environment, true, by_libc),
            Start::Supervised(plan) => with_put_back(environment, false, &|environment| {
                let line = line(plan, arguments);
                let file = word(plan.binary.as_ptr());
                let strings = [file, word(line.as_ptr()), word(environment), 0, 0, 0];
                let result = sys::call(libc::SYS_execve, strings);
                c_int::try_from(result).unwrap_or(-1)
            }),
        }
    };
    let errno = sys::errno();
    if let Some(left) = left {
        left.call_off();
    }
    if ends_engine {
        inherited::hide_nonblocking(true);
    }
    set_errno(errno);
    result
}

/// How the program is started.
///
/// # Safety
/// As [`execute`].
unsafe fn start(file: Named, arguments: Strings, environment: Strings) -> Start {
    if file.path().is_null() || arguments.is_null() || Inside::is_active() {
        return Start::AsItIs;
    }
    let _inside = Inside::enter();
    // SAFETY: the caller's strings; the first of them may be the null that ends the array.
    let (path, name, seen) = unsafe {
        let name = *arguments;
        let path = CStr::from_ptr(file.path());
        let name = if name.is_null() {
            path
        } else {
            CStr::from_ptr(name)
        };
        (path, name, Seen::of(environment))
    };
    let path = OsStr::from_bytes(path.to_bytes());
    if seen.is_let_go() || seen.is_lost() && !is_library_there() {
        tell_of_what_is_left(Path::new(path), "runs without Shunt's library");
        return Start::AsItIs;
    }
    let path = match file {
        Named::Path(_) => Some(PathBuf::from(path)),
        Named::Searched(_) => found(path),
        Named::At(folder, _) => Some(from_folder(folder, path)),
    };
    path.map_or(Start::AsItIs, |path| start_of(path, name, seen.is_lost()))
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

/// Starts the program as [`execute`] executes it; `by_libc` gets the file, its arguments and its environment.
///
/// # Safety
/// As [`execute`].
unsafe fn spawn(
    named: Named,
    arguments: Strings,
    environment: Strings,
    by_libc: &dyn Fn(*const c_char, Strings, Strings) -> c_int,
) -> c_int {
    about_to_start();
    let file = named.path();
    // SAFETY: the caller's duty.
    unsafe {
        match &start(named, arguments, environment) {
            Start::AsItIs => by_libc(file, arguments, environment),
            Start::Preloaded => with_put_back(environment, true, &|environment| {
                by_libc(file, arguments, environment)
            }),
            Start::Supervised(plan) => with_put_back(environment, false, &|environment| {
                let line = line(plan, arguments);
                by_libc(plan.binary.as_ptr(), line.as_ptr(), environment)
            }),
        }
    }
}

/// Exports posix_spawn(3) and its like that looks a name up.
macro_rules! spawns {
    ($(fn $name:ident as $c_name:literal, $named:path;)*) => {$(
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
            // SAFETY: libc's function of this name has this signature, and the caller of ours has met its preconditions, with
            // these strings too, which live through the call; the call starts the program.
            unsafe {
                let function: Spawn = std::mem::transmute(address);
                spawn($named(file), arguments, environment, &|file, arguments, environment| {
                    function(pid, file, actions, attributes, arguments, environment)
                })
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
    fn posix_spawn as c"posix_spawn", Named::Path;
    fn posix_spawnp as c"posix_spawnp", Named::Searched;
}
