//! The measurements behind `shunt bench`.

pub mod apps;
mod cores;
mod idle;
mod interrupt;
pub mod statistics;
pub mod tcp;
