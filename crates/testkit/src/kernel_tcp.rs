//! What the kernel of a host has had to do with TCP and UDP, by its own counters (proc_net(5), RFC 4022, RFC 4113).

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
    let counted = named(host, "Tcp:", &COUNTED);
    assert_eq!(counted.len(), COUNTED.len());
    counted
}

fn named(host: &Host, of: &str, wanted: &[&str]) -> BTreeMap<String, u64> {
    let text = crate::run(host, "cat", &["/proc/net/snmp"]).stdout;
    let mut lines = text.lines().filter(|line| line.starts_with(of));
    let mut words = || lines.next().unwrap_or_default().split_whitespace();
    let (names, values) = (words(), words());
    names
        .zip(values)
        .filter(|(name, _)| wanted.contains(name))
        .filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?)))
        .collect()
}

/// Datagrams that programs have received from it, of both families.
///
/// # Panics
/// Where it does not tell.
pub fn datagrams(host: &Host) -> u64 {
    let v4 = named(host, "Udp:", &["InDatagrams"])["InDatagrams"];
    let text = crate::run(host, "cat", &["/proc/net/snmp6"]).stdout;
    let mut lines = text.lines();
    let v6 = lines.find_map(|line| line.strip_prefix("Udp6InDatagrams"));
    let v6 = v6.and_then(|text| text.trim().parse::<u64>().ok());
    v4 + v6.expect("the kernel tells what it has counted of IPv6")
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
