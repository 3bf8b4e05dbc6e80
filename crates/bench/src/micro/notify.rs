//! `shunt bench notify`: when a sleeping program is told of what has come (`shunt run --notify`): what a policy gives in rate,
//! and what it takes in latency.

use super::{
    asked::Asked,
    row::{Row, from},
    samples::Values,
    setup::{Plan, Setup},
    testbed::{On, Stack, Testbed},
};
use crate::apps::case::Better;

/// Clients that keep the server busy.
const CLIENTS: u32 = 32;
/// The server's computation for each request.
const COMPUTE_US: u32 = 2;

/// What is measured.
pub fn plan() -> Plan {
    let mut rows = Vec::new();
    for policy in POLICIES {
        rows.extend(policy.rows());
    }
    let mut setups = vec![Setup::new("kernel", "kernel", |testbed| {
        measure(testbed, Stack::Kernel)
    })];
    setups.extend(POLICIES.map(|policy| Setup::new(policy.key, policy.key, policy.measure)));
    Plan {
        setups,
        rows,
        notes: vec![
            "64 bytes each way and 2 µs of computation; a server with epoll beside an engine, asked by the kernel of the other host; the kernel's server is told of each event",
            "returns from waiting: how often the server was told, by the answers that it gave",
        ],
    }
}

struct Policy {
    key: &'static str,
    titles: [&'static str; 4],
    measure: fn(&Testbed) -> anyhow::Result<Values>,
}

const RETURNS: &str = "  returns from waiting for each answer";
const P50: &str = "  p50 of these";
const ALONE: &str = "  p50 of a client alone";

const POLICIES: [Policy; 3] = [
    Policy {
        key: "each",
        titles: ["32 clients, --notify each", RETURNS, P50, ALONE],
        measure: |testbed| engine(testbed, "each"),
    },
    Policy {
        key: "every=8,us=100",
        titles: ["32 clients, --notify every=8,us=100", RETURNS, P50, ALONE],
        measure: |testbed| engine(testbed, "every=8,us=100"),
    },
    Policy {
        key: "full,us=1000",
        titles: ["32 clients, --notify full,us=1000", RETURNS, P50, ALONE],
        measure: |testbed| engine(testbed, "full,us=1000"),
    },
];

impl Policy {
    fn rows(&self) -> impl Iterator<Item = Row> {
        let quantities = [
            ("rate", "requests/s", Better::Higher),
            ("returns", "times", Better::Lower),
            ("p50", "µs", Better::Lower),
            ("alone", "µs", Better::Lower),
        ];
        let key = self.key;
        self.titles
            .into_iter()
            .zip(quantities)
            .map(move |(what, (quantity, unit, better))| Row {
                what,
                unit,
                better,
                kernel: Some(from("kernel", quantity)),
                shunt: from(key, quantity),
            })
    }
}

/// An engine's server that is told by this policy.
pub(super) fn engine(testbed: &Testbed, policy: &'static str) -> anyhow::Result<Values> {
    let _engine = testbed.start_engine(On::A, &[])?;
    measure(testbed, Stack::Notified(policy))
}

/// The server alone with one client, and with [`CLIENTS`].
pub(super) fn measure(testbed: &Testbed, stack: Stack) -> anyhow::Result<Values> {
    let mut server = Asked::start(testbed, stack, COMPUTE_US)?;
    let alone = server.by(1)?;
    let many = server.by(CLIENTS)?;
    Ok(vec![
        ("rate", many.rate_per_s),
        ("returns", many.server.turns),
        ("p50", many.p50_us),
        ("alone", alone.p50_us),
    ])
}
