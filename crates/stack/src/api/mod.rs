//! What programs and the host ask of a [`crate::Stack`]: thin methods over its layers.

pub(crate) mod connect;
mod connections;
mod datagrams;
mod links;
pub(crate) mod listeners;
pub(crate) mod listing;
mod rebuild;
