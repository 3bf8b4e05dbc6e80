//! `shunt bench calls`: what single calls cost a program, as the `toe` paper's figure 10 has them: send, receive, create and delete.

use super::{connect, cpu, setup::Plan};

/// The rows, by words of their names in the plans of `shunt bench cpu` and `connect`.
const MOVING: [&str; 4] = [
    "program's CPU per send(2) of 1 KiB, engine",
    "program's CPU per recv(2) of 1 KiB, engine",
    "program's CPU per send(2) of 1 KiB, inline",
    "program's CPU per recv(2) of 1 KiB, inline",
];
const MAKING: [&str; 1] = ["socket create + close, never connected"];

pub fn plan() -> anyhow::Result<Plan> {
    let making = connect::plan().only(&MAKING)?;
    let plan = Plan {
        notes: vec![
            "send and receive: processor time of the program; beside an engine that of the engine is not in it, inline it is",
            "create + close: time in socket(2) and close(2)",
        ],
        ..cpu::plan().only(&MOVING)?.and(making)
    };
    Ok(plan)
}
