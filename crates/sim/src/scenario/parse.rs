//! TOML text to [`Scenario`]: what is wrong is said with the line on which it stands.

use serde::Deserialize;
use thiserror::Error;
use toml::{
    Table, Value,
    de::{DeTable, DeValue},
};

use super::{Scenario, check};

/// Why a text is no scenario, workload or preset.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FileError {
    /// It is not TOML, has a key nobody knows, or a value of the wrong kind.
    #[error("{0}")]
    Syntax(String),
    /// A value that cannot be.
    #[error("{}{key}: {reason}", place(*line))]
    Value {
        /// The line that names the key; 0 where a default is at fault.
        line: usize,
        /// The key.
        key: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A setting (`--set`, an axis) that cannot be.
    #[error("{setting}: {reason}")]
    Setting {
        /// The setting as given.
        setting: String,
        /// What is wrong with it.
        reason: String,
    },
}

impl FileError {
    pub(crate) fn value(key: &str, reason: impl Into<String>) -> Self {
        Self::Value {
            line: 0,
            key: key.to_owned(),
            reason: reason.into(),
        }
    }

    /// The same with the line of a text on which the key stands.
    pub fn in_text(self, text: &str) -> Self {
        match self {
            Self::Value { key, reason, .. } => Self::Value {
                line: line_of(text, &key),
                key,
                reason,
            },
            Self::Syntax(_) | Self::Setting { .. } => self,
        }
    }
}

/// Where a fault stands; a default that does not fit stands nowhere.
pub(crate) fn place(line: usize) -> String {
    if line == 0 {
        String::new()
    } else {
        format!("line {line}: ")
    }
}

/// Reads a scenario.
pub fn parse(text: &str) -> Result<Scenario, FileError> {
    let scenario: Scenario =
        toml::from_str(text).map_err(|error| FileError::Syntax(error.to_string()))?;
    check::check(&scenario).map_err(|(key, reason)| FileError::value(key, reason).in_text(text))?;
    Ok(scenario)
}

/// The line on which a dotted key is given, from 1; 0 where it is not.
pub(crate) fn line_of(text: &str, key: &str) -> usize {
    let Ok(document) = DeTable::parse(text) else {
        return 0;
    };
    let mut parts = key.split('.');
    let first = parts.next().unwrap_or_default();
    let mut found = document.get_ref().get(first);
    let mut at = None;
    while let Some(value) = found {
        at = Some(value.span().start);
        let Some(part) = parts.next() else {
            break;
        };
        found = match value.get_ref() {
            DeValue::Table(inner) => inner.get(part),
            // An element of an array by its number, counted from 0.
            DeValue::Array(inner) => part.parse().ok().and_then(|n: usize| inner.get(n)),
            _ => None,
        };
    }
    at.map_or(0, |at| {
        1 + text.get(..at).unwrap_or_default().matches('\n').count()
    })
}

/// A scenario with some keys set to other values: `nic.clock_mhz=200`.
pub fn with_settings<'a>(
    scenario: &Scenario,
    settings: impl IntoIterator<Item = &'a str>,
) -> Result<Scenario, FileError> {
    let mut changed = scenario.clone();
    for setting in settings {
        let wrong = |reason: String| FileError::Setting {
            setting: setting.to_owned(),
            reason,
        };
        let (key, value) = setting
            .split_once('=')
            .ok_or_else(|| wrong("is not KEY=VALUE".to_owned()))?;
        changed = set(&changed, key.trim(), value.trim()).map_err(wrong)?;
    }
    check::check(&changed).map_err(|(key, reason)| FileError::Setting {
        setting: key.to_owned(),
        reason,
    })?;
    Ok(changed)
}

/// Value as it would stand in a file; a bare word is a text.
fn value_of(text: &str) -> Value {
    format!("value = {text}")
        .parse::<Table>()
        .ok()
        .and_then(|mut table| table.remove("value"))
        .unwrap_or_else(|| Value::String(text.to_owned()))
}

fn set(scenario: &Scenario, key: &str, value: &str) -> Result<Scenario, String> {
    let mut root = Table::try_from(scenario).map_err(|error| error.to_string())?;
    let (parents, last) = match key.rsplit_once('.') {
        Some((parents, last)) => (parents.split('.').collect(), last),
        None => (Vec::new(), key),
    };
    let mut table = &mut root;
    for parent in parents {
        table = table
            .get_mut(parent)
            .and_then(Value::as_table_mut)
            .ok_or_else(|| format!("there is no [{parent}]"))?;
    }
    let mut value = value_of(value);
    // 500 is as good as 500.0 where a real number is wanted.
    if let (Some(Value::Float(_)), Value::Integer(whole)) = (table.get(last), &value) {
        value = Value::Float(*whole as f64);
    }
    table.insert(last.to_owned(), value);
    Scenario::deserialize(root).map_err(|error| error.message().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_file_is_the_papers_machine() {
        assert_eq!(parse("").unwrap(), Scenario::default());
    }

    #[test]
    fn an_unknown_key_is_an_error_that_points_at_its_line() {
        let error = parse("title = \"x\"\n[host]\nclock = 5\n").unwrap_err();
        let text = error.to_string();
        assert!(text.contains("line 3") && text.contains("clock"), "{text}");
        assert!(text.contains("clock_mhz"), "names what is known: {text}");
    }

    #[test]
    fn an_impossible_value_is_an_error_that_points_at_its_line() {
        let error = parse("[host]\n\n# comment\nclock_mhz = 0\n").unwrap_err();
        assert_eq!(
            error.to_string(),
            "line 4: host.clock_mhz: must be above 0, is 0"
        );
        let inline = parse("host = { cores = 1, clock_mhz = -1 }").unwrap_err();
        assert!(inline.to_string().starts_with("line 1: host.clock_mhz"));
        let dotted = parse("\nhost.cores = 0").unwrap_err();
        assert!(dotted.to_string().starts_with("line 2: host.cores"));
    }

    #[test]
    fn a_default_that_does_not_fit_is_named_without_a_line() {
        let error = parse("stack = { kind = \"kernel\" }\nbus.zero_copy = true").unwrap_err();
        assert!(
            error.to_string().starts_with("line 2: bus.zero_copy"),
            "{error}"
        );
        let error = parse("nic.mode = \"urgent\"").unwrap_err();
        assert!(error.to_string().starts_with("line 1: nic.mode"), "{error}");
        let many = with_settings(&Scenario::default(), ["runs.replications=500"]);
        assert_eq!(many.unwrap().runs.most, 200);
        let error = FileError::Value {
            line: 0,
            key: "a.b".to_owned(),
            reason: "c".to_owned(),
        };
        assert_eq!(error.to_string(), "a.b: c");
    }

    #[test]
    fn what_would_fill_the_memory_is_refused() {
        let wrong = |text: &str| parse(text).unwrap_err().to_string();
        let packets = wrong("[workload]\nrequest_packets = 1000000000000000000\n");
        assert!(
            packets.starts_with("line 2: workload.request_packets"),
            "{packets}"
        );
        let processes = wrong("[host]\ncores = 1024\nbackground = 1024\n");
        assert!(
            processes.starts_with("line 3: host.background"),
            "{processes}"
        );
    }

    #[test]
    fn no_number_is_no_value() {
        let error = parse("[network]\njitter = nan").unwrap_err();
        assert!(error.to_string().starts_with("line 2: network.jitter"));
    }

    #[test]
    fn settings_change_single_keys() {
        let base = Scenario::default();
        let changed = with_settings(&base, ["nic.clock_mhz=200", "stack.kind=nic"]).unwrap();
        assert!((changed.nic.clock_mhz - 200.0).abs() < 1e-9);
        assert_eq!(changed.stack.kind, super::super::Kind::Nic);
        let phase = with_settings(&base, ["host.background_phase_ms=3"]).unwrap();
        assert_eq!(phase.host.background_phase_ms, Some(3.0));
    }

    #[test]
    fn wrong_settings_are_named() {
        let wrong = |setting| {
            let base = Scenario::default();
            with_settings(&base, [setting]).unwrap_err().to_string()
        };
        assert!(wrong("nic.clock").contains("is not KEY=VALUE"));
        assert!(wrong("nic.speed=3").starts_with("nic.speed=3: unknown field"));
        assert!(wrong("moon.clock_mhz=3").contains("there is no [moon]"));
        assert!(wrong("stack.kind=toe").contains("unknown variant"));
        assert!(wrong("workload.clients=0").contains("must be"));
    }
}
