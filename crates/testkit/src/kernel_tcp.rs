//! What the kernel of a host has had to do with TCP, by its own counters (proc_net(5), RFC 4022).

use std::collections::BTreeMap;

use lab::Host;

/// Counters that nothing but a segment or a connection moves.
const COUNTED: [&str; 5] = [
    "ActiveOpens",
    "PassiveOpens",
    "InSegs",
    "OutSegs",
    "OutRsts",
];

/// What it has counted, by the names of RFC 4022.
///
/// # Panics
/// Where it does not tell.
pub fn counters(host: &Host) -> BTreeMap<String, u64> {
    let text = crate::run(host, "cat", &["/proc/net/snmp"]).stdout;
    let mut lines = text.lines().filter(|line| line.starts_with("Tcp:"));
    let mut words = || lines.next().unwrap_or_default().split_whitespace();
    let (names, values) = (words(), words());
    let counted: BTreeMap<String, u64> = names
        .zip(values)
        .filter(|(name, _)| COUNTED.contains(name))
        .filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?)))
        .collect();
    assert_eq!(counted.len(), COUNTED.len(), "{text}");
    counted
}

/// It has had nothing to do at all.
///
/// # Panics
/// Where it has.
pub fn assert_silent(host: &Host) {
    let counters = counters(host);
    assert!(
        counters.values().all(|count| *count == 0),
        "the kernel's TCP on {} has worked: {counters:?}",
        host.spec().name
    );
}
