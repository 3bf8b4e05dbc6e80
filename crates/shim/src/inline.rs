//! `shunt run --engine-mode inline`: the engine lives in the preloaded library, and the program's waiting threads run it.
//!
//! This crate has no engine. The library `libshunt_inline.so` (crate `preload_inline`) links one as well and gives it
//! to the switch as an [`EmbeddedEngine`]; the ordinary `libshunt.so` (crate `preload`) gives none. The engine is started by
//! the first socket and is never ended while the process lives. In a forked child the engine is the parent's: the child's
//! copy is thrown away. When the process exits or executes another program while a connection or TIME-WAIT
//! needs the engine, a forked child goes on running it; `exit` has the calls that end a process. A process that a
//! signal kills takes its engine along, and a guard tells its peers.

mod sys;

pub use sys::{is_leaving, is_wanted, leaving};

use crate::fd_table::descriptors;

/// The engine that a preloaded library has besides the switch.
pub trait EmbeddedEngine: Sync {
    /// Starts it as `settings` (the value of `SHUNT_INLINE`) say, unless an engine answers at its name: then that one serves
    /// this program too.
    ///
    /// # Errors
    /// Why it does not start, for the program's user.
    fn start(&self, settings: &str) -> Result<(), String>;

    /// Before fork(2), with all other preparations made: the engine stands still until the value is dropped. `None`: no
    /// engine runs in this process.
    fn fork_prepare(&self) -> Option<Box<dyn Standstill>>;

    /// After fork(2), in the child: the engine is the parent's.
    fn fork_child(&self, standstill: Option<Box<dyn Standstill>>);

    /// The process is about to end, or to become another program. Where somebody needs the engine it stands still here, and a
    /// forked child waits to go on with it.
    fn leave(&self) -> Option<Box<dyn Leaving>>;
}

/// An engine that stands still, as long as the value lives, with the thread's signals held back.
pub trait Standstill {
    /// In a forked child: throws the child's copy of the engine away.
    fn abandon(self: Box<Self>);
}

/// An engine that ends with its process, or that a forked child waits to go on with.
pub trait Leaving {
    /// Whether a child goes on with it.
    fn has_heir(&self) -> bool;

    /// The process goes on after all, and so does its engine: the child ends.
    fn call_off(self: Box<Self>);
}

/// Starts the engine where the environment asks for one. `Err`: why not.
pub fn start() -> Result<(), String> {
    let variable = hostif::INLINE_VARIABLE;
    let settings = hostif::environment::text(variable).unwrap_or_default();
    if settings.is_empty() {
        return Ok(());
    }
    match sys::embedded() {
        Some(engine) => engine.start(&settings),
        None => Err(format!(
            "{variable} is set, but the preloaded library has no engine in it: preload libshunt_inline.so, as `shunt run --engine-mode inline` does"
        )),
    }
}

/// Before fork(2), with all other preparations made.
pub fn fork_prepare() -> Option<Box<dyn Standstill>> {
    sys::embedded()?.fork_prepare()
}

/// After it, in the child.
pub fn fork_child(standstill: Option<Box<dyn Standstill>>) {
    if let Some(engine) = sys::embedded() {
        engine.fork_child(standstill);
    }
}

/// In the child that goes on with the engine: the program's numbers are closed, and what this process opens under one of them is
/// none of the program's sockets.
pub fn forget_program() {
    descriptors::leave_all();
}

/// The process is about to end, or to become another program.
pub fn leave() -> Option<Box<dyn Leaving>> {
    sys::embedded()?.leave()
}
