//! Rules of the kernel's packet filter that could drop what an engine sends or receives, were it the kernel that did:
//! the engine's packets pass by them. Read first: nft(8), and the kernel's include/uapi/linux/netfilter/nf_tables.h.
//!
//! Looked at are the hooks that packets of this host itself pass (prerouting, input, output, postrouting) of the
//! families ip, ip6 and inet, and the chains that rules there lead to. A rule that can drop counts, whatever else
//! it asks of a packet: better one too many than one that is passed by without a word. Rules of the older iptables
//! are not read; that there are such tables is said.

use std::collections::HashSet;
use std::io;

use rustix::net::netlink;

use crate::message::{Request, attribute, attributes, flag, text};
use crate::socket::Socket;

/// linux/netfilter/nfnetlink.h, nf_tables.h.
const SUBSYSTEM: u16 = 10 << 8;
const GET_CHAIN: u16 = SUBSYSTEM | 4;
const NEW_CHAIN: u16 = SUBSYSTEM | 3;
const GET_RULE: u16 = SUBSYSTEM | 7;
const NEW_RULE: u16 = SUBSYSTEM | 6;
/// `struct nfgenmsg`.
const GENERIC_BYTES: usize = 4;
/// What is found beyond is not named.
const FINDINGS_MAX: usize = 16;

/// `NFTA_*`.
const TABLE: u16 = 1;
const RULE_CHAIN: u16 = 2;
const RULE_HANDLE: u16 = 3;
const RULE_EXPRESSIONS: u16 = 4;
const CHAIN_NAME: u16 = 3;
const CHAIN_HOOK: u16 = 4;
const CHAIN_POLICY: u16 = 5;
const HOOK_NUMBER: u16 = 1;
const EXPRESSION_NAME: u16 = 1;
const EXPRESSION_DATA: u16 = 2;
const IMMEDIATE_DATA: u16 = 2;
const DATA_VERDICT: u16 = 2;
const VERDICT_CODE: u16 = 1;
const VERDICT_CHAIN: u16 = 2;
const LOOKUP_REGISTER: u16 = 3;
const TARGET_NAME: u16 = 1;
const NF_DROP: u32 = 0;
const VERDICT_REGISTER: u32 = 0;

/// Families of tables and their names, as nft(8) writes them.
const FAMILIES: [(u8, &str); 3] = [(1, "inet"), (2, "ip"), (10, "ip6")];
/// Numbers of the hooks that a host's own packets pass.
const HOOKS: [u32; 4] = [0, 1, 3, 4];

/// A chain's table (with its family) and name.
type ChainName = (String, String);

#[derive(Debug)]
struct Chain {
    name: ChainName,
    /// A host's own packets come here of themselves.
    is_hooked: bool,
    drops_by_default: bool,
}

#[derive(Debug)]
struct Rule {
    chain: ChainName,
    handle: u64,
    /// What in it can drop.
    drops_by: Option<&'static str>,
    leads_to: Vec<String>,
}

/// Each rule that could drop packets of this host itself, in words.
///
/// # Errors
/// The kernel does not say; reading needs CAP_NET_ADMIN.
pub fn rules_that_drop() -> io::Result<Vec<String>> {
    let (mut chains, mut rules) = (Vec::new(), Vec::new());
    dump(GET_CHAIN, &mut |kind, body| {
        if kind == NEW_CHAIN {
            chains.extend(chain(body));
        }
    })?;
    dump(GET_RULE, &mut |kind, body| {
        if kind == NEW_RULE {
            rules.extend(rule(body));
        }
    })?;
    let mut found = judge(&chains, &rules);
    for (list, tool) in [
        ("/proc/net/ip_tables_names", "iptables-legacy"),
        ("/proc/net/ip6_tables_names", "ip6tables-legacy"),
    ] {
        let tables = std::fs::read_to_string(list).unwrap_or_default();
        let relevant = tables.lines().filter(|table| *table != "nat");
        found.extend(relevant.map(|table| format!("table {table} of {tool}, which is not read")));
    }
    found.truncate(FINDINGS_MAX);
    Ok(found)
}

fn judge(chains: &[Chain], rules: &[Rule]) -> Vec<String> {
    let hooked = chains.iter().filter(|chain| chain.is_hooked);
    let mut found: Vec<String> = hooked
        .clone()
        .filter(|chain| chain.drops_by_default)
        .map(|chain| format!("{}: policy drop", named(&chain.name)))
        .collect();
    let mut reached: HashSet<&ChainName> = HashSet::new();
    let mut open: Vec<ChainName> = hooked.map(|chain| chain.name.clone()).collect();
    while let Some(name) = open.pop() {
        let Some(chain) = chains.iter().find(|chain| chain.name == name) else {
            continue;
        };
        if !reached.insert(&chain.name) {
            continue;
        }
        for rule in rules.iter().filter(|rule| rule.chain == name) {
            if let Some(what) = rule.drops_by {
                found.push(format!("{} handle {}: {what}", named(&name), rule.handle));
            }
            let next = rule.leads_to.iter();
            open.extend(next.map(|chain| (name.0.clone(), chain.clone())));
        }
    }
    found
}

fn named((table, chain): &ChainName) -> String {
    format!("table {table} chain {chain}")
}

/// Hands every message of a dump to `sink`: its kind and what follows its header.
fn dump(kind: u16, sink: &mut dyn FnMut(u16, &[u8])) -> io::Result<()> {
    let mut socket = match Socket::open(Some(netlink::NETFILTER)) {
        // A kernel without any packet filter.
        Err(rustix::io::Errno::PROTONOSUPPORT) => return Ok(()),
        made => made?,
    };
    // Family 0: of all.
    let request = Request::new(kind, flag::DUMP, &[0; GENERIC_BYTES]);
    match socket.ask(request, sink) {
        Err(error)
            if matches!(
                error.raw_os_error(),
                // A kernel without nf_tables.
                Some(libc::EINVAL | libc::EOPNOTSUPP | libc::ENOENT)
            ) =>
        {
            Ok(())
        }
        asked => asked,
    }
}

fn number(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|bytes| u32::from_be_bytes(*bytes))
}

/// The table with its family, and the rest of a message; `None`: of another family.
fn of_table(body: &[u8]) -> Option<(String, &[u8])> {
    let family = *body.first()?;
    let (_, family) = FAMILIES.iter().find(|(number, _)| *number == family)?;
    let rest = body.get(GENERIC_BYTES..)?;
    let table = attribute(rest, TABLE).map(text)?;
    Some((format!("{family} {table}"), rest))
}

fn chain(body: &[u8]) -> Option<Chain> {
    let (table, rest) = of_table(body)?;
    let hook = attribute(rest, CHAIN_HOOK).and_then(|hook| attribute(hook, HOOK_NUMBER));
    Some(Chain {
        name: (table, attribute(rest, CHAIN_NAME).map(text)?),
        is_hooked: hook
            .and_then(number)
            .is_some_and(|hook| HOOKS.contains(&hook)),
        drops_by_default: attribute(rest, CHAIN_POLICY).and_then(number) == Some(NF_DROP),
    })
}

fn rule(body: &[u8]) -> Option<Rule> {
    let (table, rest) = of_table(body)?;
    let handle = attribute(rest, RULE_HANDLE).and_then(|handle| handle.first_chunk());
    let mut rule = Rule {
        chain: (table, attribute(rest, RULE_CHAIN).map(text)?),
        handle: handle.map_or(0, |handle| u64::from_be_bytes(*handle)),
        drops_by: None,
        leads_to: Vec::new(),
    };
    let expressions = attribute(rest, RULE_EXPRESSIONS).unwrap_or_default();
    for (_, expression) in attributes(expressions) {
        let name = attribute(expression, EXPRESSION_NAME).map(text);
        let data = attribute(expression, EXPRESSION_DATA).unwrap_or_default();
        let drops_by = match name.as_deref() {
            Some("reject") => Some("reject"),
            Some("queue") => Some("queue"),
            Some("immediate") => follow_verdict(data, &mut rule.leads_to),
            // A map from what a packet is to what becomes of it.
            Some("lookup") => attribute(data, LOOKUP_REGISTER)
                .and_then(number)
                .filter(|register| *register == VERDICT_REGISTER)
                .map(|_| "a map of verdicts"),
            Some("target") => match attribute(data, TARGET_NAME).map(text).as_deref() {
                Some("REJECT") => Some("REJECT"),
                Some("NFQUEUE") => Some("NFQUEUE"),
                _ => None,
            },
            _ => None,
        };
        rule.drops_by = rule.drops_by.or(drops_by);
    }
    Some(rule)
}

/// What an immediate expression says of a packet, and the chain that it leads to.
fn follow_verdict(data: &[u8], leads_to: &mut Vec<String>) -> Option<&'static str> {
    let verdict = attribute(attribute(data, IMMEDIATE_DATA)?, DATA_VERDICT)?;
    leads_to.extend(attribute(verdict, VERDICT_CHAIN).map(text));
    let code = attribute(verdict, VERDICT_CODE).and_then(number)?;
    (code == NF_DROP).then_some("drop")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nla(kind: u16, value: &[u8]) -> Vec<u8> {
        let len = u16::try_from(4 + value.len()).unwrap();
        let mut bytes = [len.to_ne_bytes(), kind.to_ne_bytes()].concat();
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn be(number: u32) -> [u8; 4] {
        number.to_be_bytes()
    }

    fn chain_bytes(name: &str, hook: Option<u32>, policy: Option<u32>) -> Vec<u8> {
        let mut bytes = vec![1, 0, 0, 0];
        bytes.extend(nla(TABLE, b"filter\0"));
        bytes.extend(nla(CHAIN_NAME, format!("{name}\0").as_bytes()));
        if let Some(hook) = hook {
            bytes.extend(nla(CHAIN_HOOK | 0x8000, &nla(HOOK_NUMBER, &be(hook))));
        }
        if let Some(policy) = policy {
            bytes.extend(nla(CHAIN_POLICY, &be(policy)));
        }
        bytes
    }

    fn rule_bytes(chain: &str, handle: u64, expressions: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = vec![1, 0, 0, 0];
        bytes.extend(nla(TABLE, b"filter\0"));
        bytes.extend(nla(RULE_CHAIN, format!("{chain}\0").as_bytes()));
        bytes.extend(nla(RULE_HANDLE, &handle.to_be_bytes()));
        let list: Vec<u8> = expressions.iter().flat_map(|one| nla(1, one)).collect();
        bytes.extend(nla(RULE_EXPRESSIONS, &list));
        bytes
    }

    fn expression(name: &str, data: &[u8]) -> Vec<u8> {
        let name = nla(EXPRESSION_NAME, format!("{name}\0").as_bytes());
        [name, nla(EXPRESSION_DATA, data)].concat()
    }

    fn verdict(code: u32, chain: Option<&str>) -> Vec<u8> {
        let mut inner = nla(VERDICT_CODE, &be(code));
        inner.extend(chain.map_or_else(Vec::new, |chain| nla(VERDICT_CHAIN, chain.as_bytes())));
        expression(
            "immediate",
            &nla(IMMEDIATE_DATA, &nla(DATA_VERDICT, &inner)),
        )
    }

    #[test]
    fn rules_that_drop_are_named_where_own_packets_pass() {
        const JUMP: u32 = u32::MAX - 2;
        let chains: Vec<Chain> = [
            chain_bytes("input", Some(1), Some(1)),
            chain_bytes("forward", Some(2), Some(0)),
            chain_bytes("output", Some(3), Some(0)),
            chain_bytes("helper", None, None),
            chain_bytes("unused", None, None),
        ]
        .iter()
        .map(|bytes| chain(bytes).unwrap())
        .collect();
        let rules: Vec<Rule> = [
            rule_bytes("input", 4, &[expression("meta", &[]), verdict(1, None)]),
            rule_bytes("input", 5, &[expression("cmp", &[]), verdict(0, None)]),
            rule_bytes("input", 6, &[verdict(JUMP, Some("helper"))]),
            rule_bytes("helper", 7, &[expression("reject", &[])]),
            rule_bytes("helper", 8, &[verdict(JUMP, Some("helper"))]),
            rule_bytes("unused", 9, &[verdict(0, None)]),
            rule_bytes("forward", 10, &[verdict(0, None)]),
            rule_bytes(
                "input",
                11,
                &[expression("lookup", &nla(LOOKUP_REGISTER, &be(0)))],
            ),
            rule_bytes(
                "input",
                12,
                &[expression("lookup", &nla(LOOKUP_REGISTER, &be(8)))],
            ),
        ]
        .iter()
        .map(|bytes| rule(bytes).unwrap())
        .collect();
        let mut found = judge(&chains, &rules);
        found.sort();
        assert_eq!(
            found,
            [
                "table inet filter chain helper handle 7: reject",
                "table inet filter chain input handle 11: a map of verdicts",
                "table inet filter chain input handle 5: drop",
                "table inet filter chain output: policy drop",
            ]
        );
    }

    #[test]
    fn what_is_cut_short_is_no_rule_and_no_panic() {
        let whole = rule_bytes("input", 5, &[verdict(0, None)]);
        for len in 0..whole.len() {
            let _ = (rule(&whole[..len]), chain(&whole[..len]));
        }
        let arp = [3, 0, 0, 0];
        assert!(chain(&arp).is_none() && rule(&arp).is_none());
    }

    #[test]
    fn this_hosts_own_rules_can_be_asked_for() {
        match rules_that_drop() {
            Ok(_) => {}
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EPERM)),
        }
    }
}
