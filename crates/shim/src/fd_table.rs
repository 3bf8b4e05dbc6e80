//! The numbers that the program has: which of them the switch has something to say about, and what stands behind each.

pub(crate) mod descriptors;
pub(crate) mod file;
pub(crate) mod inherited;
pub(crate) mod unknown;
