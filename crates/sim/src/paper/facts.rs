//! What the papers report, from the files beside the crate: no figure of a paper stands in the code.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Value;

#[derive(Debug, Deserialize)]
struct File {
    fact: Vec<Fact>,
}

#[derive(Debug, Deserialize)]
struct Fact {
    id: String,
    seed: String,
    r#where: String,
    what: String,
    value: Value,
    #[serde(default)]
    unit: String,
    #[serde(default)]
    conditions: String,
}

/// The facts of one paper.
#[derive(Debug)]
pub struct Facts(BTreeMap<String, Fact>);

impl Facts {
    /// Those of the `nic-net` paper.
    pub fn nic_net() -> Self {
        Self::of(include_str!("../../papers/nic-net.toml"))
    }

    /// Those of the `datacenter-latency` paper.
    pub fn datacenter_latency() -> Self {
        Self::of(include_str!("../../papers/datacenter-latency.toml"))
    }

    /// Those of the `toe` paper.
    pub fn toe() -> Self {
        Self::of(include_str!("../../papers/toe.toml"))
    }

    /// Those of the `zero-copy` paper.
    pub fn zero_copy() -> Self {
        Self::of(include_str!("../../papers/zero-copy.toml"))
    }

    /// Those of the `trading-nic` paper.
    pub fn trading_nic() -> Self {
        Self::of(include_str!("../../papers/trading-nic.toml"))
    }

    fn of(text: &str) -> Self {
        let file: File = toml::from_str(text).expect("invariant: the facts parse, tests read them");
        let facts = file.fact.into_iter();
        Self(facts.map(|fact| (fact.id.clone(), fact)).collect())
    }

    fn fact(&self, id: &str) -> &Fact {
        self.0
            .get(id)
            .expect("invariant: only facts of the file are asked for, tests read them all")
    }

    /// Every fact as a line for people, in the order of its names.
    pub fn lines(&self) -> Vec<String> {
        let line = |fact: &Fact| {
            let conditions = match fact.conditions.as_str() {
                "" => String::new(),
                conditions => format!("; {conditions}"),
            };
            let (seed, place) = (&fact.seed, &fact.r#where);
            format!(
                "{seed}, {place}: {}: {} {}{conditions}",
                fact.what,
                words(&fact.value),
                fact.unit
            )
        };
        self.0.values().map(line).collect()
    }

    fn value(&self, id: &str) -> &Value {
        &self.fact(id).value
    }

    /// The paper that reports a fact, and where in it.
    pub fn source(&self, id: &str) -> String {
        let fact = self.fact(id);
        format!("{}, {}", fact.seed, fact.r#where)
    }

    /// Under which conditions; empty where the paper gives none.
    pub fn conditions(&self, id: &str) -> &str {
        &self.fact(id).conditions
    }

    /// A fact that is one number.
    pub fn number(&self, id: &str) -> f64 {
        number(self.value(id))
    }

    /// A fact that is a list of numbers.
    pub fn numbers(&self, id: &str) -> Vec<f64> {
        let list = self.value(id).as_array();
        list.into_iter().flatten().map(number).collect()
    }

    /// A fact that is a range.
    pub fn range(&self, id: &str) -> (f64, f64) {
        let ends = self.numbers(id);
        (
            ends.first().copied().unwrap_or(f64::NAN),
            ends.last().copied().unwrap_or(f64::NAN),
        )
    }

    /// A number inside a fact that is a table.
    pub fn field(&self, id: &str, name: &str) -> f64 {
        self.value(id).get(name).map_or(f64::NAN, number)
    }
}

/// A value for people.
fn words(value: &Value) -> String {
    let list = |parts: Vec<String>| parts.join(", ");
    match value {
        Value::String(text) => text.clone(),
        Value::Integer(whole) => whole.to_string(),
        Value::Float(number) => number.to_string(),
        Value::Boolean(is_so) => if *is_so { "yes" } else { "no" }.to_owned(),
        Value::Array(values) => list(values.iter().map(words).collect()),
        Value::Table(of) => {
            let named = of.iter();
            list(
                named
                    .map(|(name, one)| format!("{name} {}", words(one)))
                    .collect(),
            )
        }
        Value::Datetime(_) => String::new(),
    }
}

fn number(value: &Value) -> f64 {
    let whole = value.as_integer().map(|whole| whole as f64);
    value.as_float().or(whole).unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Cost;

    #[test]
    fn every_fact_is_a_line_with_its_place() {
        let lines = Facts::trading_nic().lines();
        assert_eq!(lines.len(), 11);
        let one = lines
            .iter()
            .find(|line| line.contains("multimode fibre"))
            .unwrap();
        assert!(
            one.contains("131 us") && one.contains("trading-nic"),
            "{one}"
        );
    }

    #[test]
    fn the_default_costs_are_table_1() {
        let facts = Facts::nic_net();
        let c = Cost::default();
        for (ours, fact) in [
            (c.tx_sock_us, "nn.t1.send.socket"),
            (c.tx_tr_us, "nn.t1.send.transport"),
            (c.tx_net_us, "nn.t1.send.network"),
            (c.tx_link_us, "nn.t1.send.link"),
            (c.rx_sock_us, "nn.t1.recv.socket"),
            (c.rx_tr_us, "nn.t1.recv.transport"),
            (c.rx_net_us, "nn.t1.recv.network"),
            (c.rx_link_us, "nn.t1.recv.link"),
            (c.ex_sock_us, "nn.t1.exec.socket"),
            (c.ex_sys_us, "nn.t1.exec.syscall"),
            (c.ex_phy_us, "nn.t1.exec.physical"),
            (c.reference_mhz, "nn.bench.clock"),
        ] {
            assert!((ours - facts.number(fact)).abs() < 1e-9, "{fact}");
        }
    }
}
