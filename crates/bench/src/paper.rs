//! What a paper measured of the question that a row asks. No figure of a paper stands here: all are facts of `sim`'s files.

use serde::Serialize;
use sim::paper::Facts;

/// Two figures of a paper.
#[derive(Debug, Clone, Serialize)]
pub struct Published {
    /// The usual way.
    pub baseline: f64,
    /// The paper's own.
    pub ours: f64,
    pub unit: &'static str,
    /// Which paper, and where.
    pub source: String,
    /// What differs from the row, and the paper's conditions.
    pub conditions: String,
}

impl Published {
    /// The paper's own by the usual way.
    pub fn ratio(&self) -> Option<f64> {
        (self.baseline > 0.0).then(|| self.ours / self.baseline)
    }

    pub fn ratio_text(&self) -> String {
        self.ratio()
            .map_or("-".to_owned(), |ratio| format!("{ratio:.2}"))
    }
}

/// All that the `trading-nic` paper reports.
pub fn of_trading() -> Vec<String> {
    Facts::trading_nic().lines()
}

/// The questions of rows: the beginning of a row's name, the paper, facts of the usual way and of its own (with `+` between those that are
/// added, `#` before a field, and `/` before a divisor), their unit, the fact that is cited, and what differs from the row, with facts
/// in braces.
const QUESTIONS: &str = "
inline both ends (AF_PACKET) | datacenter-latency | dc.nodpdk | dc.t2#64/1000 | µs | dc.t2 | one way, DPDK by the kernel's sockets, frames and no TCP
sockperf inline, kernel sleeping, idle latency untouched | trading-nic | tn.rtt.realtek.cat6 | tn.rtt.solarflare.cat6 | µs | tn.rtt.solarflare.cat6 | a 10 Gbit/s card with kernel bypass by a 1 Gbit/s card
program's CPU per send(2) of 1 KiB, engine | toe | toe.send.inet | toe.send.topl | µs | toe.send.topl | kernel time of the call
program's CPU per recv(2) of 1 KiB, engine | toe | toe.recv.inet | toe.recv.topl | µs | toe.recv.topl | kernel time of the call
socket create + close, never connected | toe | toe.create.inet+toe.delete.inet | toe.create.toe+toe.delete.toe | µs | toe.create.toe | create and delete
tick to order, trader inline, kernel sleeping | trading-nic | tn.rtt.realtek.cat6 | tn.rtt.solarflare.cat6 | µs | tn.rtt.solarflare.cat6 | a 10 Gbit/s card with kernel bypass by a 1 Gbit/s card
response,  | nic-net | | | | nn.fig8.vs.kernel | a stack on the card answers {nn.fig8.vs.kernel} % sooner than the kernel's, 1 to 9 clients; simulated
response beside other load | nic-net | | | | nn.fig9.vs.kernel | a stack on the card answers {nn.fig9.vs.kernel} % sooner than the kernel's, over the host's clock, beside a computation; simulated
still answered at three times | nic-net | | | | nn.fig8.livelock | the user-level stack answers nothing from {nn.fig8.livelock} clients on, the kernel's and the card's do; simulated
sendfile by read/write, fixed | zero-copy | zc.t2.rw.fixed | zc.t2.zc.fixed | Gbit/s | zc.t2.zc.fixed | sendfile by read and write
sendfile by read/write, advancing | zero-copy | zc.t2.rw.advancing | zc.t2.zc.advancing | Gbit/s | zc.t2.zc.advancing | sendfile by read and write
shunt send --hash xxh3, stored | zero-copy | | zc.10g.store.rate | Gbit/s | zc.10g.store.rate | over a wire, 18 disks
Shunt to Shunt over veth | zero-copy | | zc.limit.core | Gbit/s | zc.limit.core | most that one core reaches
";

/// By the beginning of a row's name.
pub fn of(row: &str) -> Option<Published> {
    let [_, paper, baseline, ours, unit, id, differs] =
        output::columns::<7>(QUESTIONS).find(|[name, ..]| row.starts_with(name))?;
    let facts = match paper {
        "datacenter-latency" => Facts::datacenter_latency(),
        "trading-nic" => Facts::trading_nic(),
        "toe" => Facts::toe(),
        "nic-net" => Facts::nic_net(),
        _ => Facts::zero_copy(),
    };
    let differs = with_facts(&facts, differs);
    let conditions = facts.conditions(id);
    let between = if conditions.is_empty() { "" } else { "; " };
    Some(Published {
        baseline: sum(&facts, baseline),
        ours: sum(&facts, ours),
        unit,
        source: facts.source(id),
        conditions: format!("{differs}{between}{conditions}"),
    })
}

/// The sum of some facts.
fn sum(facts: &Facts, terms: &str) -> f64 {
    let term = |term: &str| {
        let (fact, divisor) = term.split_once('/').unwrap_or((term, "1"));
        let value = match fact.split_once('#') {
            Some((fact, field)) => facts.field(fact, field),
            None => facts.number(fact),
        };
        value / divisor.parse().unwrap_or(f64::NAN)
    };
    let terms = terms.split('+').filter(|term| !term.is_empty());
    // A sum of nothing would be -0.
    terms.map(term).fold(0.0, |sum, value| sum + value)
}

/// A text with the fact that stands in braces in it; a range by its ends.
fn with_facts(facts: &Facts, text: &str) -> String {
    let parts = text.split_once('{').and_then(|(before, rest)| {
        let (fact, after) = rest.split_once('}')?;
        Some((before, fact, after))
    });
    let Some((before, fact, after)) = parts else {
        return text.to_owned();
    };
    let value = match facts.numbers(fact)[..] {
        [least, .., most] => format!("{least} to {most}"),
        _ => facts.number(fact).to_string(),
    };
    format!("{before}{value}{after}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_ratios_are_those_of_their_figures() {
        let ratio = |row: &str| of(row).unwrap().ratio().unwrap();
        for (row, expected) in [
            (
                "inline both ends (AF_PACKET), kernel spinning, p50",
                3.568 / 25.0,
            ),
            (
                "sockperf inline, kernel sleeping, idle latency untouched, p50",
                175.0 / 393.0,
            ),
            ("program's CPU per send(2) of 1 KiB, engine", 46.2 / 83.2),
            (
                "socket create + close, never connected, inline",
                102.1 / 19.9,
            ),
            ("sendfile by read/write, advancing offset", 51.5 / 24.7),
        ] {
            assert!((ratio(row) - expected).abs() < 1e-6, "{row}");
        }
        let stored = of("shunt send --hash xxh3, stored and synced").unwrap();
        assert_eq!((stored.ratio(), stored.ours), (None, 13.1));
        assert!(
            of("Shunt to Shunt over veth")
                .unwrap()
                .source
                .contains("zero-copy")
        );
        assert!(
            of("still answered at three times what it can")
                .unwrap()
                .conditions
                .contains('7')
        );
        assert!(of("  p99").is_none());
        for [name, ..] in output::columns::<7>(QUESTIONS) {
            assert!(!of(name).unwrap().source.is_empty(), "{name}");
        }
    }
}
