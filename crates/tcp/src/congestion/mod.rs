//! Congestion control. Reno (RFC 5681) lives here; others get a file each and a trait between them.

mod reno;

pub(crate) use reno::Reno;
pub use reno::initial_window;
