//! Attached programs: their sessions, rings, doorbells, users, and what they pass to the engine.

pub mod attention;
pub mod descriptors;
pub mod files;
pub mod moderation;
pub mod session;
pub mod users;
