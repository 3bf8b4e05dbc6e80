//! Fragments against a naive oracle: a map from packet to the bytes that have come, without bounds on
//! memory. Checked: what is put together is what the oracle has, and all memory comes back.

use crate::config::Config;
use crate::containers::demux::FourTuple;
use crate::counters::Counters;
use crate::ip::reassembly::{ASSEMBLED_MAX, Piece, Reassembly};
use crate::link::interface::InterfaceId;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::collections::HashMap;
use tcp::{Duration, Instant};
use wire::ecn::Ecn;
use wire::ethernet::Address;

const HEADERS: [u8; 20] = [0x45; 20];

/// A packet as the oracle knows it.
#[derive(Default)]
struct Known {
    bytes: Vec<Option<u8>>,
    total: Option<usize>,
    refused: bool,
    until: Instant,
}

#[derive(Default)]
struct Oracle {
    packets: HashMap<FourTupleKey, Known>,
}

/// Which packet: family and number.
type FourTupleKey = (bool, u8);

impl Oracle {
    /// The whole packet, if this fragment completes it.
    fn take(&mut self, now: Instant, key: FourTupleKey, piece: &Piece<'_>) -> Option<Vec<u8>> {
        self.packets.retain(|_, known| known.until > now);
        let lifetime = Duration::from_secs(if key.0 { 60 } else { 30 });
        let known = self.packets.entry(key).or_insert_with(|| Known {
            until: now + lifetime,
            ..Known::default()
        });
        if known.refused {
            return None;
        }
        let start = usize::from(piece.offset);
        let end = start + piece.bytes.len();
        let wrong_end = match (known.total, piece.more) {
            (Some(total), true) => end > total,
            (Some(total), false) => end != total,
            (None, false) => known.bytes.len() > end,
            (None, true) => false,
        };
        let there = |at: usize| known.bytes.get(at).copied().flatten();
        let old: Vec<_> = (start..end).filter_map(there).collect();
        if !wrong_end && old == piece.bytes {
            return None;
        }
        if wrong_end || !old.is_empty() {
            if key.0 {
                known.refused = true;
            } else {
                self.packets.remove(&key);
            }
            return None;
        }
        known.bytes.resize(known.bytes.len().max(end), None);
        for (place, byte) in known.bytes[start..end].iter_mut().zip(piece.bytes) {
            *place = Some(*byte);
        }
        if !piece.more {
            known.total = Some(end);
        }
        let whole: Option<Vec<u8>> = known.bytes.iter().copied().collect();
        let whole = whole.filter(|_| known.total.is_some())?;
        self.packets.remove(&key);
        Some(whole)
    }
}

/// Takes in the fragments that `bytes` spell.
pub fn fragments(bytes: &[u8]) {
    let config = Config {
        fragmented_packets_max: 16,
        fragment_bytes_max: 1 << 20,
        ..Config::new([3; 16])
    };
    let mut table = Reassembly::new(&config);
    let (mut oracle, mut counters) = (Oracle::default(), Counters::default());
    let mut now = Instant::from_us(1_000_000);
    let mut out = vec![0; ASSEMBLED_MAX];
    let data: Vec<u8> = (0..65_536_u32).map(|at| at.to_le_bytes()[1] ^ 7).collect();
    let (operations, _) = bytes.as_chunks::<5>();
    for &[what, at, len, flags, wait] in operations {
        now += Duration::from_ms(u64::from(wait) * 20);
        while let Some(late) = table.expired(now) {
            table.give_up(late);
        }
        let is_v6 = what & 1 != 0;
        let more = flags & 1 != 0;
        // Long ones too, so that blocks and words are crossed.
        let scale = [1, 1, 16, 120][usize::from(flags >> 6)];
        let offset = u16::from(at & 31) * 8 * scale;
        let mut len = usize::from(len & 31) * 8 * usize::from(scale);
        if !more {
            len += usize::from(flags >> 1 & 7);
        }
        if len == 0 || usize::from(offset) + len > 65_535 {
            continue;
        }
        // Two packets of each family; some fragments differ from what was there.
        let key = (is_v6, what >> 1 & 1);
        let skew = usize::from(flags >> 5 & 1);
        let place = usize::from(offset) + skew * 8;
        let Some(bytes) = data.get(place..place + len) else {
            continue;
        };
        let piece = Piece {
            key: tuple(key),
            headers: &HEADERS,
            named_at: 6,
            offset,
            more,
            bytes,
            ecn: Ecn::NotEct,
            interface: InterfaceId(0),
            station: Address([2; 6]),
        };
        let whole = table.take(now, &piece, &mut counters);
        let whole = whole.and_then(|whole| table.assemble(whole, &mut out));
        let whole = whole.map(|assembled| out[assembled.headers_len..assembled.len].to_vec());
        assert_eq!(whole, oracle.take(now, key, &piece));
    }
    now += Duration::from_secs(60);
    while let Some(late) = table.expired(now) {
        table.give_up(late);
    }
    assert!(table.is_empty(), "everything comes back");
}

fn tuple((is_v6, number): FourTupleKey) -> FourTuple {
    let (local, remote): (IpAddr, IpAddr) = if is_v6 {
        (Ipv6Addr::LOCALHOST.into(), Ipv6Addr::from_bits(9).into())
    } else {
        (Ipv4Addr::LOCALHOST.into(), Ipv4Addr::from_bits(9).into())
    };
    FourTuple::new(local, 17, remote, number.into())
}
