//! `shunt bench trading`: quotes by multicast in, orders by TCP out, fills back: the work of the `trading-nic` paper's client.

use anyhow::Context;
use load::market::{QUOTES_LOST, Traded};

use super::{
    samples::Values,
    setup::{Plan, Setup},
    testbed::{LOAD, On, Stack, Testbed},
};

const PORT: u16 = 11117;
/// Quotes for each second that was asked for; the timetable has some 3,600.
const QUOTES: f64 = 3000.0;
/// How often it is tried to lose none.
const TRIES: usize = 3;

pub fn plan() -> Plan {
    Plan::of(
        ROWS,
        Setup::all(SETUPS, trade),
        &[
            "quotes at the times of a fixed timetable with bursts, from the kernel of the other host; every second one or so is worth an order, each order is filled before the next quote is read",
            "tick to order: from a quote's sending to its order's arrival, by the exchange's clock; a run in which a quote, an order or a fill is missing fails",
        ],
    )
}

const ROWS: &str = "
tick to order, trader inline, kernel spinning, p50 | µs ↓ | spinning | inline | p50 p99
  the trader's share, p50                          | µs ↓ | spinning | inline | trader
  the exchange's share of a fill, p50              | µs ↓ | spinning | inline | exchange
tick to order, trader inline, kernel sleeping, p50 | µs ↓ | sleeping | inline | p50 p99
  the trader's share, p50                          | µs ↓ | sleeping | inline | trader
  the exchange's share of a fill, p50              | µs ↓ | sleeping | inline | exchange
";

/// With the flags of the trader.
const SETUPS: &str = "
spinning | trader on the kernel, spins  | --spin | kernel
sleeping | trader on the kernel, sleeps |        | kernel
inline   | trader inline                |        | inline
";

fn trade(testbed: &Testbed, setup: &Setup) -> anyhow::Result<Values> {
    let mut lost = None;
    for _ in 0..TRIES {
        match trade_once(testbed, setup) {
            Err(error) if format!("{error:#}").contains(QUOTES_LOST) => lost = Some(error),
            traded => return traded,
        }
    }
    let lost = lost.context("invariant: it was tried")?;
    Err(lost
        .context("the machine is busy: the trader falls so far behind that its socket has no room"))
}

fn trade_once(testbed: &Testbed, setup: &Setup) -> anyhow::Result<Values> {
    let [stack, _] = setup.ends();
    let exchange = testbed.placement(On::A, Stack::Kernel)?;
    let address = exchange.at(PORT).to_string();
    let line = [LOAD, "exchange", "--listen", &address];
    let mut server = testbed.serve(exchange, "listening", &line)?;
    let trader = testbed.placement(On::B, stack)?;
    let own = format!("--address={}", trader.address);
    let quotes = format!("--quotes={:.0}", testbed.scale.seconds * QUOTES);
    let mut line = vec![LOAD, "trade", "--connect", &address, &own, &quotes];
    line.extend(setup.what.split_ascii_whitespace());
    let traded: Traded = testbed.ask(trader, &line)?;
    server.check_alive()?;
    Ok(vec![
        ("p50", traded.p50_us),
        ("p99", traded.p99_us),
        ("trader", traded.trader_us),
        ("exchange", traded.exchange_us),
    ])
}
