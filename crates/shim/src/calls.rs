//! The calls themselves, one file for each or for a few that belong together: what is asked of an engine, what is left to libc.

pub(crate) mod close;
pub(crate) mod connect;
pub(crate) mod control;
pub(crate) mod create;
pub(crate) mod datagram;
pub(crate) mod error_queue;
pub(crate) mod fast_open;
pub(crate) mod listen;
pub(crate) mod messages;
pub(crate) mod name;
pub(crate) mod options;
pub(crate) mod sendfile;
pub(crate) mod sigio;
pub(crate) mod splice;
pub(crate) mod stamping;
pub(crate) mod transfer;
