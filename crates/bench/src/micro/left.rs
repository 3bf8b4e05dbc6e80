//! `shunt bench left`: what a machine has left for other programs while a server answers a load that is the same on each stack.

use std::time::Duration;

use anyhow::bail;
use load::competing::{alone, beside};

use super::{
    asked::Asked,
    row::{Row, from},
    samples::Values,
    setup::{Plan, Setup},
    testbed::{On, Stack, Testbed},
};
use crate::apps::case::Better;

const INLINE: Stack = Stack::Inline("af_packet");
/// Requests each millisecond.
const LIGHT: u32 = 2;
const HEAVY: u32 = 16;
/// A load that took so many times longer than it should was not the same.
const LATE: f64 = 1.25;
/// Work at rest before and after may differ by so much; by more, others used the machine meanwhile.
const DRIFT: f64 = 0.1;
/// How often it is tried to have neither.
const TRIES: usize = 3;

/// What is measured.
pub fn plan() -> Plan {
    let row = |what, kernel, shunt| Row {
        what,
        unit: "% of its work",
        better: Better::Higher,
        kernel: Some(from(kernel, "left")),
        shunt: from(shunt, "left"),
    };
    Plan {
        setups: SETUPS.to_vec(),
        rows: vec![
            row(
                "left to other programs, 16,000 requests/s, server inline",
                "heavy-kernel",
                "heavy-inline",
            ),
            row(
                "left to other programs, 16,000 requests/s, engine beside the server",
                "heavy-kernel",
                "heavy-engine",
            ),
            row(
                "left to other programs, 2,000 requests/s, server inline",
                "light-kernel",
                "light-inline",
            ),
            row(
                "left to other programs, 2,000 requests/s, engine beside the server",
                "light-kernel",
                "light-engine",
            ),
        ],
        notes: vec![
            "other programs: one on each processor that only computes; what they get done beside the load, of what they get done beside the same server at rest",
            "the load: 64 bytes each way, asked by the kernel of the other host, which is on this machine too; a run in which it was not answered in time fails",
        ],
    }
}

const SETUPS: [Setup; 6] = [
    Setup::new("heavy-kernel", "16,000/s, kernel", |testbed| {
        left(testbed, Stack::Kernel, HEAVY)
    }),
    Setup::new("heavy-inline", "16,000/s, inline", |testbed| {
        left(testbed, INLINE, HEAVY)
    }),
    Setup::new("heavy-engine", "16,000/s, engine", |testbed| {
        let _engine = testbed.start_engine(On::A, &[])?;
        left(testbed, Stack::Engine, HEAVY)
    }),
    Setup::new("light-kernel", "2,000/s, kernel", |testbed| {
        left(testbed, Stack::Kernel, LIGHT)
    }),
    Setup::new("light-inline", "2,000/s, inline", |testbed| {
        left(testbed, INLINE, LIGHT)
    }),
    Setup::new("light-engine", "2,000/s, engine", |testbed| {
        let _engine = testbed.start_engine(On::A, &[])?;
        left(testbed, Stack::Engine, LIGHT)
    }),
];

fn left(testbed: &Testbed, stack: Stack, per_ms: u32) -> anyhow::Result<Values> {
    let seconds = testbed.scale().seconds;
    let mut server = Asked::start(testbed, stack, 0)?;
    let at_rest = || alone(Duration::from_secs_f64(seconds));
    let mut disturbed = String::new();
    for _ in 0..TRIES {
        let before = at_rest()?;
        let (took_s, per_s) = beside(|| server.paced(per_ms))?;
        let after = at_rest()?;
        let drift = (after / before - 1.0).abs();
        if took_s >= LATE * seconds {
            disturbed = format!("{seconds} s of load took {took_s:.2} s: it was not the same load");
        } else if drift > DRIFT {
            let percent = 100.0 * drift;
            disturbed = format!("work at rest differs by {percent:.0} % before and after");
        } else {
            let whole = f64::midpoint(before, after);
            return Ok(vec![("left", 100.0 * per_s / whole)]);
        }
    }
    bail!("the machine is busy or has no time for such a load: {disturbed}")
}
