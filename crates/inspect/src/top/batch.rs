//! Frames as text, or one as JSON.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use output::{Table, print_result};
use serde_json::{Value, json};

use super::{
    model::{Model, Tab},
    sample::{self, Engine},
    view::{Cells, cells},
};
use crate::{engines::Which, figures::errors::Error};

/// How often a wait looks whether it is to end.
const LOOK: Duration = Duration::from_millis(50);

/// Prints so many frames, each with the rates since the sample before; `None`: until the process is interrupted.
pub fn run(
    which: &Which,
    mut model: Model,
    interval: Duration,
    frames: Option<u64>,
    is_json: bool,
) -> anyhow::Result<()> {
    let end = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&end)).context("catching signals")?;
    }
    model.update(sample::take(which));
    let mut printed = 0;
    while frames.is_none_or(|frames| printed < frames) && wait(interval, &end) {
        model.update(sample::take(which));
        print_result(is_json, &as_json(&model), || text(&mut model))?;
        printed += 1;
    }
    Ok(())
}

/// False: the process is to end.
fn wait(interval: Duration, end: &AtomicBool) -> bool {
    let until = Instant::now() + interval;
    while !end.load(Ordering::Relaxed) {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        thread::sleep(left.min(LOOK));
    }
    false
}

/// All tables, one below the other.
fn text(model: &mut Model) -> String {
    let mut text = String::new();
    for tab in [Tab::Engines, Tab::Programs, Tab::Connections] {
        model.tab = tab;
        text += &table(cells(model, 0, usize::MAX));
        text.push('\n');
    }
    if model.left_out > 0 {
        text += &format!("and {} more connections\n\n", model.left_out);
    }
    text
}

fn table(cells: Cells) -> String {
    let heading = cells.heading.into_iter().map(str::to_owned).collect();
    Table::of(std::iter::once(heading).chain(cells.cells).collect()).render()
}

/// Everything that is shown, with rates.
pub fn as_json(model: &Model) -> Value {
    let with = |mut object: Value, rates: Value| {
        for (name, rate) in rates.as_object().into_iter().flatten() {
            object[name] = rate.clone();
        }
        object
    };
    let engines = model.engines.iter().map(|(one, rates)| {
        let object = json!({
            "engine": one.label, "pid": one.pid, "program": one.program, "answers": one.silent.is_none(),
            "reason": one.silent, "mode": one.mode, "device": one.device, "programs": one.programs,
            "connections": one.connections, "cores": one.cores, "lost_frames": one.lost_frames,
            "memory_kib": one.memory_kib,
            "retransmissions": one.counted.retransmissions, "errors": errors(one),
            "tcp_round_trip_us": one.round_trips[1].to_json(), "poll_us": one.polls[1].to_json(),
        });
        with(object, json!(rates))
    });
    let programs = model.programs.iter().map(|one| {
        let object = json!({
            "engine": one.label, "pid": one.pid, "program": one.program, "connections": one.connections,
            "retransmissions": one.retransmissions, "srtt_us_max": one.srtt_us, "notify": one.notify,
            "switches_per_call": one.calls.switches_per_call(),
        });
        with(with(object, json!(one.rates)), json!(one.calls))
    });
    let connections = model.connections.iter().map(|(one, rates)| {
        let object = json!({
            "engine": one.label, "pid": one.pid, "program": one.program, "protocol": one.protocol,
            "state": one.state, "local": one.local, "remote": one.remote, "srtt_us": one.srtt_us,
            "retransmissions": one.counted.retransmissions, "sent_bytes": one.counted.sent_bytes,
            "received_bytes": one.counted.received_bytes, "receive_queue": one.queues.0, "send_queue": one.queues.1,
        });
        with(object, json!(rates))
    });
    json!({
        "engines": engines.collect::<Vec<_>>(), "programs": programs.collect::<Vec<_>>(),
        "connections": connections.collect::<Vec<_>>(), "left_out": model.left_out,
    })
}

/// Kinds of errors that have happened.
fn errors(engine: &Engine) -> Vec<Value> {
    let happened = engine.errors.iter().filter(|(error, _)| error.count > 0);
    let row = |(error, rate): &(Error, f64)| json!({ "error": error.name, "what": error.help, "count": error.count, "per_s": rate });
    happened.map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::{Sort, model::tests::two_samples};

    #[test]
    fn a_frame_of_text_has_every_table() {
        let text = text(&mut two_samples(Sort::Rate));
        for part in ["ENGINE", "MAX RTT", "QUEUES", "10.0.0.2:2000", "(stopped)"] {
            assert!(text.contains(part), "{part}\n{text}");
        }
    }

    #[test]
    fn a_frame_of_json_has_rates_beside_what_they_are_of() {
        let frame = as_json(&two_samples(Sort::Rate));
        let first = &frame["connections"][0];
        assert_eq!(first["remote"], "10.0.0.2:2000");
        let rate = first["sent_bytes_per_s"].as_f64().unwrap();
        assert!((rate - 2_000.0).abs() < 1.0, "{first}");
        assert_eq!(frame["engines"][1]["answers"], false);
    }
}
