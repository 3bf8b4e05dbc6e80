//! Cost presets: what each stack costs, and for each value where it is from.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::PlanError;

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
    /// What a lone request waits for besides work: wake-ups, interrupts, processors that leave idle. It
    /// costs nobody time and counts only where clients wait for answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ns: Option<Value>,
}

impl Costs {
    /// The values by name.
    pub fn values(&self) -> Vec<(&'static str, &Value)> {
        let device = [
            ("device_ns", &self.device_ns),
            ("device_byte_ns", &self.device_byte_ns),
            ("device_connection_ns", &self.device_connection_ns),
            ("together_saves_ns", &self.together_saves_ns),
            ("latency_ns", &self.latency_ns),
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
            device
                .into_iter()
                .filter_map(|(name, value)| Some((name, value.as_ref()?))),
        )
        .collect()
    }

    /// Gives a value, also one that was not there; an unknown name changes nothing.
    pub fn set(&mut self, name: &str, value: Value) {
        let place = match name {
            "device_ns" => self.device_ns.get_or_insert_with(|| value.clone()),
            "together_saves_ns" => self.together_saves_ns.get_or_insert_with(|| value.clone()),
            "latency_ns" => self.latency_ns.get_or_insert_with(|| value.clone()),
            _ => match self.value_mut(name) {
                Some(place) => place,
                None => return,
            },
        };
        *place = value;
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
            "device_ns" => self.device_ns.as_mut(),
            "device_byte_ns" => self.device_byte_ns.as_mut(),
            "device_connection_ns" => self.device_connection_ns.as_mut(),
            "together_saves_ns" => self.together_saves_ns.as_mut(),
            "latency_ns" => self.latency_ns.as_mut(),
            _ => None,
        }
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

    /// Reads a preset.
    pub fn parse(text: &str) -> Result<Self, PlanError> {
        let preset: Self =
            toml::from_str(text).map_err(|error| PlanError::Syntax(error.to_string()))?;
        for (name, costs) in &preset.stacks {
            for (key, value) in costs.values() {
                if !value.value.is_finite() || value.value < 0.0 {
                    let key = format!("{name}.{key}");
                    let error = PlanError::value(&key, format!("cannot be {}", value.value));
                    return Err(error.in_text(text));
                }
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
