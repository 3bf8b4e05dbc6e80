//! Two hosts on this machine: network namespaces joined by a cable, with or without root.
//!
//! Read first: namespaces(7), user_namespaces(7), veth(4), rtnetlink(7). Each host is held by a small
//! process of its own ([`holder`]); whoever wants to run something on a host joins the namespaces
//! of that process. The engine and the programs are started by others; all that a host tells them is
//! which interface and address are free for an engine ([`NIC_VARIABLE`]).
//!
//! This crate does not shape traffic (loss, delay, rate): a cable of TAPs leaves that to whoever joins
//! them. It builds no more than two hosts.

mod error;
mod holder;
mod host;
mod laboratory;
mod link;
mod pause;
mod program;
mod spec;
pub mod state;
mod sys;
mod tap;

pub use error::Error;
pub use holder::Lifetime;
pub use host::{Host, UNPRIVILEGED_UID};
pub use laboratory::{DownReport, Lab};
pub use pause::pause_while;
pub use program::{Finished, Program, own_binary, serving};
pub use spec::{
    ADDRESS_VARIABLE, Cable, Cidr, FreshAddresses, HostSpec, INTERFACE, LabSpec, NIC_VARIABLE,
    ORDINARY_SEGMENT_BYTES, ParseCidrError,
};
pub use sys::user_namespaces_usable;
