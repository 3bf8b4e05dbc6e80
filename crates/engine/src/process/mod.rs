//! The engine as a process: a thread for each core, when it polls, spins and sleeps, and how it ends.

pub(crate) mod clock;
pub mod core_loop;
pub mod idle_exit;
pub mod latency;
pub mod left;
pub mod pace;
pub mod resume;
pub mod run;
mod sleep;
pub mod stop;
pub mod succession;
