//! A market: an exchange multicasts quotes at the times of a fixed timetable, a trader answers some of them by orders over TCP,
//! and the exchange sends back fills. The exchange's clock alone tells tick to order, each end tells its own share.
//!
//! Prices are made up; both ends know from a price whether it is worth an order, so that a lost quote is noticed.

use std::{
    io::{ErrorKind, Read, Write},
    net::{Ipv4Addr, SocketAddrV4, TcpStream, UdpSocket},
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use clap::Args;
use serde::{Deserialize, Serialize};
use statistics::Times;

use super::common::{SILENCE, connect, listen, spin};

/// Multicast quotes and take orders of one trader after the other, until killed.
#[derive(Debug, Args)]
pub struct Exchange {
    /// Where orders are taken; quotes leave from this address.
    #[arg(long)]
    listen: SocketAddrV4,
}

/// Trade for a time.
#[derive(Debug, Args)]
pub struct Trade {
    /// Where the exchange takes orders.
    #[arg(long)]
    connect: SocketAddrV4,
    /// The own address, where quotes come in.
    #[arg(long)]
    address: Ipv4Addr,
    /// Quotes that are asked for.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    quotes: u32,
    /// Do not wait in calls.
    #[arg(long)]
    spin: bool,
}

/// What came of it.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Traded {
    /// Orders, each for a quote, and each filled.
    pub orders: u64,
    /// From a quote's sending to its order's arrival: the median.
    pub p50_us: f64,
    /// Its 99th percentile.
    pub p99_us: f64,
    /// Of that at the trader, from a quote in its hands to the end of send(2) of its order.
    pub trader_us: f64,
    /// At the exchange, from an order in its hands to the end of send(2) of its fill.
    pub exchange_us: f64,
}

/// In the message of a trader that fell too far behind.
pub const QUOTES_LOST: &str = "quotes were lost";

const GROUP: Ipv4Addr = Ipv4Addr::new(239, 7, 7, 7);
const PORT: u16 = 11116;
/// Bytes of a quote, of an order and of a fill: numbers of eight bytes.
const BYTES: usize = 32;
/// Times between quotes: bursts, and silence between them.
const GAPS_US: [u64; 16] = [
    900, 4, 3, 5, 250, 600, 3, 2, 2, 3, 1400, 80, 300, 2, 700, 150,
];
/// How long quotes wait for the next order at the end.
const PATIENCE: Duration = Duration::from_secs(2);

type Message = [u8; BYTES];

fn message(numbers: [u64; 4]) -> Message {
    let mut message = [0; BYTES];
    for (place, number) in message.chunks_exact_mut(8).zip(numbers) {
        place.copy_from_slice(&number.to_le_bytes());
    }
    message
}

fn numbers(message: &Message) -> [u64; 4] {
    let mut numbers = [0; 4];
    for (number, place) in numbers.iter_mut().zip(message.chunks_exact(8)) {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(place);
        *number = u64::from_le_bytes(bytes);
    }
    numbers
}

/// A price that jumps about, always the same for a quote.
fn price(quote: u64) -> u64 {
    (quote.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) + 100
}

fn is_worth_an_order(price: u64) -> bool {
    price.is_multiple_of(2)
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Exchange {
    /// Runs until it is killed.
    pub fn run(&self) -> anyhow::Result<()> {
        let quotes = UdpSocket::bind(SocketAddrV4::new(*self.listen.ip(), 0)).context("binding")?;
        let listener = listen(self.listen)?;
        loop {
            let (mut trader, _) = listener.accept()?;
            trader.set_nodelay(true)?;
            trader.set_read_timeout(Some(SILENCE))?;
            let mut asked = [0; BYTES];
            // Who only looks whether somebody listens asks for nothing.
            if trader.read_exact(&mut asked).is_err() {
                continue;
            }
            trader.set_nonblocking(true)?;
            let mut session = Session {
                quotes: &quotes,
                trader,
                sent: Vec::new(),
                orders: Times::default(),
                shares: Times::default(),
                held: Vec::new(),
            };
            // A trader that fails tells of it itself.
            if let Err(error) = session.run(numbers(&asked)[0]) {
                note!("exchange: {error:#}");
            }
        }
    }
}

/// One trader's session at the exchange.
struct Session<'s> {
    quotes: &'s UdpSocket,
    trader: TcpStream,
    sent: Vec<Instant>,
    orders: Times,
    shares: Times,
    /// The beginning of an order.
    held: Vec<u8>,
}

impl Session<'_> {
    fn run(&mut self, quotes: u64) -> anyhow::Result<()> {
        let mut due = Instant::now();
        for quote in 0..quotes {
            let gap = GAPS_US[usize::try_from(quote)? % GAPS_US.len()];
            due += Duration::from_micros(gap);
            while Instant::now() < due {
                self.take_orders()?;
            }
            self.sent.push(Instant::now());
            let bytes = message([quote, price(quote), 0, 0]);
            self.quotes
                .send_to(&bytes, (GROUP, PORT))
                .context("a quote")?;
        }
        let wanted = (0..quotes).filter(|&quote| is_worth_an_order(price(quote)));
        let wanted = wanted.count() as u64;
        let (mut last, mut taken) = (Instant::now(), 0);
        while self.orders.count() < wanted && last.elapsed() < PATIENCE {
            self.take_orders()?;
            // A trader that is behind has time for as long as it goes on.
            if self.orders.count() > taken {
                (last, taken) = (Instant::now(), self.orders.count());
            }
        }
        let percentile = |times: &Times, percent| {
            let us = times.percentile_us(percent).unwrap_or(0.0);
            ns(Duration::from_secs_f64(us / 1e6))
        };
        let summary = [
            self.orders.count(),
            percentile(&self.orders, 50.0),
            percentile(&self.orders, 99.0),
            percentile(&self.shares, 50.0),
        ];
        self.trader.set_nonblocking(false)?;
        self.trader.write_all(&message(summary))?;
        Ok(())
    }

    fn take_orders(&mut self) -> anyhow::Result<()> {
        let mut bytes = [0; BYTES];
        let room = BYTES - self.held.len();
        match self.trader.read(&mut bytes[..room]) {
            Ok(0) => bail!("the trader has gone"),
            Ok(count) => self.held.extend(&bytes[..count]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error).context("orders"),
        }
        let arrived = Instant::now();
        let Ok(order) = Message::try_from(self.held.as_slice()) else {
            return Ok(());
        };
        self.held.clear();
        let quote = numbers(&order)[0];
        let sent = self.sent.get(usize::try_from(quote)?);
        let sent = sent.context("an order for a quote that was not sent")?;
        self.orders.add(arrived - *sent);
        let mut rest = &order[..];
        while !rest.is_empty() {
            let count = spin(|| self.trader.write(rest)).context("a fill")?;
            rest = &rest[count..];
        }
        self.shares.add(arrived.elapsed());
        Ok(())
    }
}

impl Trade {
    /// Trades until all quotes have come.
    pub fn run(&self) -> anyhow::Result<Traded> {
        let quotes = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PORT)).context("binding")?;
        quotes
            .join_multicast_v4(&GROUP, &self.address)
            .with_context(|| format!("joining {GROUP} at {}", self.address))?;
        if self.spin {
            quotes.set_nonblocking(true)?;
        } else {
            quotes.set_read_timeout(Some(PATIENCE))?;
        }
        let mut exchange = connect(self.connect, self.spin)?;
        let count = u64::from(self.quotes);
        send(&mut exchange, &message([count, 0, 0, 0])).context("asking for quotes")?;
        let (mut shares, mut orders) = (Times::default(), 0);
        for expected in 0..count {
            let mut bytes = [0; BYTES];
            let received = match self.spin {
                true => spin(|| quotes.recv(&mut bytes)),
                false => quotes.recv(&mut bytes),
            };
            let received = received.with_context(|| format!("quote {expected}: {QUOTES_LOST}"))?;
            let began = Instant::now();
            ensure!(received == BYTES, "a quote of {received} bytes");
            let [quote, price, ..] = numbers(&bytes);
            ensure!(
                quote == expected,
                "quote {quote} came where {expected} was due: {QUOTES_LOST}"
            );
            if !is_worth_an_order(price) {
                continue;
            }
            send(&mut exchange, &message([quote, price, 0, 0])).context("an order")?;
            shares.add(began.elapsed());
            orders += 1;
            let fill = receive(&mut exchange).context("a fill")?;
            ensure!(numbers(&fill)[0] == quote, "a fill of another order");
        }
        let [counted, p50_ns, p99_ns, exchange_ns] = numbers(&receive(&mut exchange)?);
        ensure!(
            counted == orders && orders > 0,
            "{orders} orders were sent and {counted} came to the exchange"
        );
        let us = |ns: u64| ns as f64 / 1e3;
        Ok(Traded {
            orders,
            p50_us: us(p50_ns),
            p99_us: us(p99_ns),
            trader_us: shares.percentile_us(50.0).context("no order")?,
            exchange_us: us(exchange_ns),
        })
    }
}

fn send(stream: &mut TcpStream, message: &Message) -> std::io::Result<()> {
    let mut rest = &message[..];
    while !rest.is_empty() {
        let count = spin(|| stream.write(rest))?;
        rest = &rest[count..];
    }
    Ok(())
}

fn receive(stream: &mut TcpStream) -> std::io::Result<Message> {
    let mut message = [0; BYTES];
    let mut got = 0;
    while got < BYTES {
        match spin(|| stream.read(&mut message[got..]))? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            count => got += count,
        }
    }
    Ok(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_quotes_are_worth_an_order_and_numbers_come_back() {
        let worth = (0..1000).filter(|&quote| is_worth_an_order(price(quote)));
        let count = worth.count();
        assert!((300..700).contains(&count), "{count}");
        assert_eq!(numbers(&message([1, 2, u64::MAX, 4])), [1, 2, u64::MAX, 4]);
    }

    #[test]
    fn every_order_is_filled_and_timed_by_the_exchange() {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let listen: SocketAddrV4 = free.local_addr().unwrap().to_string().parse().unwrap();
        drop(free);
        std::thread::spawn(move || Exchange { listen }.run());
        while TcpStream::connect(listen).is_err() {
            std::thread::yield_now();
        }
        let trade = Trade {
            connect: listen,
            address: Ipv4Addr::LOCALHOST,
            quotes: 64,
            spin: false,
        };
        let traded = trade.run().unwrap();
        assert!(traded.orders > 10 && traded.p50_us > 0.0, "{traded:?}");
        assert!(traded.p50_us <= traded.p99_us, "{traded:?}");
        assert!(traded.trader_us > 0.0 && traded.exchange_us > 0.0);
    }
}
