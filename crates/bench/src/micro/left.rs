//! `shunt bench left`: what a machine has left for other programs while a server answers a load that is the same on each stack.

use std::time::Duration;

use anyhow::{Context as _, bail};
use load::competing::{alone, beside};

use super::{
    asked::Asked,
    samples::Values,
    setup::{Plan, Setup},
    testbed::Testbed,
};

/// A load that took so many times longer than it should was not the same.
const LATE: f64 = 1.25;
/// Work at rest before and after may differ by so much; by more, others used the machine meanwhile.
const DRIFT: f64 = 0.1;
/// How often it is tried to have neither.
const TRIES: usize = 3;

pub fn plan() -> Plan {
    Plan::of(
        ROWS,
        Setup::all(SETUPS, left),
        &[
            "other programs: one on each processor that only computes; what they get done beside the load, of what they get done beside the same server at rest",
            "the load: 64 bytes each way, asked by the kernel of the other host, which is on this machine too; a run in which it was not answered in time fails",
        ],
    )
}

const ROWS: &str = "
left to other programs, 16,000 requests/s, server inline            | % of its work ↑ | heavy-kernel | heavy-inline | left
left to other programs, 16,000 requests/s, engine beside the server | % of its work ↑ | heavy-kernel | heavy-engine | left
left to other programs, 2,000 requests/s, server inline             | % of its work ↑ | light-kernel | light-inline | left
left to other programs, 2,000 requests/s, engine beside the server  | % of its work ↑ | light-kernel | light-engine | left
";

/// With the requests of each millisecond.
const SETUPS: &str = "
heavy-kernel | 16,000/s, kernel | 16 | kernel
heavy-inline | 16,000/s, inline | 16 | inline
heavy-engine | 16,000/s, engine | 16 | engine
light-kernel | 2,000/s, kernel  | 2  | kernel
light-inline | 2,000/s, inline  | 2  | inline
light-engine | 2,000/s, engine  | 2  | engine
";

fn left(testbed: &Testbed, setup: &Setup) -> anyhow::Result<Values> {
    let seconds = testbed.scale.seconds;
    let per_ms = setup.what.parse().context("requests of a setup")?;
    let mut server = Asked::start(testbed, setup, 0)?;
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
