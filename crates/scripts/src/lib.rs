//! Packet scripts: what arrives, which socket calls are made, and what must leave, at which time;
//! run against the kernel and against Shunt.
//!
//! Read first: docs/packet-scripts.md (the format and how to run one), then [`script`] (what a script
//! is), [`player`] (how one is run) and [`suite`] (how many are run at once). The scripts themselves
//! lie in `scripts/`, a folder for each subject.
//!
//! Bytes are put together and taken apart here ([`frame`]) and not by `wire`: what judges the stack
//! must not share its mistakes. Tests only: nothing that ships depends on this crate.

pub mod agent;
pub mod bench;
pub mod compare;
pub mod expression;
pub mod flow;
pub mod frame;
pub mod parse;
pub mod player;
pub mod report;
pub mod script;
pub mod suite;
