//! `shunt bench placement`: two programs with an engine each, and with one engine for both; and one program over two engines, policy by
//! policy: the `toe` paper's future work.

use anyhow::{Context as _, ensure};
use lab::INTERFACE;
use sim::placement::jain;

use super::{
    asked::Asked,
    row::{Row, from},
    samples::Values,
    setup::{Plan, Setup},
    testbed::{On, Placement, Stack, Testbed},
};
use crate::{apps::case::Better, cores};

/// Clients of each server.
const CLIENTS: u32 = 16;
/// Connections of one program over two engines.
const SPREAD_CLIENTS: u32 = 32;
/// A server's computation for each request.
const COMPUTE_US: u32 = 2;
const FIRST: &str = hostif::DEFAULT_ENGINE_NAME;
const SECOND: &str = "@shunt/second";

/// What is measured.
pub fn plan() -> Plan {
    Plan {
        setups: setups(),
        rows: rows(),
        notes: vec![
            "64 bytes each way and 2 µs of computation; two servers, each asked by 16 clients on the kernel of the other host, at the same time; both rates together",
            "the second engine has the processor before the first one's, which on two processors the programs use as well",
            "the row that is beside one engine has that engine's values in the column of the kernel",
            "one program: 32 connections of a client over both engines to a server on the kernel of the other host",
            "Jain index: 1 where both have the same, 0.5 where one has all",
        ],
    }
}

fn rows() -> Vec<Row> {
    let rows = TWO_PROGRAMS.map(|(what, kernel, shunt)| {
        let quantity = |what, unit, quantity| Row {
            what,
            unit,
            better: Better::Higher,
            kernel: Some(from(kernel, quantity)),
            shunt: from(shunt, quantity),
        };
        [
            quantity(what, "requests/s", "rate"),
            quantity("  Jain index of the two programs", "1 is even", "jain"),
        ]
    });
    let of_policies = POLICIES.map(|policy| {
        [
            Row {
                what: policy.what,
                unit: "requests/s",
                better: Better::Higher,
                kernel: Some(from("client-kernel", "rate")),
                shunt: from(policy.name, "rate"),
            },
            Row {
                what: "  Jain index of the connections of the two engines",
                unit: "1 is even",
                better: Better::Higher,
                kernel: None,
                shunt: from(policy.name, "jain"),
            },
            Row {
                what: "  of these connections, on the first engine",
                unit: "%",
                better: Better::Higher,
                kernel: None,
                shunt: from(policy.name, "first"),
            },
        ]
    });
    let of_policies = of_policies.into_iter().flatten();
    rows.into_iter().flatten().chain(of_policies).collect()
}

fn setups() -> Vec<Setup> {
    let mut setups = vec![
        Setup::new("kernel", "two programs, kernel", |testbed| {
            let place = testbed.placement(On::A, Stack::Kernel)?;
            two_programs(testbed, [place.with_port(0), place.with_port(1)])
        }),
        Setup::new("one", "two programs, one engine", |testbed| {
            let _engine = testbed.start_engine(On::A, &[])?;
            let place = testbed.placement(On::A, Stack::Engine)?;
            two_programs(testbed, [place.with_port(0), place.with_port(1)])
        }),
        Setup::new("two", "two programs, an engine each", |testbed| {
            let engines = Engines::start(testbed, On::A)?;
            two_programs(testbed, engines.places)
        }),
        Setup::new("client-kernel", "one program, kernel", |testbed| {
            let client = testbed.placement(On::B, Stack::Kernel)?;
            Ok(vec![("rate", spread(testbed, client)?)])
        }),
    ];
    setups.extend(POLICIES.map(|policy| Setup::new(policy.name, policy.name, policy.measure)));
    setups
}

const TWO_PROGRAMS: [(&str, &str, &str); 3] = [
    ("two programs, an engine each", "kernel", "two"),
    ("two programs, one engine for both", "kernel", "one"),
    ("an engine each, beside one engine for both", "one", "two"),
];

struct Policy {
    name: &'static str,
    what: &'static str,
    measure: fn(&Testbed) -> anyhow::Result<Values>,
}

const POLICIES: [Policy; 4] = [
    Policy {
        name: "priority",
        what: "one program over two engines, priority",
        measure: |testbed| over_both(testbed, "priority"),
    },
    Policy {
        name: "round-robin",
        what: "one program over two engines, round-robin",
        measure: |testbed| over_both(testbed, "round-robin"),
    },
    Policy {
        name: "least-load",
        what: "one program over two engines, least-load",
        measure: |testbed| over_both(testbed, "least-load"),
    },
    Policy {
        name: "flow-hash",
        what: "one program over two engines, flow-hash",
        measure: |testbed| over_both(testbed, "flow-hash"),
    },
];

/// Two engines of one host, each with a processor of its own where there are two.
struct Engines {
    places: [Placement; 2],
    _engines: [lab::Program; 2],
}

impl Engines {
    fn start(testbed: &Testbed, on: On) -> anyhow::Result<Self> {
        let mut cpus = cores::for_engines();
        let first = testbed.start_engine_on(on, &[], cpus.next())?;
        let address = testbed.fresh_address(on)?;
        let with_length = format!("{address}/24");
        let flags = ["--nic", INTERFACE, "--address", &with_length];
        let flags = [&flags[..], &["--name", SECOND]].concat();
        let second = testbed.start_engine_on(on, &flags, cpus.next())?;
        let place = |names| testbed.placement(on, Stack::Engines(names, None));
        Ok(Self {
            places: [place(&[FIRST])?, place(&[SECOND])?.reached_at(address)],
            _engines: [first, second],
        })
    }
}

/// Servers at both places, asked at the same time.
fn two_programs(testbed: &Testbed, [first, second]: [Placement; 2]) -> anyhow::Result<Values> {
    let mut first = Asked::start_at(testbed, first, COMPUTE_US)?;
    let mut second = Asked::start_at(testbed, second, COMPUTE_US)?;
    let from = testbed.placement(On::B, Stack::Kernel)?;
    let seen = Asked::together(testbed, from, CLIENTS, [&mut first, &mut second])?;
    let rates = seen.map(|seen| seen.rate_per_s);
    Ok(vec![("rate", rates.iter().sum()), ("jain", jain(&rates))])
}

/// What a client there gets answered in a second.
fn spread(testbed: &Testbed, client: Placement) -> anyhow::Result<f64> {
    let server = testbed.placement(On::A, Stack::Kernel)?;
    let mut server = Asked::start_at(testbed, server, COMPUTE_US)?;
    let [seen] = Asked::together(testbed, client, SPREAD_CLIENTS, [&mut server])?;
    Ok(seen.rate_per_s)
}

fn over_both(testbed: &Testbed, policy: &'static str) -> anyhow::Result<Values> {
    let _engines = Engines::start(testbed, On::B)?;
    let client = testbed.placement(On::B, Stack::Engines(&[FIRST, SECOND], Some(policy)))?;
    let rate = spread(testbed, client)?;
    let opened = |name: &str| -> anyhow::Result<f64> {
        let status = testbed.status(On::B, name)?;
        let opened = status["stack_counters"]["TcpActiveOpens"].as_f64();
        opened.context("the engine does not say how many connections were opened")
    };
    let opened = [opened(FIRST)?, opened(SECOND)?];
    let all: f64 = opened.iter().sum();
    ensure!(
        all > f64::from(SPREAD_CLIENTS),
        "{all} connections were opened, not all {SPREAD_CLIENTS} and that which asks for the server's figures"
    );
    Ok(vec![
        ("rate", rate),
        ("jain", jain(&opened)),
        ("first", 100.0 * opened[0] / all),
    ])
}
