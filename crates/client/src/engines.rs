//! The engines of a process: attaching to one, and to several at a time
//! (docs/decisions/0032-several-engines.md). Nothing here knows of sockets but their names.
//!
//! `session` is what a process has with one engine, `attachment` what it shares with one core of it; `attached` are
//! all engines of the process. An engine is named by its index in the order in which the environment names them, which is
//! the order of their priority.

pub(crate) mod attached;
pub mod attachment;
pub(crate) mod budget;
pub(crate) mod changes;
mod engine_index;
pub mod inline_engine;
mod networks;
mod placement;
pub mod route;
pub(crate) mod session;
pub mod succession;

pub use attached::{Engines, Networks, is_for_the_kernel, is_refusal};
pub use engine_index::{Candidates, EngineIndex};
pub use networks::{
    AllNetworks, are_on_one_link, closest, closest_to_group, first_on_link, of_interface, owner,
    serving, stays_here,
};
pub use placement::{Flow, Placement, Remembered};

#[cfg(test)]
mod tests;
