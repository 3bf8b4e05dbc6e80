//! What is counted of a program beside its engine: the calls and notifications that the engine tells of it, and the context switches
//! that the kernel counts of its threads. `status`, `top`, `metrics` and the page of `shunt ui` go by this table.

use std::sync::LazyLock;

use serde_json::Value;

use super::Figure;

/// Counters of a program: fields of its row in `attached` of `shunt status --json`.
pub static PROGRAM_FIGURES: LazyLock<Vec<Figure>> = LazyLock::new(|| Figure::all(TABLE));

const TABLE: &str = "
counter | reads                | program_reads                        |  | Calls that took bytes from sockets that the program holds or held, by all their holders, as they say.
counter | writes               | program_writes                       |  | Calls that gave bytes to sockets that the program holds or held, by all their holders, as they say.
counter | events               | program_notifications                |  | Events of sockets that the engine put into the program's ring.
counter | rings                | program_wake_ups                     |  | Times that the engine rang the program while it slept.
counter | voluntary_switches   | program_voluntary_context_switches   |  | Times that a thread of the program gave its processor up to wait; of threads that run.
counter | involuntary_switches | program_involuntary_context_switches |  | Times that a thread of the program lost its processor to another; of threads that run.
";

/// Adds to each program's row what the engine does not know: its name and its context switches.
pub fn with_outside(mut programs: Value) -> Value {
    for row in programs.as_array_mut().into_iter().flatten() {
        let pid = row["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok());
        let Some(pid) = pid else { continue };
        row["program"] = observe::process::name(pid).into();
        if let Some(switches) = observe::process::switches(pid) {
            row["voluntary_switches"] = switches.voluntary.into();
            row["involuntary_switches"] = switches.involuntary.into();
        }
    }
    programs
}

/// Context switches of both kinds for each read or write; `None` where there was none.
pub fn switches_per_call(row: &Value) -> Option<f64> {
    let sum = |names: [&str; 2]| Some(row[names[0]].as_f64()? + row[names[1]].as_f64()?);
    let calls = sum(["reads", "writes"]).filter(|calls| *calls > 0.0)?;
    Some(sum(["voluntary_switches", "involuntary_switches"])? / calls)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn switches_are_told_by_the_call_where_there_were_calls() {
        let row = |reads: u64, switches: u64| json!({ "reads": reads, "writes": reads, "voluntary_switches": switches, "involuntary_switches": 1 });
        assert_eq!(switches_per_call(&row(5, 4)), Some(0.5));
        assert_eq!(switches_per_call(&row(0, 4)), None);
        assert_eq!(switches_per_call(&json!({ "reads": 1, "writes": 1 })), None);
    }

    #[test]
    fn a_running_program_gets_its_name_and_switches_and_others_nothing() {
        let own = std::process::id();
        let rows = with_outside(json!([{ "pid": own }, { "pid": u32::MAX }]));
        assert!(rows[0]["program"].is_string(), "{rows}");
        assert!(rows[0]["voluntary_switches"].is_u64(), "{rows}");
        assert!(rows[1]["voluntary_switches"].is_null(), "{rows}");
    }
}
