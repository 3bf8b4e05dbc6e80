//! Whole engine cores on a wire, in virtual time.

mod copies;
mod cores;
#[cfg(target_arch = "x86_64")]
mod crashes;
mod datagrams;
mod files;
mod listeners;
pub(crate) mod local_peers;
mod loopback;
mod next_engine;
mod notes;
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

/// `crashes` is not there.
#[cfg(not(target_arch = "x86_64"))]
#[test]
fn what_is_kept_is_whole_wherever_an_engine_ends() {
    use std::io::Write as _;
    let _ = writeln!(
        std::io::stderr(),
        "skipped: crashes: stores are let through one by one with the trap flag of x86-64"
    );
}
