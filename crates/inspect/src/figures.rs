//! The figures that an engine tells of itself: where each stands in the JSON of `shunt status`, what it counts, its unit,
//! how several cores make one, and its name as a metric. `status`, its JSON and `shunt metrics` go by this table.

pub mod errors;
pub mod histograms;
pub mod programs;

use std::sync::LazyLock;

use serde_json::Value;

/// Whether it only ever grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Since the engine started.
    Counter,
    /// As it is now.
    Gauge,
}

/// Who knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Each core has its own; they add up.
    Core,
    /// The whole engine has one, which its first core tells.
    Engine,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Figure {
    /// The object in the report in which it stands; empty: the report itself.
    pub group: &'static str,
    pub field: &'static str,
    /// Its name as a metric, without the prefix `shunt_` and the ending of counters.
    pub metric: &'static str,
    pub kind: Kind,
    pub scope: Scope,
    /// Unit of what is exported, which ends the metric's name; empty: a number of things.
    pub unit: &'static str,
    /// By what the report's value is multiplied for that unit.
    pub factor: u64,
    /// A sentence.
    pub help: &'static str,
}

impl Figure {
    /// Those of a table with a line for each: what it is, where it stands in the report, its name as a metric, its unit, a sentence.
    fn all(table: &'static str) -> Vec<Self> {
        let figure = |[is, place, metric, unit, help]: [&'static str; 5]| {
            let (group, field) = place.split_once('.').unwrap_or(("", place));
            let (is, scope) = match is.strip_suffix(" of the engine") {
                Some(is) => (is, Scope::Engine),
                None if is == "memory" => (is, Scope::Engine),
                None => (is, Scope::Core),
            };
            Self {
                group,
                field,
                metric,
                kind: match is {
                    "counter" => Kind::Counter,
                    _ => Kind::Gauge,
                },
                scope,
                unit,
                factor: if is == "memory" { 1024 } else { 1 },
                help,
            }
        };
        output::columns(table).map(figure).collect()
    }
}

/// All but those of the stack, which names its own: [`stack::Counters::DESCRIPTIONS`].
pub static FIGURES: LazyLock<Vec<Figure>> = LazyLock::new(|| Figure::all(TABLE));

const TABLE: &str = "
gauge of the engine   | programs                       | programs                     |       | Programs attached to the engine.
gauge                 | sockets                        | sockets                      |       | Sockets of programs.
gauge                 | connections                    | connections                  |       | TCP connections, TIME-WAIT not counted.
gauge of the engine   | listeners                      | listeners                    |       | TCP sockets that listen.
gauge                 | time_waits                     | time_waits                   |       | TCP connections in TIME-WAIT.
gauge                 | datagram_sockets               | datagram_sockets             |       | UDP sockets.
gauge                 | regions                        | regions                      |       | Pieces of memory shared with programs.
gauge of the engine   | cores                          | cores                        |       | Cores of the engine.
memory                | memory_kib.total               | memory_total_bytes           | bytes | Resident memory of the engine's process (VmRSS).
memory                | memory_kib.shared              | memory_shared_bytes          | bytes | Of that, windows and state shared with programs (RssShmem).
memory                | memory_kib.private             | memory_private_bytes         | bytes | Of that, its own (RssAnon).
counter               | driver_counters.rx_frames      | driver_rx_frames             |       | Frames received; a merged one counts once.
counter               | driver_counters.rx_bytes       | driver_rx_bytes              | bytes | Bytes of received frames, Ethernet headers included.
counter               | driver_counters.rx_dropped     | driver_rx_dropped            |       | Frames lost before the stack saw them.
counter               | driver_counters.tx_frames      | driver_tx_frames             |       | Frames sent; a large segment counts once.
counter               | driver_counters.tx_bytes       | driver_tx_bytes              | bytes | Bytes of sent frames, Ethernet headers included.
counter               | driver_counters.tx_dropped     | driver_tx_dropped            |       | Frames that the device refused for good.
counter               | driver_counters.tx_busy        | driver_tx_busy               |       | Bursts that were cut short because the device was busy.
counter               | driver_counters.rx_elsewhere   | driver_rx_elsewhere          |       | Frames of TCP that came in a queue of another core (AF_XDP, DPDK).
counter               | looks_in_vain                  | driver_rx_looks_in_vain      |       | Looks at the device that found no frame.
counter               | lost_at_stopped_queue          | driver_lost_at_stopped_queue |       | Frames lost because a queue of the device stood still.
counter               | copies.sent_bytes              | stream_sent_bytes            | bytes | Bytes of streams taken from programs.
counter               | copies.received_bytes          | stream_received_bytes        | bytes | Bytes of streams taken by programs.
counter               | copies.copied_to_send_bytes    | copied_to_send_bytes         | bytes | Bytes copied by programs and the engine on the way out.
counter               | copies.copied_to_receive_bytes | copied_to_receive_bytes      | bytes | Bytes copied by programs and the engine on the way in.
counter               | copies.passed_bytes            | stream_passed_bytes          | bytes | Bytes of streams that programs passed to others of this host through memory, as they say.
counter               | limits.refused_programs        | refused_programs             |       | Programs that were turned away because their user or all together had as many as they may.
counter               | limits.refused_rows            | refused_rows                 |       | Sockets, listeners and UDP ports that were refused because their user had its share.
counter               | limits.refused_windows         | refused_windows              |       | Connections and UDP ports that got no windows because their user or program had its share of memory.
counter               | limits.urgent                  | urgent_notifications         |       | Notifications that urgent data or memory past its mark had told before their policy would have.
counter of the engine | lost_log_lines                 | lost_log_lines               |       | Lines of the engine's log that were lost.
";

impl Figure {
    /// Its value in a report of `shunt status`, in the report's unit.
    pub fn of(&self, status: &Value) -> Option<u64> {
        let group = match self.group {
            "" => status,
            group => &status[group],
        };
        group[self.field].as_u64()
    }
}

/// The counters of driver and stack in a report, which people are shown where they are not zero.
pub fn counters(status: &Value) -> impl Iterator<Item = (&'static str, u64)> {
    let of_driver = FIGURES
        .iter()
        .filter(|figure| figure.group == "driver_counters")
        .filter_map(|figure| Some((figure.field, figure.of(status)?)));
    of_driver.chain(of_stack(status).map(|(_, name, _, value)| (name, value)))
}

/// The stack's counters in a report: word, name as `nstat` prints it, what it counts, value.
pub fn of_stack(
    status: &Value,
) -> impl Iterator<Item = (&'static str, &'static str, &'static str, u64)> {
    let all = stack::Counters::DESCRIPTIONS.iter();
    all.filter_map(|&(word, name, help)| {
        let value = status["stack_counters"][name].as_u64()?;
        Some((word, name, help.trim(), value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_are_told_once_and_end_with_their_unit() {
        let mut names = HashSet::new();
        for figure in histograms::HISTOGRAMS.iter() {
            assert!(names.insert(figure.metric), "{figure:?}");
            assert!(figure.metric.ends_with(figure.unit), "{figure:?}");
            assert!(figure.help.ends_with('.'), "{figure:?}");
        }
        for figure in FIGURES.iter().chain(programs::PROGRAM_FIGURES.iter()) {
            assert!(names.insert(figure.metric), "{figure:?}");
            assert!(figure.metric.ends_with(figure.unit), "{figure:?}");
            assert!(figure.help.ends_with('.'), "{figure:?}");
            let is_counter = figure.kind == Kind::Counter;
            assert!(!is_counter || figure.factor == 1, "{figure:?}");
        }
    }

    #[test]
    fn every_counter_of_the_stack_and_of_drivers_is_in_the_tables() {
        let stack: Vec<&str> = stack::Counters::default()
            .iter()
            .map(|(name, _)| name)
            .collect();
        let described = stack::Counters::DESCRIPTIONS;
        assert!(described.iter().map(|(_, name, _)| *name).eq(stack));
        let driver = serde_json::to_value(nic::Counters::default()).unwrap();
        for (name, _) in driver.as_object().unwrap() {
            let is_named =
                |figure: &Figure| figure.group == "driver_counters" && figure.field == name;
            assert!(FIGURES.iter().any(is_named), "{name}");
        }
    }
}
