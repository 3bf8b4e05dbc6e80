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
    let config = Config {
        receive_capacity: 4_096,
        send_capacity: 4_096,
        ..Config::default()
    };
    let mut now = Instant::from_us(1_000_000);
    let mut connection = Connection::connect(&config, SeqNumber(77), now);
    let mut window = Bounded {
        consumed: 0,
        capacity: 4_096,
    };
    let limits = TransmitLimits {
        mss: 1_460,
        max_payload: 16_000,
    };
    let mut irs = 0;
    let mut written = 0;
    for operation in data.chunks_exact(8) {
        let number = u32::from_le_bytes([operation[1], operation[2], operation[3], 0]);
        let small = u32::from(operation[4]);
        match operation[0] % 8 {
            0..=3 => {
                let mut header = Header {
                    seq: if operation[5] & 1 == 0 {
                        connection_ack(&connection, irs).wrapping_add(small)
                    } else {
                        number
                    },
                    ack: 77_u32.wrapping_add(if operation[5] & 2 == 0 { small } else { number }),
                    flags: Flags::from_bits_retain(operation[6]),
                    window: u16::from_le_bytes([operation[7], operation[4]]),
                    urgent: u16::from(operation[3]),
                    ..Header::default()
                };
                if operation[5] & 4 != 0 {
                    header.options.sack.push(77 + small, 77 + small + number);
                }
                if operation[5] & 8 != 0 {
                    header.options.timestamps = Some(wire::tcp::Timestamps {
                        value: number,
                        echo: small,
                    });
                }
                if header.flags.contains(Flags::SYN) && irs == 0 {
                    irs = header.seq;
                    header.options.sack_permitted = operation[5] & 16 != 0;
                    header.options.window_scale = (operation[5] & 32 != 0).then_some(operation[7]);
                }
                let payload = vec![0; usize::from(operation[2]) * usize::from(operation[1] % 8)];
                let _ = connection.handle_segment(now, &header, &payload, &mut window);
            }
            4 => {
                written = (written + u64::from(small)).min(connection.acknowledged() + 4_096);
                let _ = connection.handle_written(now, written);
            }
            5 => {
                if connection
                    .handle_consumed(now, connection.readable_end())
                    .is_ok()
                {
                    window.consumed = connection.readable_end();
                }
            }
            6 => {
                now += Duration::from_us(u64::from(number));
                let _ = connection.handle_timeout(now);
            }
            _ if small == 7 => {
                let _ = connection.close(now);
            }
            _ if small == 8 => {
                let _ = connection.shutdown_write(now);
            }
            _ => {}
        }
        for sent in 0.. {
            assert!(sent < 4_096, "transmission never ends");
            let Some(transmit) = connection.poll_transmit(now, &limits) else {
                break;
            };
            assert!(
                transmit.offset + u64::from(transmit.len) <= written.max(connection.acknowledged())
            );
        }
        let waits = connection.info().flight > 0;
        assert!(!waits || connection.deadline().is_some() || !connection.state().is_synchronized());
    }
}

fn connection_ack(connection: &Connection, irs: u32) -> u32 {
    let [a, b, c, d, ..] = connection.readable_end().to_le_bytes();
    irs.wrapping_add(1)
        .wrapping_add(u32::from_le_bytes([a, b, c, d]))
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
