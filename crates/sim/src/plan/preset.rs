//! Cost presets: what each stack costs, and for each value where it is from.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Client, PlanError, Trial};

/// Where a value is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// On the machine that the preset names.
    Measured,
    /// Printed by the source that `how` names.
    Literature,
    /// Nobody measured it.
    Assumed,
}

/// A cost with its source.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Value {
    /// The cost in nanoseconds.
    pub value: f64,
    /// Where it is from.
    pub source: Source,
    /// How it was measured, who printed it, or why it is assumed.
    pub how: String,
    /// Largest less smallest of the samples as a part of the median, where measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<f64>,
}

/// Where a stack runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Where {
    /// On the program's processors.
    Host,
    /// On processors of the host that do nothing else.
    Engine,
    /// On the NIC.
    Nic,
}

/// What a request costs on one stack.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Costs {
    /// Where it runs.
    #[serde(rename = "where")]
    pub place: Where,
    /// It never sleeps: its processors are always busy.
    #[serde(default)]
    pub polls: bool,
    /// Host: receiving a request.
    pub receive_ns: Value,
    /// Host: sending a response.
    pub send_ns: Value,
    /// Host: each packet.
    pub packet_ns: Value,
    /// Host: each byte.
    pub byte_ns: Value,
    /// Host: each connection.
    pub connection_ns: Value,
    /// Host: waking a thread.
    pub wake_ns: Value,
    /// Engine or NIC: each request; a NIC's at 1 GHz.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_ns: Option<Value>,
    /// Engine or NIC: each byte.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_byte_ns: Option<Value>,
    /// Engine or NIC: each connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_connection_ns: Option<Value>,
    /// Host: what a request takes less where the answers of a wake-up are written together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub together_saves_ns: Option<Value>,
    /// Host: each time that the program comes back from waiting, however many requests it then takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_ns: Option<Value>,
    /// Host: more for each time that it had slept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sleep_ns: Option<Value>,
    /// What it costs a client on the same machine, or an engine, to wake the program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rouse_ns: Option<Value>,
    /// What a lone request waits for besides work: wake-ups, interrupts, processors that leave idle. It
    /// costs nobody time and counts only where clients wait for answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ns: Option<Value>,
    /// A client on the same machine: each request with its answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_ns: Option<Value>,
    /// Such a client: each byte of both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_byte_ns: Option<Value>,
    /// Such a client: each time that it comes back from waiting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_turn_ns: Option<Value>,
    /// Such a client: more for each time that it had slept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_sleep_ns: Option<Value>,
    /// What it costs the server to wake such a client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_rouse_ns: Option<Value>,
    /// Clients that wait for answers: what trials said beside these costs, by their number of clients.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trials: Vec<Trial>,
}

impl Costs {
    /// The values by name.
    pub fn values(&self) -> Vec<(&'static str, &Value)> {
        let optional = [
            ("device_ns", &self.device_ns),
            ("device_byte_ns", &self.device_byte_ns),
            ("device_connection_ns", &self.device_connection_ns),
            ("together_saves_ns", &self.together_saves_ns),
            ("latency_ns", &self.latency_ns),
            ("turn_ns", &self.turn_ns),
            ("sleep_ns", &self.sleep_ns),
            ("rouse_ns", &self.rouse_ns),
            ("client_ns", &self.client_ns),
            ("client_byte_ns", &self.client_byte_ns),
            ("client_turn_ns", &self.client_turn_ns),
            ("client_sleep_ns", &self.client_sleep_ns),
            ("client_rouse_ns", &self.client_rouse_ns),
        ];
        [
            ("receive_ns", &self.receive_ns),
            ("send_ns", &self.send_ns),
            ("packet_ns", &self.packet_ns),
            ("byte_ns", &self.byte_ns),
            ("connection_ns", &self.connection_ns),
            ("wake_ns", &self.wake_ns),
        ]
        .into_iter()
        .chain(
            optional
                .into_iter()
                .filter_map(|(name, value)| Some((name, value.as_ref()?))),
        )
        .collect()
    }

    /// Gives a value, also one that was not there; an unknown name changes nothing.
    pub fn set(&mut self, name: &str, value: Value) {
        if let Some(place) = self.optional_mut(name) {
            *place = Some(value);
        } else if let Some(place) = self.value_mut(name) {
            *place = value;
        }
    }

    /// A value to change.
    pub fn value_mut(&mut self, name: &str) -> Option<&mut Value> {
        match name {
            "receive_ns" => Some(&mut self.receive_ns),
            "send_ns" => Some(&mut self.send_ns),
            "packet_ns" => Some(&mut self.packet_ns),
            "byte_ns" => Some(&mut self.byte_ns),
            "connection_ns" => Some(&mut self.connection_ns),
            "wake_ns" => Some(&mut self.wake_ns),
            _ => self.optional_mut(name)?.as_mut(),
        }
    }

    fn optional_mut(&mut self, name: &str) -> Option<&mut Option<Value>> {
        Some(match name {
            "device_ns" => &mut self.device_ns,
            "device_byte_ns" => &mut self.device_byte_ns,
            "device_connection_ns" => &mut self.device_connection_ns,
            "together_saves_ns" => &mut self.together_saves_ns,
            "latency_ns" => &mut self.latency_ns,
            "turn_ns" => &mut self.turn_ns,
            "sleep_ns" => &mut self.sleep_ns,
            "rouse_ns" => &mut self.rouse_ns,
            "client_ns" => &mut self.client_ns,
            "client_byte_ns" => &mut self.client_byte_ns,
            "client_turn_ns" => &mut self.client_turn_ns,
            "client_sleep_ns" => &mut self.client_sleep_ns,
            "client_rouse_ns" => &mut self.client_rouse_ns,
            _ => return None,
        })
    }

    /// What clients on the same machine cost; none where the preset does not know.
    pub fn client(&self) -> Option<Client> {
        let value = |v: &Option<Value>| v.as_ref().map_or(0.0, |v| v.value);
        Some(Client {
            request_ns: self.client_ns.as_ref()?.value,
            byte_ns: value(&self.client_byte_ns),
            turn_ns: value(&self.client_turn_ns),
            sleep_ns: value(&self.client_sleep_ns),
            rouse_ns: value(&self.client_rouse_ns),
            ..Client::default()
        })
    }
}

/// The stacks of one machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Preset {
    /// The machine on which `measured` values were measured.
    pub machine: String,
    /// The stacks by name.
    #[serde(flatten)]
    pub stacks: BTreeMap<String, Costs>,
}

impl Preset {
    /// The one that comes with the program.
    pub fn shipped() -> Self {
        Self::parse(Self::shipped_text())
            .expect("invariant: the shipped preset parses, tests read it")
    }

    /// Its text.
    pub(super) fn shipped_text() -> &'static str {
        include_str!("../../presets/stacks.toml")
    }

    /// One for tests, whose results are known: few of its values were measured.
    #[cfg(test)]
    pub(super) fn of_tests() -> Self {
        Self::parse(include_str!("tests/costs.toml")).expect("invariant: it parses")
    }

    /// Reads a preset.
    pub fn parse(text: &str) -> Result<Self, PlanError> {
        let preset: Self = toml::from_str(text)
            .map_err(|error| in_stack(text).unwrap_or(PlanError::Syntax(error.to_string())))?;
        for (name, costs) in &preset.stacks {
            for (key, value) in costs.values() {
                if !value.value.is_finite() || value.value < 0.0 {
                    let key = format!("{name}.{key}");
                    let error = PlanError::value(&key, format!("cannot be {}", value.value));
                    return Err(error.in_text(text));
                }
            }
            let mut trials = costs.trials.iter();
            let is_number = |trial: &Trial| trial.more_ns.is_finite() && trial.off >= 0.0;
            if !trials.all(is_number) || !costs.trials.is_sorted_by_key(|trial| trial.clients) {
                let key = format!("{name}.trials");
                let what =
                    "are in the order of their clients, with numbers; `off` is not below nothing";
                return Err(PlanError::value(&key, what).in_text(text));
            }
            if costs.place != Where::Host && costs.device_ns.is_none() {
                let key = format!("{name}.device_ns");
                let error = PlanError::value(&key, "is missing: its stack runs elsewhere");
                return Err(error.in_text(text));
            }
        }
        Ok(preset)
    }
}

/// The first fault within a stack: of a table of tables the parser knows what is wrong, and not where.
fn in_stack(text: &str) -> Option<PlanError> {
    let tables: toml::Table = toml::from_str(text).ok()?;
    let mut stacks = tables.into_iter().filter(|(name, _)| name != "machine");
    stacks.find_map(|(name, value)| {
        let error = Costs::deserialize(value).err()?;
        Some(PlanError::value(&name, error.message()).in_text(text))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_or_unknown_is_said_with_the_line_of_its_stack() {
        let said = |text: &str| Preset::parse(text).unwrap_err().to_string();
        let whole = Preset::shipped_text();
        let without = |key: &str| {
            let mut lines = whole.lines().skip_while(|line| *line != "[engine]");
            let line = lines.find(|line| line.starts_with(key)).unwrap();
            whole.replacen(&format!("{line}\n"), "", 1)
        };
        let engine = 1 + whole.lines().position(|line| line == "[engine]").unwrap();
        for key in ["send_ns", "device_ns"] {
            let text = said(&without(&format!("{key} ")));
            assert!(
                text.starts_with(&format!("line {engine}: engine")),
                "{text}"
            );
            assert!(text.contains(key) && text.contains("missing"), "{text}");
        }
        let text = said(&whole.replacen("[engine]\n", "[engine]\nmoon = 1\n", 1));
        assert!(
            text.contains(&format!("line {engine}: engine: unknown field `moon`")),
            "{text}"
        );
        assert!(said("machine = \"m\"\n[kernel\n").contains("line 2"));
        assert!(said("[kernel]\nwhere = 3\n").contains("line 1: kernel"));
    }
}
