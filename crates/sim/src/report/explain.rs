//! Which processor does what in a scenario, and what its load asks of each.

use serde::Serialize;

use super::title_of;
use crate::{
    machine::Work,
    report::document::Document,
    scenario::{Kind, Scenario},
    statistics::summary::offered_loads,
    time::as_us,
};

/// Which processor does what for one request, and what a sustained load asks of each.
pub fn explain(scenario: &Scenario) -> Document {
    let mut d = Document::new(title_of(scenario));
    d.heading("One request");
    let rows = steps(scenario).into_iter().map(|step| {
        vec![
            step.what.to_owned(),
            step.on.to_owned(),
            format!("{:.2}", step.us),
        ]
    });
    d.table(["step", "where", "µs"], rows.collect());
    d.text(format!(
        "Packets per request: {}.",
        Work::new(scenario).packets
    ));
    d.heading("What the load asks of each resource");
    let rows = offered_loads(scenario).into_iter().map(|(name, load)| {
        let verdict = if load >= 1.0 { "unstable" } else { "" };
        vec![
            name.to_owned(),
            format!("{:.1} %", 100.0 * load),
            verdict.to_owned(),
        ]
    });
    d.table(["resource", "of what it can do", ""], rows.collect());
    d.text("Endless computations count: beside n of them a process has 1/(n+1) of the time.");
    d
}

/// A step of a request.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Step {
    /// What is done.
    pub what: &'static str,
    /// By which processor, at which level.
    pub on: &'static str,
    /// How long it takes, at that processor's clock.
    pub us: f64,
}

/// The steps of one request and its answer.
pub fn steps(scenario: &Scenario) -> Vec<Step> {
    let w = Work::new(scenario);
    let owner = match scenario.stack.kind {
        Kind::Kernel => "host, bottom half",
        Kind::User if w.in_interrupt => "host, interrupt",
        Kind::User => "host, server process",
        Kind::Nic => "NIC",
    };
    let step = |what, on, ns| Step {
        what,
        on,
        us: as_us(ns),
    };
    let mut steps = vec![
        step("interrupt", "host, interrupt", w.interrupt),
        step("each packet announced", "host, interrupt", w.announced),
        step("link and network, each packet", owner, w.receive),
        step("transport, once", owner, w.segment),
        step(
            "read, answer, and all below in host stacks",
            "host, server process",
            w.serve,
        ),
        step("application", "host, server process", w.compute),
    ];
    if scenario.stack.kind == Kind::Nic {
        steps.push(step(
            "transport, network, link of the response",
            "NIC",
            w.transmit,
        ));
    }
    steps
}
