//! Cost presets: what each stack costs, and for each value where it is from.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Client, FileError, Trial};

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

macro_rules! costs {
    (always { $($(#[$what:meta])* $key:ident)* } sometimes { $($(#[$optional_what:meta])* $optional:ident)* }) => {
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
            $($(#[$what])* pub $key: Value,)*
            $(
                $(#[$optional_what])*
                #[serde(default, skip_serializing_if = "Option::is_none")]
                pub $optional: Option<Value>,
            )*
            /// Clients that wait for answers: what trials said beside these costs, by their number of clients.
            #[serde(default, skip_serializing_if = "Vec::is_empty")]
            pub trials: Vec<Trial>,
        }

        impl Costs {
            /// The values by name.
            pub fn values(&self) -> Vec<(&'static str, &Value)> {
                let mut values = vec![$((stringify!($key), &self.$key)),*];
                $(values.extend(self.$optional.as_ref().map(|value| (stringify!($optional), value)));)*
                values
            }

            /// A value to change.
            pub fn value_mut(&mut self, name: &str) -> Option<&mut Value> {
                match name {
                    $(stringify!($key) => Some(&mut self.$key),)*
                    _ => self.optional_mut(name)?.as_mut(),
                }
            }

            fn optional_mut(&mut self, name: &str) -> Option<&mut Option<Value>> {
                match name {
                    $(stringify!($optional) => Some(&mut self.$optional),)*
                    _ => None,
                }
            }
        }
    };
}

costs! {
    always {
        /// Host: receiving a request.
        receive_ns
        /// Host: sending a response.
        send_ns
        /// Host: each packet.
        packet_ns
        /// Host: each byte.
        byte_ns
        /// Host: each connection.
        connection_ns
        /// Host: waking a thread.
        wake_ns
    }
    sometimes {
        /// Engine or NIC: each request; a NIC's at 1 GHz.
        device_ns
        /// Engine or NIC: each byte.
        device_byte_ns
        /// Engine or NIC: each connection.
        device_connection_ns
        /// Host: what a request takes less where the answers of a wake-up are written together.
        together_saves_ns
        /// Host: more for each message of several packets, which its receiver acknowledges before it answers (RFC 5681 §4.2).
        several_packets_ns
        /// What a lone request waits for besides work: wake-ups, interrupts, processors that leave idle. It
        /// costs nobody time and counts only where clients wait for answers.
        latency_ns
        /// Host: each time that the program comes back from waiting, however many requests it then takes.
        turn_ns
        /// Host: more for each time that it had slept.
        sleep_ns
        /// What it costs a client on the same machine, or an engine, to wake the program.
        rouse_ns
        /// A client on the same machine: each request with its answer.
        client_ns
        /// Such a client: each byte of both.
        client_byte_ns
        /// Such a client: each time that it comes back from waiting.
        client_turn_ns
        /// Such a client: more for each time that it had slept.
        client_sleep_ns
        /// What it costs the server to wake such a client.
        client_rouse_ns
    }
}

impl Costs {
    /// Gives a value, also one that was not there; an unknown name changes nothing.
    pub fn set(&mut self, name: &str, value: Value) {
        if let Some(place) = self.optional_mut(name) {
            *place = Some(value);
        } else if let Some(place) = self.value_mut(name) {
            *place = value;
        }
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
    pub fn parse(text: &str) -> Result<Self, FileError> {
        let preset: Self = toml::from_str(text)
            .map_err(|error| in_stack(text).unwrap_or(FileError::Syntax(error.to_string())))?;
        for (name, costs) in &preset.stacks {
            for (key, value) in costs.values() {
                if !value.value.is_finite() || value.value < 0.0 {
                    let key = format!("{name}.{key}");
                    let error = FileError::value(&key, format!("cannot be {}", value.value));
                    return Err(error.in_text(text));
                }
            }
            let mut trials = costs.trials.iter();
            let is_number = |trial: &Trial| trial.more_ns.is_finite() && trial.off >= 0.0;
            if !trials.all(is_number) || !costs.trials.is_sorted_by_key(|trial| trial.clients) {
                let key = format!("{name}.trials");
                let what =
                    "are in the order of their clients, with numbers; `off` is not below nothing";
                return Err(FileError::value(&key, what).in_text(text));
            }
            if costs.place != Where::Host && costs.device_ns.is_none() {
                let key = format!("{name}.device_ns");
                let error = FileError::value(&key, "is missing: its stack runs elsewhere");
                return Err(error.in_text(text));
            }
        }
        Ok(preset)
    }
}

/// The first fault within a stack: of a table of tables the parser knows what is wrong, and not where.
fn in_stack(text: &str) -> Option<FileError> {
    let tables: toml::Table = toml::from_str(text).ok()?;
    let mut stacks = tables.into_iter().filter(|(name, _)| name != "machine");
    stacks.find_map(|(name, value)| {
        let error = Costs::deserialize(value).err()?;
        Some(FileError::value(&name, error.message()).in_text(text))
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
