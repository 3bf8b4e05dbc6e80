//! Where each microsecond of a round trip goes: the way of a message through Shunt's stack and the kernel's, from the marks
//! that program, library and engine note ([`hostif::stages`]), the kernel's own time stamps, and two of its tracepoints.

pub mod kernel;
pub mod live;
pub mod report;
mod stamps;
pub mod timeline;

pub use stamps::KernelStamps;
