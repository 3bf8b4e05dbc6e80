//! A preset as the file that `shunt sim plan --preset` reads.

use std::fmt::Write as _;

use sim::plan::{Preset, Source};

/// The preset as TOML; every value with its source.
pub fn to_toml(preset: &Preset) -> String {
    let quoted = |text: &str| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
    let mut text = format!(
        "# What a request costs on each stack, in nanoseconds; written by shunt sim calibrate.\nmachine = {}\n",
        quoted(&preset.machine)
    );
    for (name, costs) in &preset.stacks {
        let place = match costs.place {
            sim::plan::Where::Host => "host",
            sim::plan::Where::Engine => "engine",
            sim::plan::Where::Nic => "nic",
        };
        let _ = write!(
            text,
            "\n[{name}]\nwhere = \"{place}\"\npolls = {}\n",
            costs.polls
        );
        for (key, value) in costs.values() {
            let source = match value.source {
                Source::Measured => "measured",
                Source::Literature => "literature",
                Source::Assumed => "assumed",
            };
            let spread = value
                .spread
                .map_or(String::new(), |s| format!(", spread = {s:?}"));
            let _ = writeln!(
                text,
                "{key} = {{ value = {:?}, source = \"{source}\", how = {}{spread} }}",
                value.value,
                quoted(&value.how)
            );
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_preset_reads_as_it_was() {
        let preset = Preset::shipped();
        assert_eq!(Preset::parse(&to_toml(&preset)).unwrap(), preset);
    }
}
