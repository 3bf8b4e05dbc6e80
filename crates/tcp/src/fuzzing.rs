//! Bodies of the fuzz targets, also run by property tests.

use crate::{Config, Connection, Duration, Instant, ReceiveWindow, SeqNumber, TransmitLimits};
use wire::tcp::{Flags, Header};

/// A window that checks the one promise: never outside the capacity beyond what was consumed.
struct Bounded {
    consumed: u64,
    capacity: u64,
}

impl ReceiveWindow for Bounded {
    fn write(&mut self, offset: u64, data: &[u8]) {
        let end = offset + u64::try_from(data.len()).expect("a length fits 64 bits");
        assert!(offset >= self.consumed && end <= self.consumed + self.capacity);
    }
}

/// A hostile peer and a busy program as an operation list over a live connection: no panic, no write
/// outside the window, no endless transmission, and a quiet connection that still has a timer.
pub fn hostile_peer(data: &[u8]) {
    let mut scene = Scene::new();
    for operation in data.chunks_exact(OPERATION) {
        scene.act(operation);
        scene.transmit();
    }
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
    fn new() -> Self {
        let config = Config {
            receive_capacity: WINDOW,
            send_capacity: WINDOW,
            ..Config::default()
        };
        let now = Instant::from_us(1_000_000);
        Self {
            connection: Connection::connect(&config, SeqNumber(ISS), now),
            window: Bounded {
                consumed: 0,
                capacity: u64::from(WINDOW),
            },
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
                let _ = connection.handle_timeout(self.now);
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
            let Some(transmit) = connection.poll_transmit(self.now, &limits) else {
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
    }
}
