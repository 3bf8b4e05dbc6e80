//! The numbers that the program has: which of them the switch serves, and what stands behind each.

pub(crate) mod descriptors;
pub(crate) mod file;
pub(crate) mod inherited;
pub(crate) mod unknown;
