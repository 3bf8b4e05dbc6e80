//! A preset as the file that `shunt sim plan --preset` reads.

use std::fmt::Write as _;

use sim::plan::{Costs, Preset, Source, Trial};

/// The preset as TOML; every value with its source.
pub fn to_toml(preset: &Preset) -> String {
    let quoted = |text: &str| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
    let mut text = format!(
        "# What a request costs on each stack, in nanoseconds; written by shunt sim calibrate.\nmachine = {}\n",
        quoted(&preset.machine)
    );
    for (name, costs) in &preset.stacks {
        if !measured(costs) {
            let _ = write!(text, "\n# Nothing of it is measured here{}.", why(name));
        }
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
        if !costs.trials.is_empty() {
            text += "# By number of clients: how much longer trials took between two answers than these costs make it, and how far\n\
                     # they were off with that.\n";
            let trial = |of: &Trial| {
                format!(
                    "  {{ clients = {}, more_ns = {:?}, off = {:?} }},\n",
                    of.clients, of.more_ns, of.off
                )
            };
            let trials: String = costs.trials.iter().map(trial).collect();
            let _ = writeln!(text, "trials = [\n{trials}]");
        }
    }
    text
}

/// Whether anything of a stack was measured.
pub fn measured(costs: &Costs) -> bool {
    let values = costs.values().into_iter();
    values
        .map(|(_, value)| value.source)
        .any(|source| source == Source::Measured)
}

/// Why a stack cannot be measured by this program at all.
pub fn why(stack: &str) -> &'static str {
    match stack {
        "dpdk" => ": its virtual devices sit on packet sockets, and a card was not tried",
        "nic" => ": it takes a NIC with processors that run the stack",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_preset_reads_as_it_was() {
        let mut preset = Preset::shipped();
        assert_eq!(Preset::parse(&to_toml(&preset)).unwrap(), preset);
        let trial = |clients, more_ns| Trial {
            clients,
            more_ns,
            off: 0.031,
        };
        let inline = preset.stacks.get_mut("inline").unwrap();
        inline.trials = vec![trial(1, -4200.0), trial(8, 310.0)];
        assert_eq!(Preset::parse(&to_toml(&preset)).unwrap(), preset);
        let inline = preset.stacks.get_mut("inline").unwrap();
        inline.trials.reverse();
        let said = Preset::parse(&to_toml(&preset)).unwrap_err().to_string();
        assert!(said.contains("inline.trials"), "{said}");
    }

    #[test]
    fn a_stack_of_which_nothing_is_measured_is_said_to_be_one() {
        let text = to_toml(&Preset::shipped());
        let dpdk = "# Nothing of it is measured here: its virtual devices sit on packet sockets, and a card was not tried.\n[dpdk]\n";
        assert!(text.contains(dpdk), "{text}");
        assert!(!text.contains("here.\n[kernel]"), "{text}");
    }
}
