//! Whole engine cores on a wire, in virtual time.

mod attention;
mod bounds;
mod copies;
mod cores;
mod datagrams;
mod death;
mod files;
mod generations;
mod held;
mod hostile;
mod listeners;
mod loopback;
mod moderation;
mod options;
mod order;
mod orphans;
mod queues;
pub(crate) mod scene;
mod segments;
mod served;
mod signals;
mod stop;
mod windows;
