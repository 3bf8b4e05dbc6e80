//! Whole engine cores on a wire, in virtual time.

mod bounds;
mod cores;
mod datagrams;
mod death;
mod files;
mod generations;
mod hostile;
mod loopback;
mod options;
mod scene;
mod segments;
