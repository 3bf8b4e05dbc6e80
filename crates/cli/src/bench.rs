//! The measurements behind `shunt bench`.

pub mod apps;
mod idle;
mod interrupt;
mod statistics;
