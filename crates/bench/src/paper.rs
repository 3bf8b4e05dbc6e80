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

/// By the beginning of a row's name.
pub fn of(row: &str) -> Option<Published> {
    type Question = fn() -> Published;
    const QUESTIONS: [(&str, Question); 13] = [
        ("inline both ends (AF_PACKET)", burst),
        (
            "sockperf inline, kernel sleeping, idle latency untouched",
            trading,
        ),
        ("program's CPU per send(2) of 1 KiB, engine", || {
            call("send")
        }),
        ("program's CPU per recv(2) of 1 KiB, engine", || {
            call("recv")
        }),
        ("socket create + close, never connected", create),
        ("tick to order, trader inline, kernel sleeping", trading),
        ("response, ", clients),
        ("response beside other load", clock),
        ("still answered at three times", livelock),
        ("sendfile by read/write, fixed", || loops("fixed")),
        ("sendfile by read/write, advancing", || loops("advancing")),
        ("shunt send --hash xxh3, stored", stored),
        ("Shunt to Shunt over veth", one_core),
    ];
    let (_, question) = QUESTIONS.iter().find(|(name, _)| row.starts_with(name))?;
    Some(question())
}

fn published(
    facts: &Facts,
    [baseline, ours]: [f64; 2],
    (unit, id): (&'static str, &str),
    differs: &str,
) -> Published {
    let conditions = facts.conditions(id);
    let between = if differs.is_empty() || conditions.is_empty() {
        ""
    } else {
        "; "
    };
    Published {
        baseline,
        ours,
        unit,
        source: facts.source(id),
        conditions: format!("{differs}{between}{conditions}"),
    }
}

fn burst() -> Published {
    let facts = Facts::datacenter_latency();
    let both = [facts.number("dc.nodpdk"), facts.field("dc.t2", "64") / 1e3];
    published(
        &facts,
        both,
        ("µs", "dc.t2"),
        "one way, DPDK by the kernel's sockets, frames and no TCP",
    )
}

fn trading() -> Published {
    let facts = Facts::trading_nic();
    let both = ["tn.rtt.realtek.cat6", "tn.rtt.solarflare.cat6"].map(|id| facts.number(id));
    published(
        &facts,
        both,
        ("µs", "tn.rtt.solarflare.cat6"),
        "a 10 Gbit/s card with kernel bypass by a 1 Gbit/s card",
    )
}

fn call(name: &str) -> Published {
    let facts = Facts::toe();
    let id = format!("toe.{name}.topl");
    let both = [facts.number(&format!("toe.{name}.inet")), facts.number(&id)];
    published(&facts, both, ("µs", &id), "kernel time of the call")
}

fn create() -> Published {
    let facts = Facts::toe();
    let sum = |ids: [&str; 2]| ids.iter().map(|id| facts.number(id)).sum();
    let both = [
        sum(["toe.create.inet", "toe.delete.inet"]),
        sum(["toe.create.toe", "toe.delete.toe"]),
    ];
    published(&facts, both, ("µs", "toe.create.toe"), "create and delete")
}

fn clients() -> Published {
    shorter("nn.fig8.vs.kernel", "1 to 9 clients")
}

fn clock() -> Published {
    shorter(
        "nn.fig9.vs.kernel",
        "over the host's clock, beside a computation",
    )
}

/// The range by which the card's responses are shorter than the kernel's.
fn shorter(id: &str, over: &str) -> Published {
    let facts = Facts::nic_net();
    let (least, most) = facts.range(id);
    let differs = format!(
        "a stack on the card answers {least} to {most} % sooner than the kernel's, {over}; simulated"
    );
    published(&facts, [0.0, 0.0], ("", id), &differs)
}

fn livelock() -> Published {
    let facts = Facts::nic_net();
    let clients = facts.number("nn.fig8.livelock");
    let differs = format!(
        "the user-level stack answers nothing from {clients} clients on, the kernel's and the card's do; simulated"
    );
    published(&facts, [0.0, 0.0], ("", "nn.fig8.livelock"), &differs)
}

fn loops(offset: &str) -> Published {
    let facts = Facts::zero_copy();
    let id = format!("zc.t2.zc.{offset}");
    let both = [
        facts.number(&format!("zc.t2.rw.{offset}")),
        facts.number(&id),
    ];
    published(&facts, both, ("Gbit/s", &id), "sendfile by read and write")
}

fn stored() -> Published {
    let facts = Facts::zero_copy();
    published(
        &facts,
        [0.0, facts.number("zc.10g.store.rate")],
        ("Gbit/s", "zc.10g.store.rate"),
        "over a wire, 18 disks",
    )
}

fn one_core() -> Published {
    let facts = Facts::zero_copy();
    published(
        &facts,
        [0.0, facts.number("zc.limit.core")],
        ("Gbit/s", "zc.limit.core"),
        "most that one core reaches",
    )
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
    }
}
