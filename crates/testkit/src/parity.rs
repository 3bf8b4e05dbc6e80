//! The parity programs: small C programs that print what socket calls return (`crates/shim/tests/programs`). Which there
//! are, and which print something else where a supervisor serves them.

use std::path::PathBuf;

use crate::workspace;

/// What a supervised program can tell from the kernel: docs/decisions/0026-supervised-programs.md says why.
pub const DIFFERING_SUPERVISED: &[&str] = &[
    "corners",        // control messages, options and undone connections are a pair's
    "epoll_edge",     // a pair tells more edges than there were: whenever the peer's end reads
    "errors", // recv on a listener is not stopped: EAGAIN, as of a time that is over, for ENOTCONN
    "fast_open", // data in a SYN is not asked for
    "linger", // close does not wait: it is not stopped
    "lowat",  // poll does not regard SO_RCVLOWAT
    "reset",  // a plain send after a reset is EPIPE at once; all else of it is the same
    "shutdowns", // what comes after SHUT_RD is not read
    "socket_options", // SO_RCVLOWAT in poll, times of arrival
    "table_tcp", // every call in every state: receiving of a listener, plain calls after an error
    "table_udp", // every call in every state: what is listed here of UDP
    "tx_stamps", // a pair tells no times of sending
    "udp_basic", // write and send without an address: ENOTCONN without a peer, too long is told afterwards
    "udp_corners", // what has no address is not put together, nor are its control messages looked at
    "udp_dual",    // the same, and ECONNRESET for ECONNREFUSED
    "udp_errors",  // the same, and poll does not tell of the error queue
    "udp_stamp",   // a Unix socket knows no SIOCGSTAMP
    "udp_tx_stamps", // nor does one for datagrams
    "urgent_poll", // a pair counts the urgent byte among those to read
    "zero_copy",   // a pair tells no completions, so SO_ZEROCOPY is refused
];

/// What compiles them, runs them and compares what they print.
#[must_use]
pub fn runner() -> PathBuf {
    workspace::root().join("crates/shim/tests/programs/run.py")
}

/// The names of all of them but those that are left out, in order.
///
/// # Panics
/// Where their folder cannot be read.
pub fn names(is_left_out: impl Fn(&str) -> bool) -> Vec<String> {
    let runner = runner();
    let folder = runner.parent().unwrap_or(&runner);
    let files = folder
        .read_dir()
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut names: Vec<String> = files
        .filter_map(|file| Some(file.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "c"))
        .filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()))
        .filter(|name| !is_left_out(name))
        .collect();
    names.sort();
    names
}
