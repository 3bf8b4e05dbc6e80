//! A scenario as the TOML file that would give it: what differs from the defaults.

use serde_json::{Map, Value};
use sim::scenario::Scenario;

/// The file's text. `sim::scenario::parse` of it gives the scenario back.
pub fn to_toml(scenario: &Scenario) -> String {
    let (Ok(Value::Object(all)), Ok(Value::Object(usual))) = (
        serde_json::to_value(scenario),
        serde_json::to_value(Scenario::default()),
    ) else {
        return String::new();
    };
    let mut text = format!("title = {}\n", literal(&all["title"]));
    for (name, value) in &all {
        if let (Value::Object(table), Some(Value::Object(usual))) = (value, usual.get(name)) {
            text += &section(name, table, usual);
        }
    }
    for axis in &scenario.sweep {
        let value = |text: &str| literal(&Value::String(text.to_owned()));
        text += &format!(
            "\n[[sweep]]\nkey = {}\nvalues = {}\n",
            value(&axis.key),
            value(&axis.values)
        );
    }
    text
}

fn section(name: &str, table: &Map<String, Value>, usual: &Map<String, Value>) -> String {
    let changed = table
        .iter()
        .filter(|(key, value)| usual.get(*key) != Some(value) && !value.is_null());
    let lines: String = changed
        .map(|(key, value)| format!("{key} = {}\n", literal(value)))
        .collect();
    if lines.is_empty() {
        lines
    } else {
        format!("\n[{name}]\n{lines}")
    }
}

/// A value as TOML writes it. JSON's form is TOML's too, but for DEL, which TOML wants escaped.
fn literal(value: &Value) -> String {
    value.to_string().replace('\u{7f}', "\\u007f")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use sim::scenario::{Axis, Mode, SweepAxis, parse, with_settings};

    use crate::assets::SCENARIOS;

    #[test]
    fn every_scenario_of_the_repository_comes_back() {
        for shipped in SCENARIOS {
            let scenario = parse(shipped.text).unwrap();
            assert_eq!(
                parse(&to_toml(&scenario)).unwrap(),
                scenario,
                "{}",
                shipped.name
            );
        }
    }

    #[test]
    fn only_what_differs_is_written() {
        let mut scenario = Scenario::default();
        scenario.workload.clients = 6;
        scenario.nic.mode = Mode::Sync;
        scenario.sweep.push(SweepAxis {
            key: "workload.clients".to_owned(),
            values: "1..9".to_owned(),
        });
        let text = to_toml(&scenario);
        assert_eq!(
            text,
            "title = \"\"\n\n[nic]\nmode = \"sync\"\n\n[workload]\nclients = 6\n\n\
             [[sweep]]\nkey = \"workload.clients\"\nvalues = \"1..9\"\n"
        );
        assert!(Axis::parse("workload.clients=1..9").is_ok());
    }

    proptest! {
        #[test]
        fn any_title_and_number_comes_back(
            title in any::<String>(),
            clock in 1e-3..1e12_f64,
            phase in proptest::option::of(0.0..1e9_f64),
            rate in 1e-12..1.0_f64,
        ) {
            let mut scenario = Scenario { title, ..Scenario::default() };
            scenario.host.clock_mhz = clock;
            scenario.host.background_phase_ms = phase;
            scenario.loss.bit_error_rate = rate;
            scenario.network.rates_mbps = vec![clock, 1e20];
            let back = parse(&to_toml(&scenario)).unwrap();
            prop_assert_eq!(&back, &scenario);
            prop_assert_eq!(with_settings(&back, []).unwrap(), scenario);
        }
    }
}
