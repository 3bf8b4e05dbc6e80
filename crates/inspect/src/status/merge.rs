//! One account of an engine from those of its cores.

use serde_json::{Map, Value, json};

use crate::figures::{FIGURES, Scope, histograms, programs::PROGRAM_FIGURES};

/// Status: the first core's with the sums of all, and each core's own share in `by_core`.
pub fn status(cores: &[Value], programs: &Value) -> Value {
    let Some(first) = cores.first() else {
        return Value::Null;
    };
    let mut whole = first.clone();
    // What is held once by the whole engine is told by its first core; what each core holds adds up.
    let of_cores = FIGURES.iter().filter(|one| one.scope == Scope::Core);
    for figure in of_cores.filter(|one| one.group.is_empty()) {
        whole[figure.field] = sum(cores, figure.field);
    }
    for group in ["driver_counters", "stack_counters", "copies", "limits"] {
        let of_group: Vec<Value> = cores.iter().map(|core| core[group].clone()).collect();
        let names = first[group].as_object().into_iter().flatten();
        let sums: Map<String, Value> = names
            .map(|(name, _)| (name.clone(), sum(&of_group, name)))
            .collect();
        whole[group] = Value::Object(sums);
    }
    for (name, copied, moved) in [
        ("per_sent_byte", "copied_to_send_bytes", "sent_bytes"),
        (
            "per_received_byte",
            "copied_to_receive_bytes",
            "received_bytes",
        ),
    ] {
        whole["copies"][name] = ratio(&whole["copies"], copied, moved);
    }
    whole["histograms"] = histograms::merged(cores);
    whole["programs"] = programs.as_array().map_or(0, Vec::len).into();
    if let Some(fields) = whole.as_object_mut() {
        fields.remove("core");
    }
    let share = |core: &Value| {
        json!({
            "core": core["core"], "sockets": core["sockets"], "connections": core["connections"],
            "time_waits": core["time_waits"], "rx_frames": core["driver_counters"]["rx_frames"],
            "tx_frames": core["driver_counters"]["tx_frames"],
        })
    };
    whole["by_core"] = cores.iter().map(share).collect();
    whole
}

/// Programs: one row for each process, however many cores it uses. Its listeners are at all of them.
pub fn programs(cores: &[Value]) -> Value {
    let mut whole: Vec<Value> = Vec::new();
    for row in cores.iter().filter_map(Value::as_array).flatten() {
        let Some(known) = whole.iter_mut().find(|known| known["pid"] == row["pid"]) else {
            whole.push(row.clone());
            continue;
        };
        let counted = PROGRAM_FIGURES.iter().map(|figure| figure.field);
        for name in ["connections", "prepared", "memory_kib"]
            .into_iter()
            .chain(counted)
            .filter(|name| row[*name].is_u64())
        {
            known[name] = sum(&[known.clone(), row.clone()], name);
        }
        let most = known["listeners"].as_u64().max(row["listeners"].as_u64());
        known["listeners"] = most.into();
    }
    Value::Array(whole)
}

/// Sockets: the rows of all cores.
pub fn sockets(cores: &[Value]) -> Value {
    let rows = cores.iter().filter_map(Value::as_array).flatten();
    rows.cloned().collect()
}

/// `null` where nothing has moved.
fn ratio(copies: &Value, copied: &str, moved: &str) -> Value {
    match (copies[copied].as_f64(), copies[moved].as_f64()) {
        (Some(copied), Some(moved)) if moved > 0.0 => (copied / moved).into(),
        _ => Value::Null,
    }
}

fn sum(values: &[Value], name: &str) -> Value {
    let numbers = values.iter().filter_map(|value| value[name].as_u64());
    numbers.sum::<u64>().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn core(number: u64, connections: u64) -> Value {
        json!({
            "core": number, "pid": 7, "sockets": connections + 1, "connections": connections,
            "listeners": 1, "time_waits": 0, "regions": 1, "programs": 1,
            "driver_counters": { "rx_frames": 10 * connections, "tx_frames": 1 },
            "stack_counters": { "TcpInSegs": connections },
            "copies": { "sent_bytes": connections, "copied_to_send_bytes": connections,
                "received_bytes": 0, "copied_to_receive_bytes": 0 },
            "limits": { "refused_sockets": connections, "urgent": 1 },
        })
    }

    #[test]
    fn connections_and_counters_add_up_and_listeners_do_not() {
        let row = |connections| json!([{ "pid": 1, "connections": connections, "listeners": 1, "prepared": 4, "memory_kib": 8, "reads": 7, "rings": connections }]);
        let programs = programs(&[row(2), row(3)]);
        assert_eq!(
            programs,
            json!([{ "pid": 1, "connections": 5, "listeners": 1, "prepared": 8, "memory_kib": 16, "reads": 14, "rings": 5 }])
        );
        let whole = status(&[core(0, 2), core(1, 3)], &programs);
        assert_eq!(whole["connections"], 5);
        assert_eq!(whole["listeners"], 1);
        assert_eq!(whole["programs"], 1);
        assert_eq!(whole["driver_counters"]["rx_frames"], 50);
        assert_eq!(whole["stack_counters"]["TcpInSegs"], 5);
        assert_eq!(whole["limits"]["refused_sockets"], 5);
        assert_eq!(whole["by_core"][1]["connections"], 3);
        assert_eq!(whole["core"], Value::Null);
        assert_eq!(whole["copies"]["sent_bytes"], 5);
        assert_eq!(whole["copies"]["per_sent_byte"], 1.0);
        assert_eq!(whole["copies"]["per_received_byte"], Value::Null);
    }

    #[test]
    fn an_engine_with_one_core_is_told_as_it_is() {
        let alone = core(0, 4);
        let whole = status(std::slice::from_ref(&alone), &json!([{ "pid": 1 }]));
        for name in ["connections", "sockets", "stack_counters"] {
            assert_eq!(whole[name], alone[name]);
        }
    }
}
