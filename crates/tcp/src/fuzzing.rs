//! Bodies of the fuzz targets, also run by property tests.

use crate::{
    Algorithm, Config, Connection, Duration, EcnMode, FastOpen, Instant, ReceiveWindow, SeqNumber,
    SocketOptions, TransmitLimits,
    send::flight_pool::{FlightPool, OneBlock},
};
use wire::tcp::{Flags, Header};

/// A window that checks the one promise: never outside the capacity beyond what was consumed.
struct Bounded {
    consumed: u64,
    capacity: u64,
    flights: OneBlock,
}

impl ReceiveWindow for Bounded {
    fn write(&mut self, offset: u64, data: &[u8]) {
        let end = offset + u64::try_from(data.len()).expect("a length fits 64 bits");
        assert!(offset >= self.consumed && end <= self.consumed + self.capacity);
    }

    fn flights(&mut self) -> &mut dyn FlightPool {
        &mut self.flights
    }
}

/// A hostile peer and a busy program as an operation list over a live connection: no panic, no write
/// outside the window, no endless transmission, and a quiet connection that still has a timer.
pub fn hostile_peer(data: &[u8]) {
    let mut scene = Scene::new(data.first().copied().unwrap_or(0));
    for operation in data.chunks_exact(OPERATION) {
        scene.act(operation);
        scene.transmit();
    }
}

/// A peer that acknowledges at will, cumulatively, selectively and twice, a program that writes, and
/// timers, over a connection with a wide window: the table of what is in flight stays whole, nothing is
/// sent that was not written, and there is always a timer.
pub fn hostile_acks(data: &[u8]) {
    let mut liar = Liar::new(data.first().copied().unwrap_or(0));
    for operation in data.chunks_exact(OPERATION) {
        liar.act(operation);
        liar.transmit();
    }
}

/// Bytes that go with a SYN (RFC 7413).
const SYN_BYTES: u64 = 400;

/// Bytes that the program of [`hostile_acks`] may have unacknowledged.
const WIDE: u32 = 1 << 20;

struct Liar {
    connection: Connection,
    nowhere: Bounded,
    now: Instant,
    written: u64,
    limits: TransmitLimits,
}

impl Liar {
    fn new(choice: u8) -> Self {
        let is_accurate = choice & 0x20 != 0;
        let options = SocketOptions {
            congestion: Algorithm::from_code(choice >> 3 & 3).unwrap_or_default(),
            ecn: if is_accurate {
                EcnMode::RequestAccurate
            } else {
                EcnMode::Request
            },
            ..SocketOptions::default()
        };
        let config = Config {
            send_capacity: WIDE,
            sack: choice & 1 == 0,
            timestamps: choice & 2 == 0,
            options,
            fast_open: if choice & 0x40 == 0 {
                FastOpen::Off
            } else {
                FastOpen::Holding
            },
            ..Config::default()
        };
        let now = Instant::from_us(5_000_000);
        let limits = TransmitLimits {
            mss: 1_460,
            max_payload: if choice & 4 == 0 { 1_460 } else { 64_000 },
        };
        let mut liar = Self {
            connection: Connection::connect(&config, SeqNumber(ISS), now),
            nowhere: Bounded {
                consumed: 0,
                capacity: 0,
                // None, one that is soon full, one for every segment.
                flights: OneBlock::of([0, 12, 40, 1_024][usize::from(choice >> 3 & 3)]),
            },
            now,
            written: 0,
            limits,
        };
        if choice & 0x40 != 0 {
            liar.written = SYN_BYTES;
            let _ = liar.connection.handle_written(now, SYN_BYTES);
        }
        liar.transmit();
        let is_taken = choice & 0xc0 == 0xc0;
        let mut syn_ack = liar.segment(if is_taken { 1 + SYN_BYTES } else { 1 }, 5_000);
        syn_ack.seq = 0;
        syn_ack.flags |= Flags::SYN;
        syn_ack.flags |= if is_accurate { Flags::CWR } else { Flags::ECE };
        syn_ack.options.mss = Some(1_460);
        syn_ack.options.sack_permitted = true;
        syn_ack.options.window_scale = Some(7);
        liar.arrive(&syn_ack);
        assert_eq!(liar.connection.state(), crate::State::Established);
        liar
    }

    fn segment(&self, ack: u64, stamp: u32) -> Header {
        Header {
            seq: 1,
            ack: self.connection.snd.space.wire(ack),
            flags: Flags::ACK,
            window: 40_000,
            options: wire::tcp::Options {
                timestamps: Some(wire::tcp::Timestamps {
                    value: 1,
                    echo: stamp,
                }),
                ..wire::tcp::Options::default()
            },
            ..Header::default()
        }
    }

    fn arrive(&mut self, header: &Header) {
        let _ = self
            .connection
            .handle_segment(self.now, header, &[], &mut self.nowhere);
    }

    fn act(&mut self, operation: &[u8]) {
        let [kind, a, b, c, d, e, f, g] = *operation else {
            return;
        };
        let (una, max) = (self.connection.snd.una, self.connection.snd.max);
        let near = |fine: u8, coarse: u8| {
            let step = u64::from(fine) * 100 + u64::from(coarse) * 20_000;
            una + step % (max - una + 3_000).max(1)
        };
        match kind % 8 {
            0 => {
                let room = self.connection.acknowledged() + u64::from(WIDE);
                self.written = (self.written + number(operation) as u64 % 80_000).min(room);
                let _ = self.connection.handle_written(self.now, self.written);
            }
            1 => {
                self.now += Duration::from_us(u64::from(number(operation)) >> (d % 24));
                let _ = self
                    .connection
                    .handle_timeout(self.now, &mut self.nowhere.flights);
            }
            2 => {
                let wait = self.connection.deadline().unwrap_or(self.now);
                self.now = self.now.max(wait);
                let _ = self
                    .connection
                    .handle_timeout(self.now, &mut self.nowhere.flights);
            }
            _ => {
                // Mostly SND.UNA itself, so that a flight lives long enough to be cut to pieces.
                let ack = if kind & 0x70 == 0 { near(a, b) } else { una };
                let stamp = self.connection.timestamp_clock(self.now);
                let mut header = self.segment(ack, stamp.wrapping_sub(u32::from(g)));
                if kind & 0x80 != 0 {
                    tell_marks(&mut header, f, number(operation));
                }
                let ends = [near(c, d), near(e, f), near(g, a), near(b, c)];
                for pair in ends.windows(2).take(usize::from(kind >> 3) % 4) {
                    let len = 1_000 * (1 + u64::from(a % 4));
                    let space = self.connection.snd.space;
                    let start = pair[0].saturating_sub(u64::from(g) % 3 * 2_000);
                    header
                        .options
                        .sack
                        .push(space.wire(start), space.wire(start + len));
                }
                self.arrive(&header);
            }
        }
    }

    fn transmit(&mut self) {
        for sent in 0.. {
            assert!(sent < 4_096, "transmission never ends");
            let pool = &mut self.nowhere.flights;
            let Some(transmit) = self.connection.poll_transmit(self.now, &self.limits, pool) else {
                break;
            };
            let end = transmit.offset + u64::from(transmit.len);
            assert!(end <= self.written, "sends what nobody wrote");
        }
        let connection = &mut self.connection;
        connection.snd.sent.table(&mut self.nowhere.flights).check();
        let info = connection.info();
        assert!(connection.pipe() <= info.flight);
        assert!(info.cwnd > 0 || !info.state.is_synchronized());
        assert!(info.cwnd <= 1 << 30 && info.pacing_rate != Some(0));
        assert!(
            info.flight == 0
                || info.state == crate::State::Closed
                || connection.deadline().is_some()
        );
    }
}

/// Echoes congestion, with counters that may be anything.
fn tell_marks(header: &mut Header, choice: u8, number: u32) {
    header.ae = choice & 1 != 0;
    header.flags.set(Flags::CWR, choice & 2 != 0);
    header.flags.set(Flags::ECE, choice & 4 != 0);
    let counter = |shift: u8| (choice >> shift & 1 != 0).then_some(number >> (choice >> 5));
    header.options.accurate_ecn = (choice & 8 != 0).then(|| wire::tcp::AccurateEcn {
        ect0: counter(4),
        ce: counter(5),
        ect1: counter(6),
    });
}

/// Bytes of one operation.
const OPERATION: usize = 8;
const ISS: u32 = 77;
const WINDOW: u32 = 4_096;

struct Scene {
    connection: Connection,
    window: Bounded,
    now: Instant,
    irs: u32,
    written: u64,
}

impl Scene {
    /// Active, or one or the other with Fast Open.
    fn new(choice: u8) -> Self {
        let config = Config {
            receive_capacity: WINDOW,
            send_capacity: WINDOW,
            fast_open: match choice & 0x60 {
                0x20 => FastOpen::Holding,
                0x40 => FastOpen::Asking,
                _ => FastOpen::Off,
            },
            ..Config::default()
        };
        let now = Instant::from_us(1_000_000);
        let mut window = Bounded {
            consumed: 0,
            capacity: u64::from(WINDOW),
            flights: OneBlock::default(),
        };
        let connection = if choice & 0x60 == 0x60 {
            let syn = Header {
                flags: Flags::SYN,
                window: 9_000,
                ..Header::default()
            };
            let mut served = Connection::accept(&config, SeqNumber(ISS), now, &syn);
            let _ = served.open_fast(&[0; 100], &mut window);
            served
        } else {
            Connection::connect(&config, SeqNumber(ISS), now)
        };
        Self {
            connection,
            window,
            now,
            irs: 0,
            written: 0,
        }
    }

    fn act(&mut self, operation: &[u8]) {
        let small = u64::from(operation[4]);
        let (connection, now) = (&mut self.connection, self.now);
        match (operation[0] % 8, small) {
            (0..=3, _) => self.arrive(operation),
            (4, _) => {
                let room = connection.acknowledged() + u64::from(WINDOW);
                self.written = (self.written + small).min(room);
                let _ = connection.handle_written(now, self.written);
            }
            (5, _) => {
                let end = connection.readable_end();
                if connection.handle_consumed(now, end).is_ok() {
                    self.window.consumed = end;
                }
            }
            (6, _) => {
                self.now += Duration::from_us(u64::from(number(operation)));
                let _ = connection.handle_timeout(self.now, &mut self.window.flights);
            }
            (7, 7) => drop(connection.close(now)),
            (7, 8) => drop(connection.shutdown_write(now)),
            _ => {}
        }
    }

    /// A segment, near what the connection expects or anywhere.
    fn arrive(&mut self, operation: &[u8]) {
        let (small, choice) = (u32::from(operation[4]), operation[5]);
        let number = number(operation);
        let [a, b, c, d, ..] = self.connection.readable_end().to_le_bytes();
        let expected = self
            .irs
            .wrapping_add(1)
            .wrapping_add(u32::from_le_bytes([a, b, c, d]));
        let mut header = Header {
            seq: if choice & 1 == 0 {
                expected.wrapping_add(small)
            } else {
                number
            },
            ack: ISS.wrapping_add(if choice & 2 == 0 { small } else { number }),
            flags: Flags::from_bits_retain(operation[6]),
            window: u16::from_le_bytes([operation[7], operation[4]]),
            urgent: u16::from(operation[3]),
            ..Header::default()
        };
        if choice & 4 != 0 {
            header.options.sack.push(ISS + small, ISS + small + number);
        }
        if choice & 8 != 0 {
            header.options.timestamps = Some(wire::tcp::Timestamps {
                value: number,
                echo: small,
            });
        }
        if header.flags.contains(Flags::SYN) && self.irs == 0 {
            self.irs = header.seq;
            header.options.sack_permitted = choice & 16 != 0;
            header.options.window_scale = (choice & 32 != 0).then_some(operation[7]);
        }
        let payload = vec![0; usize::from(operation[2]) * usize::from(operation[1] % 8)];
        let _ = self
            .connection
            .handle_segment(self.now, &header, &payload, &mut self.window);
    }

    fn transmit(&mut self) {
        let limits = TransmitLimits {
            mss: 1_460,
            max_payload: 16_000,
        };
        let connection = &mut self.connection;
        for sent in 0.. {
            assert!(sent < 4_096, "transmission never ends");
            let Some(transmit) =
                connection.poll_transmit(self.now, &limits, &mut self.window.flights)
            else {
                break;
            };
            let end = transmit.offset + u64::from(transmit.len);
            assert!(end <= self.written.max(connection.acknowledged()));
        }
        let waits = connection.info().flight > 0 && connection.state().is_synchronized();
        assert!(!waits || connection.deadline().is_some());
    }
}

fn number(operation: &[u8]) -> u32 {
    u32::from_le_bytes([operation[1], operation[2], operation[3], 0])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]
        #[test]
        fn a_hostile_peer_breaks_nothing(data in proptest::collection::vec(any::<u8>(), 0..800)) {
            super::hostile_peer(&data);
        }

        #[test]
        fn hostile_acks_break_nothing(data in proptest::collection::vec(any::<u8>(), 0..2_400)) {
            super::hostile_acks(&data);
        }
    }
}
