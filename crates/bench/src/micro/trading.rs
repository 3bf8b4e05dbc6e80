//! `shunt bench trading`: quotes by multicast in, orders by TCP out, fills back: the work of the `trading-nic` paper's client.

use anyhow::Context;
use load::market::{QUOTES_LOST, Traded};

use super::{
    row::{Row, from},
    samples::Values,
    setup::{Plan, Setup},
    testbed::{LOAD, On, Stack, Testbed},
};
use crate::apps::case::Better;

const PORT: u16 = 11117;
/// Quotes for each second that was asked for; the timetable has some 3,600.
const QUOTES: f64 = 3000.0;
/// How often it is tried to lose none.
const TRIES: usize = 3;

/// What is measured.
pub fn plan() -> Plan {
    let mut rows = Vec::new();
    for (titles, kernel) in [
        (
            [
                "tick to order, trader inline, kernel spinning, p50",
                "  p99",
                "  the trader's share, p50",
                "  the exchange's share of a fill, p50",
            ],
            "spinning",
        ),
        (
            [
                "tick to order, trader inline, kernel sleeping, p50",
                "  p99",
                "  the trader's share, p50",
                "  the exchange's share of a fill, p50",
            ],
            "sleeping",
        ),
    ] {
        let quantities = ["p50", "p99", "trader", "exchange"];
        let row = |(what, quantity)| Row {
            what,
            unit: "µs",
            better: Better::Lower,
            kernel: Some(from(kernel, quantity)),
            shunt: from("inline", quantity),
        };
        rows.extend(titles.into_iter().zip(quantities).map(row));
    }
    Plan {
        setups: vec![
            Setup::new("spinning", "trader on the kernel, spins", |testbed| {
                trade(testbed, Stack::Kernel, true)
            }),
            Setup::new("sleeping", "trader on the kernel, sleeps", |testbed| {
                trade(testbed, Stack::Kernel, false)
            }),
            Setup::new("inline", "trader inline", |testbed| {
                trade(testbed, Stack::Inline("af_packet"), false)
            }),
        ],
        rows,
        notes: vec![
            "quotes at the times of a fixed timetable with bursts, from the kernel of the other host; every second one or so is worth an order, each order is filled before the next quote is read",
            "tick to order: from a quote's sending to its order's arrival, by the exchange's clock; a run in which a quote, an order or a fill is missing fails",
        ],
    }
}

fn trade(testbed: &Testbed, stack: Stack, spins: bool) -> anyhow::Result<Values> {
    let mut lost = None;
    for _ in 0..TRIES {
        match trade_once(testbed, stack, spins) {
            Err(error) if format!("{error:#}").contains(QUOTES_LOST) => lost = Some(error),
            traded => return traded,
        }
    }
    let lost = lost.context("invariant: it was tried")?;
    Err(lost
        .context("the machine is busy: the trader falls so far behind that its socket has no room"))
}

fn trade_once(testbed: &Testbed, stack: Stack, spins: bool) -> anyhow::Result<Values> {
    let exchange = testbed.placement(On::A, Stack::Kernel)?;
    let address = exchange.at(PORT).to_string();
    let mut server = testbed.serve(
        exchange,
        "listening",
        &[LOAD, "exchange", "--listen", &address],
    )?;
    let trader = testbed.placement(On::B, stack)?;
    let own = trader.address.to_string();
    let quotes = format!("{:.0}", testbed.scale().seconds * QUOTES);
    let line = [
        LOAD,
        "trade",
        "--connect",
        &address,
        "--address",
        &own,
        "--quotes",
        &quotes,
    ];
    let spin: &[&str] = if spins { &["--spin"] } else { &[] };
    let traded: Traded = testbed.ask(trader, &[&line[..], spin].concat())?;
    server.check_alive()?;
    Ok(vec![
        ("p50", traded.p50_us),
        ("p99", traded.p99_us),
        ("trader", traded.trader_us),
        ("exchange", traded.exchange_us),
    ])
}
