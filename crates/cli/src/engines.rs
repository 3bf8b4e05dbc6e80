//! Which engines there are in this network namespace: abstract control sockets that somebody listens on, as
//! /proc/net/unix lists them, see unix(7) and proc(5).
//!
//! An engine that was given a path, or a name outside `@shunt/`, is found only by that name.

use std::fs;

/// What the names of engines begin with; `shunt engine` and `shunt run` choose such ones.
const PREFIX: &str = "@shunt/";

/// Names below it where no program attaches: who owns an address, and where engines of one host meet.
const OTHERS: [&str; 2] = ["@shunt/address/", "@shunt/wire/"];

/// The names at which engines listen here, in order; none where the list cannot be read.
pub fn names() -> Vec<String> {
    let text = fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let mut names: Vec<String> = text.lines().filter_map(name).map(str::to_owned).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// The name in a line, if it is one of a listening socket of packets that an engine may have.
fn name(line: &str) -> Option<&str> {
    /// `__SO_ACCEPTCON` and `SOCK_SEQPACKET`, as the kernel prints them.
    const LISTENS: &str = "00010000";
    const PACKETS: &str = "0005";
    // Num, RefCount, Protocol, Flags, Type, St, Inode, Path
    let mut fields = line.split_ascii_whitespace().skip(3);
    let is_door = fields.next()? == LISTENS && fields.next()? == PACKETS;
    let name = fields.nth(2)?;
    let is_ours = name.starts_with(PREFIX) && !OTHERS.iter().any(|one| name.starts_with(one));
    (is_door && is_ours).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listening_sockets_of_packets_with_our_names_are_engines() {
        let line = |flags: &str, kind: &str, name: &str| {
            format!("0000000000000000: 00000002 00000000 {flags} {kind} 01 22345 {name}")
        };
        let engine = line("00010000", "0005", "@shunt/run/10.0.0.5");
        assert_eq!(name(&engine), Some("@shunt/run/10.0.0.5"));
        for other in [
            line("00000000", "0005", "@shunt/run/10.0.0.5"),
            line("00010000", "0001", "@shunt/run/10.0.0.5"),
            line("00010000", "0005", "@shunt/address/10.0.0.5"),
            line("00010000", "0005", "/run/udev/control"),
            line("00010000", "0005", ""),
            "Num       RefCount Protocol Flags    Type St Inode Path".to_owned(),
        ] {
            assert_eq!(name(&other), None, "{other}");
        }
    }

    #[test]
    fn an_engine_that_listens_is_found_and_one_that_has_ended_is_not() {
        let name = format!("@shunt/test/found/{}", std::process::id());
        let listener = hostif::control::listen(&name).unwrap();
        assert!(names().contains(&name));
        drop(listener);
        assert!(!names().contains(&name));
    }
}
