//! Whole engine cores on a wire, in virtual time.

mod copies;
mod cores;
mod datagrams;
mod files;
mod listeners;
mod loopback;
mod next_engine;
mod options;
mod order;
mod programs;
mod queues;
pub(crate) mod scene;
mod segments;
mod served;
mod signals;
mod stop;
mod windows;
