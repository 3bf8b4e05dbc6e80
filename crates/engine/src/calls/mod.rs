//! What programs ask of their sockets: commands and notes of their rings, carried out.

pub mod answers;
pub mod commands;
pub mod congestion;
pub mod connect;
pub mod datagrams;
pub mod families;
pub mod held;
pub mod names;
pub mod notes;
pub mod options;
pub mod senders;
