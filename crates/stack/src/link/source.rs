//! Which own IPv6 address a packet is sent from (RFC 6724 §5).
//!
//! Candidates are the addresses of the interface that the packet leaves by, so rule 5 holds for all of
//! them. Rules 4 (home addresses) and 7 (temporary addresses) have nothing to choose between here; there
//! is one policy table, the default one.

use core::net::{IpAddr, Ipv6Addr};

use crate::address::common_prefix_len;

/// An own address that may be a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) address: Ipv6Addr,
    pub(crate) prefix_len: u8,
    /// Its preferred lifetime is over (RFC 4862 §5.5.4).
    pub(crate) deprecated: bool,
}

/// The best of the candidates towards `destination`; the first among equals.
pub(crate) fn select(
    candidates: impl Iterator<Item = Candidate>,
    destination: Ipv6Addr,
) -> Option<Ipv6Addr> {
    let mut best: Option<Candidate> = None;
    for candidate in candidates {
        if best.is_none_or(|best| is_better(&candidate, &best, destination)) {
            best = Some(candidate);
        }
    }
    best.map(|best| best.address)
}

/// Whether `a` is to be preferred to `b`, rule by rule.
fn is_better(a: &Candidate, b: &Candidate, destination: Ipv6Addr) -> bool {
    // Rule 1: the destination itself.
    if (a.address == destination) != (b.address == destination) {
        return a.address == destination;
    }
    // Rule 2: the smallest scope that reaches the destination, else the largest.
    let (scope_a, scope_b) = (scope(a.address), scope(b.address));
    if scope_a != scope_b {
        let (smaller, a_is_smaller) = (scope_a.min(scope_b), scope_a < scope_b);
        return a_is_smaller == (smaller >= scope(destination));
    }
    // Rule 3: one that is not deprecated.
    if a.deprecated != b.deprecated {
        return b.deprecated;
    }
    // Rule 6: one of the destination's kind.
    let wanted = label(destination);
    let (fits_a, fits_b) = (label(a.address) == wanted, label(b.address) == wanted);
    if fits_a != fits_b {
        return fits_a;
    }
    // Rule 8: the longest prefix in common, no longer than the candidate's own.
    let shared = |one: &Candidate| {
        let common = common_prefix_len(IpAddr::V6(one.address), IpAddr::V6(destination));
        common.min(one.prefix_len)
    };
    shared(a) > shared(b)
}

/// How far an address means something (RFC 6724 §3.1, RFC 4291 §2.7).
fn scope(address: Ipv6Addr) -> u8 {
    const LINK_LOCAL: u8 = 2;
    const SITE_LOCAL: u8 = 5;
    const GLOBAL: u8 = 14;
    let [first, second, ..] = address.octets();
    if address.is_multicast() {
        second & 0x0f
    } else if address.is_unicast_link_local() || address.is_loopback() {
        LINK_LOCAL
    } else if first == 0xfe && second >= 0xc0 {
        SITE_LOCAL
    } else {
        GLOBAL
    }
}

/// The labels of RFC 6724 §2.1.
fn label(address: Ipv6Addr) -> u8 {
    match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 1] => 0,
        [0, 0, 0, 0, 0, 0xffff, ..] => 4,
        [0, 0, 0, 0, 0, 0, ..] => 3,
        [0x2001, 0, ..] => 5,
        [0x2002, ..] => 2,
        [0x3ffe, ..] => 12,
        [0xfec0..=0xfeff, ..] => 11,
        [0xfc00..=0xfdff, ..] => 13,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v6(text: &str) -> Ipv6Addr {
        text.parse().unwrap()
    }

    /// Candidates as `address` or `!address` for a deprecated one.
    fn chosen(candidates: &[&str], destination: &str) -> String {
        let candidates = candidates.iter().map(|text| Candidate {
            address: v6(text.trim_start_matches('!')),
            prefix_len: 64,
            deprecated: text.starts_with('!'),
        });
        select(candidates, v6(destination)).unwrap().to_string()
    }

    #[test]
    fn the_examples_of_rfc_6724_come_out_as_printed() {
        // RFC 6724 §10.1.
        for (destination, candidates, expected) in [
            (
                "2001:db8:1::1",
                ["2001:db8:3::1", "fe80::1"],
                "2001:db8:3::1",
            ),
            ("ff05::1", ["2001:db8:3::1", "fe80::1"], "2001:db8:3::1"),
            (
                "2001:db8:1::1",
                ["2001:db8:1::1", "2001:db8:2::1"],
                "2001:db8:1::1",
            ),
            ("fe80::1", ["fe80::2", "2001:db8:1::1"], "fe80::2"),
            (
                "2001:db8:1::1",
                ["2001:db8:1::2", "2001:db8:3::2"],
                "2001:db8:1::2",
            ),
            (
                "2002:c633:6401::1",
                ["2002:c633:6401::d5e3:7953:13eb:22e8", "2001:db8:1::2"],
                "2002:c633:6401:0:d5e3:7953:13eb:22e8",
            ),
        ] {
            let [first, second] = candidates;
            assert_eq!(
                chosen(&[first, second], destination),
                v6(expected).to_string()
            );
            assert_eq!(
                chosen(&[second, first], destination),
                v6(expected).to_string()
            );
        }
    }

    #[test]
    fn among_addresses_of_one_scope_the_label_of_the_destination_counts() {
        // RFC 6724 §2.1, §5 rule 6: in each case the other candidate has more bits in common (rule 8), or as many.
        for (destination, [own, other]) in [
            ("2001:0:1::1", ["2001:0:ffff::2", "2001:db8::2"]), // Teredo
            ("2002:1::1", ["2002:ffff::2", "2003::2"]),         // 6to4
            ("2001:db8::1", ["2a00::2", "2001:0:1::2"]),        // neither
            ("3ffe::1", ["3ffe:ffff::2", "3fff::2"]),           // 6bone
            ("fd00::1", ["fc00::2", "fe00::2"]),                // unique local
            ("::ffff:192.0.2.1", ["::ffff:10.0.0.1", "::1:2"]), // mapped
            ("::2:1", ["::7:1", "::ffff:10.0.0.1"]),            // compatible
        ] {
            for candidates in [[own, other], [other, own]] {
                let expected = v6(own).to_string();
                assert_eq!(chosen(&candidates, destination), expected, "{destination}");
            }
        }
    }

    #[test]
    fn a_site_is_wider_than_a_link_and_narrower_than_the_world() {
        // RFC 6724 §3.1, §5 rule 2.
        let candidates = ["fe80::2", "fec0::2", "2001:db8::2"];
        for (destination, expected) in [
            ("fe80::1", "fe80::2"),
            ("fec0::1", "fec0::2"),
            ("ff05::1", "fec0::2"),
            ("2001:db8::1", "2001:db8::2"),
            ("ff0e::1", "2001:db8::2"),
        ] {
            assert_eq!(chosen(&candidates, destination), expected, "{destination}");
        }
    }

    #[test]
    fn a_deprecated_address_is_the_last_choice_within_its_scope() {
        let candidates = ["!2001:db8:1::2", "2001:db8:3::2"];
        assert_eq!(chosen(&candidates, "2001:db8:1::1"), "2001:db8:3::2");
        assert_eq!(chosen(&candidates[..1], "2001:db8:1::1"), "2001:db8:1::2");
        // Rule 2 comes before rule 3.
        assert_eq!(
            chosen(&["fe80::1", "!2001:db8::2"], "2001:db8:1::1"),
            "2001:db8::2"
        );
    }

    #[test]
    fn unique_local_and_global_addresses_keep_to_their_kind() {
        let candidates = ["fd00::5", "2600::5"];
        assert_eq!(chosen(&candidates, "fd77::1"), "fd00::5");
        assert_eq!(chosen(&candidates, "2a00::1"), "2600::5");
    }

    #[test]
    fn among_equals_the_first_wins() {
        assert_eq!(
            chosen(&["2001:db8::5", "2001:db8::6"], "2a00::1"),
            "2001:db8::5"
        );
        assert_eq!(select([].into_iter(), v6("::1")), None);
    }
}
