//! The measurements behind `shunt bench`.

pub mod apps;
pub mod cores;
pub mod goals;
pub mod idle;
pub mod interrupt;
pub mod mover;
pub mod overload;
pub mod statistics;
pub mod tcp;
mod tools;
