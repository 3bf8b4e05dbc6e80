//! `shunt bench placement`: two programs with an engine each, and with one engine for both; and one program over two engines, policy by
//! policy: the `toe` paper's future work.

use std::net::Ipv4Addr;

use anyhow::{Context as _, ensure};
use lab::{INTERFACE, Program};
use sim::placement::jain;

use super::{
    asked::Asked,
    samples::Values,
    setup::{Plan, Setup},
    testbed::{On, Stack, Testbed},
};
use crate::cores;

/// Clients of each server.
const CLIENTS: u32 = 16;
/// Connections of one program over two engines.
const SPREAD_CLIENTS: u32 = 32;
/// A server's computation for each request.
const COMPUTE_US: u32 = 2;
const FIRST: &str = hostif::DEFAULT_ENGINE_NAME;
const SECOND: &str = "@shunt/second";

pub fn plan() -> Plan {
    let mut setups = Setup::all(TWO_PROGRAMS, two_programs);
    setups.extend(Setup::all(ONE_PROGRAM, one_program));
    Plan::of(
        ROWS,
        setups,
        &[
            "64 bytes each way and 2 µs of computation; two servers, each asked by 16 clients on the kernel of the other host, at the same time; both rates together",
            "the second engine has the processor before the first one's, which on two processors the programs use as well",
            "the row that is beside one engine has that engine's values in the column of the kernel",
            "one program: 32 connections of a client over both engines to a server on the kernel of the other host",
            "Jain index: 1 where both have the same, 0.5 where one has all",
        ],
    )
}

const ROWS: &str = "
two programs, an engine each                         | requests/s ↑ | kernel        | two         | rate
  Jain index of the two programs                     | 1 is even ↑  | kernel        | two         | jain
two programs, one engine for both                    | requests/s ↑ | kernel        | one         | rate
  Jain index of the two programs                     | 1 is even ↑  | kernel        | one         | jain
an engine each, beside one engine for both           | requests/s ↑ | one           | two         | rate
  Jain index of the two programs                     | 1 is even ↑  | one           | two         | jain
one program over two engines, priority               | requests/s ↑ | client-kernel | priority    | rate
  Jain index of the connections of the two engines   | 1 is even ↑  | -             | priority    | jain
  of these connections, on the first engine          | % ↑          | -             | priority    | first
one program over two engines, round-robin            | requests/s ↑ | client-kernel | round-robin | rate
  Jain index of the connections of the two engines   | 1 is even ↑  | -             | round-robin | jain
  of these connections, on the first engine          | % ↑          | -             | round-robin | first
one program over two engines, least-load             | requests/s ↑ | client-kernel | least-load  | rate
  Jain index of the connections of the two engines   | 1 is even ↑  | -             | least-load  | jain
  of these connections, on the first engine          | % ↑          | -             | least-load  | first
one program over two engines, flow-hash              | requests/s ↑ | client-kernel | flow-hash   | rate
  Jain index of the connections of the two engines   | 1 is even ↑  | -             | flow-hash   | jain
  of these connections, on the first engine          | % ↑          | -             | flow-hash   | first
";

const TWO_PROGRAMS: &str = "
kernel | two programs, kernel         | | kernel
one    | two programs, one engine     | | engine
two    | two programs, an engine each | | engine --engine @shunt/engine | engine --engine @shunt/second
";
/// Over both engines where there are any.
const ONE_PROGRAM: &str = "
client-kernel | one program, kernel | | kernel
priority      | priority            | | engine --engine @shunt/engine --engine @shunt/second --placement priority
round-robin   | round-robin         | | engine --engine @shunt/engine --engine @shunt/second --placement round-robin
least-load    | least-load          | | engine --engine @shunt/engine --engine @shunt/second --placement least-load
flow-hash     | flow-hash           | | engine --engine @shunt/engine --engine @shunt/second --placement flow-hash
";

/// Two engines of one host, each with a processor of its own where there are two; ended when they are dropped.
struct Engines {
    /// Where the second one is reached.
    second_address: Ipv4Addr,
    _engines: [Program; 2],
}

impl Engines {
    fn start(testbed: &Testbed, on: On) -> anyhow::Result<Self> {
        let mut cpus = cores::for_engines();
        let first = testbed.start_engine_on(on, &[], cpus.next())?;
        let second_address = testbed.fresh_address(on)?;
        let address = format!("{second_address}/24");
        let flags = ["--nic", INTERFACE, "--address", &address, "--name", SECOND];
        let second = testbed.start_engine_on(on, &flags, cpus.next())?;
        Ok(Self {
            second_address,
            _engines: [first, second],
        })
    }
}

fn two_programs(testbed: &Testbed, setup: &Setup) -> anyhow::Result<Values> {
    let [first, second] = setup.ends();
    let place = |stack| testbed.placement(On::A, stack);
    let (_engines, two);
    let [first, second] = if first == second {
        _engines = testbed.engines([(On::A, first)])?;
        let place = place(first)?;
        [place.with_port(0), place.with_port(1)]
    } else {
        two = Engines::start(testbed, On::A)?;
        [place(first)?, place(second)?.reached_at(two.second_address)]
    };
    let mut first = Asked::start_at(testbed, first, COMPUTE_US)?;
    let mut second = Asked::start_at(testbed, second, COMPUTE_US)?;
    let from = testbed.placement(On::B, Stack::Kernel)?;
    let seen = Asked::together(testbed, from, CLIENTS, [&mut first, &mut second])?;
    let rates = seen.map(|seen| seen.rate_per_s);
    Ok(vec![("rate", rates.iter().sum()), ("jain", jain(&rates))])
}

fn one_program(testbed: &Testbed, setup: &Setup) -> anyhow::Result<Values> {
    let [stack, _] = setup.ends();
    let is_kernel = stack == Stack::Kernel;
    let _engines = match is_kernel {
        true => None,
        false => Some(Engines::start(testbed, On::B)?),
    };
    let client = testbed.placement(On::B, stack)?;
    let server = testbed.placement(On::A, Stack::Kernel)?;
    let mut server = Asked::start_at(testbed, server, COMPUTE_US)?;
    let [seen] = Asked::together(testbed, client, SPREAD_CLIENTS, [&mut server])?;
    let rate = ("rate", seen.rate_per_s);
    if is_kernel {
        return Ok(vec![rate]);
    }
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
        rate,
        ("jain", jain(&opened)),
        ("first", 100.0 * opened[0] / all),
    ])
}
