//! What is measured, how it is kept, and what is said of many runs.

pub mod histogram;
pub mod meter;
pub mod summary;
