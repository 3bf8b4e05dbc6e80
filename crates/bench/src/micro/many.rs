//! Requests over many connections that are all in use: what one costs the server, and whether it costs more the more there are.

use super::{
    asked::Asked,
    row::{Row, Source, from},
    samples::Values,
    setup::Setup,
    testbed::{On, Stack, Testbed},
};
use crate::apps::case::Better;

const INLINE: Stack = Stack::Inline("af_packet");
const FEW: u32 = 100;
const MANY: u32 = 10_000;

const ROWS: [(&str, &str, Better, Source); 7] = [
    (
        "requests over 100 connections, server inline",
        "requests/s",
        Better::Higher,
        from("many-inline", "few"),
    ),
    (
        "  over 10,000 connections",
        "requests/s",
        Better::Higher,
        from("many-inline", "many"),
    ),
    (
        "  server's processor time for one of 10,000",
        "µs",
        Better::Lower,
        from("many-inline", "cost"),
    ),
    (
        "  that over the time for one of 100",
        "×",
        Better::Lower,
        from("many-inline", "growth"),
    ),
    (
        "requests over 100 connections, server on an engine process",
        "requests/s",
        Better::Higher,
        from("many-engine", "few"),
    ),
    (
        "  over 10,000 connections",
        "requests/s",
        Better::Higher,
        from("many-engine", "many"),
    ),
    (
        "  the first over the second",
        "×",
        Better::Lower,
        from("many-engine", "slower"),
    ),
];

/// Rows of `shunt bench rate`.
pub fn rows() -> impl Iterator<Item = Row> {
    ROWS.into_iter().map(|(what, unit, better, shunt)| Row {
        what,
        unit,
        better,
        kernel: Some(from("many-kernel", shunt.quantity)),
        shunt,
    })
}

pub const SETUPS: [Setup; 3] = [
    Setup::new(
        "many-kernel",
        "many connections, server on the kernel",
        |testbed| measure(testbed, Stack::Kernel),
    ),
    Setup::new(
        "many-inline",
        "many connections, server inline",
        |testbed| measure(testbed, INLINE),
    ),
    Setup::new(
        "many-engine",
        "many connections, server on an engine",
        |testbed| {
            let _engine = testbed.start_engine(On::A, &[])?;
            measure(testbed, Stack::Engine)
        },
    ),
];

fn measure(testbed: &Testbed, stack: Stack) -> anyhow::Result<Values> {
    let mut server = Asked::start(testbed, stack, 0)?;
    let few = server.by(FEW)?;
    let many = server.by(MANY)?;
    let growth = many.server.processor_ns / few.server.processor_ns;
    Ok(vec![
        ("few", few.rate_per_s),
        ("many", many.rate_per_s),
        ("cost", many.server.processor_ns / 1e3),
        ("growth", growth),
        ("slower", few.rate_per_s / many.rate_per_s),
    ])
}
