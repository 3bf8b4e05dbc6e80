//! SYN cookies (RFC 4987 §3.6): the state of a half-open connection inside the numbers of the SYN-ACK,
//! so that a flood of SYNs costs no memory.
//!
//! The layout is Linux's: a keyed hash, a count of minutes in the top byte and an index into a table of
//! MSS in the low 24 bits of the sequence number; window scale, SACK and ECN in the six low bits of our
//! timestamp. Without timestamps on both sides only the MSS survives. When to send cookies is decided in
//! `stack`.

use crate::{
    connect::window_shift,
    seq::SeqNumber,
    time::{Duration, Instant},
};
use core::hash::Hasher as _;
use core::net::SocketAddr;
use siphasher::sip::SipHasher24;
use wire::tcp::{Flags, Header, Options};

/// How long one count lasts.
const PERIOD: Duration = Duration::from_secs(60);
/// Counts for which a cookie is good: between one and two minutes.
const AGE_MAX: u32 = 2;
/// How long after the last cookie an answer may still come.
pub const COOKIE_LIFETIME: Duration = Duration::from_secs(120);

const COUNT_SHIFT: u32 = 24;
const DATA_MASK: u32 = (1 << COUNT_SHIFT) - 1;

/// MSS that fit real links (as Linux): the largest not above the peer's is remembered.
const MSS_V4: [u16; 4] = [536, 1_300, 1_440, 1_460];
const MSS_V6: [u16; 4] = [1_220, 1_420, 1_440, 8_940];

/// Low bits of the timestamp that carry options.
const TIMESTAMP_BITS: u32 = 6;
const SHIFT_MASK: u32 = 0xf;
/// A shift that cannot be: the peer did not offer window scaling.
const NO_SHIFT: u32 = 0xf;
const SACK: u32 = 1 << 4;
const ECN: u32 = 1 << 5;

/// The four-tuple that a cookie is good for.
#[derive(Clone, Copy, Debug)]
pub struct CookieTuple {
    /// This host's end.
    pub local: SocketAddr,
    /// The peer's end.
    pub remote: SocketAddr,
}

/// The initial sequence number that carries a cookie in answer to `syn`.
pub fn cookie(secret: &[u8; 16], tuple: &CookieTuple, syn: &Header, now: Instant) -> SeqNumber {
    let table = mss_table(tuple);
    let offered = syn.options.mss.unwrap_or(table[0]);
    let index = table.iter().rposition(|mss| *mss <= offered).unwrap_or(0);
    let data = u32::try_from(index).unwrap_or(0);
    let count = count_at(now);
    let low = hash(secret, tuple, Some(count)).wrapping_add(data) & DATA_MASK;
    SeqNumber(
        hash(secret, tuple, None)
            .wrapping_add(syn.seq)
            .wrapping_add(count << COUNT_SHIFT)
            .wrapping_add(low),
    )
}

/// The SYN as far as a cookie remembers it, from the ACK that answers it; `None`: no cookie of ours.
///
/// `timestamp_offset` is that of the four-tuple's timestamp clock.
pub fn redeem(
    secret: &[u8; 16],
    tuple: &CookieTuple,
    ack: &Header,
    timestamp_offset: u32,
    now: Instant,
) -> Option<Header> {
    let peer_iss = ack.seq.wrapping_sub(1);
    let given = ack
        .ack
        .wrapping_sub(1)
        .wrapping_sub(hash(secret, tuple, None))
        .wrapping_sub(peer_iss);
    let count = count_at(now);
    let age = count.wrapping_sub(given >> COUNT_SHIFT) & (u32::MAX >> COUNT_SHIFT);
    if age >= AGE_MAX {
        return None;
    }
    let then = count.wrapping_sub(age);
    let data = given.wrapping_sub(hash(secret, tuple, Some(then))) & DATA_MASK;
    let mss = *mss_table(tuple).get(usize::try_from(data).ok()?)?;
    let mut syn = Header {
        source_port: ack.source_port,
        destination_port: ack.destination_port,
        seq: peer_iss,
        flags: Flags::SYN,
        window: ack.window,
        options: Options {
            mss: Some(mss),
            ..Options::default()
        },
        ..Header::default()
    };
    if let Some(timestamps) = ack.options.timestamps {
        // That there are timestamps says that the SYN had them; the echo is our own clock with options.
        let carried = timestamps.echo.wrapping_sub(timestamp_offset);
        let shift = carried & SHIFT_MASK;
        syn.options.timestamps = Some(timestamps);
        syn.options.sack_permitted = carried & SACK != 0;
        syn.options.window_scale = (shift != NO_SHIFT)
            .then(|| u8::try_from(shift).ok())
            .flatten();
        if carried & ECN != 0 {
            syn.flags |= Flags::ECE | Flags::CWR;
        }
    }
    Some(syn)
}

/// The SYN-ACK with a cookie, ports swapped (RFC 4987 §3.6). `ecn`: we agree to it. The shift of
/// our window comes from `receive_buffer_max` alone, because there is no window yet.
pub fn cookie_syn_ack(
    iss: SeqNumber,
    syn: &Header,
    mss: u16,
    receive_buffer_max: u32,
    timestamp_offset: u32,
    ecn: bool,
    now: Instant,
) -> Header {
    let mut reply = Header {
        source_port: syn.destination_port,
        destination_port: syn.source_port,
        seq: iss.0,
        ack: syn.seq.wrapping_add(1),
        flags: Flags::SYN | Flags::ACK,
        window: u16::MAX,
        options: Options {
            mss: Some(mss),
            ..Options::default()
        },
        ..Header::default()
    };
    let Some(timestamps) = syn.options.timestamps else {
        // Nowhere to remember them: the options are as if they had not been offered.
        return reply;
    };
    let shift = syn
        .options
        .window_scale
        .map_or(NO_SHIFT, |shift| u32::from(shift.min(14)));
    let mut carried = shift;
    if syn.options.sack_permitted {
        carried |= SACK;
    }
    if ecn {
        carried |= ECN;
        reply.flags |= Flags::ECE;
    }
    reply.options.timestamps = Some(wire::tcp::Timestamps {
        value: stamp(now, carried).wrapping_add(timestamp_offset),
        echo: timestamps.value,
    });
    reply.options.sack_permitted = syn.options.sack_permitted;
    reply.options.window_scale = syn
        .options
        .window_scale
        .map(|_| window_shift(receive_buffer_max));
    reply
}

/// The latest time, not after `now`, whose low bits are `carried`: our clock never runs backwards.
fn stamp(now: Instant, carried: u32) -> u32 {
    let clock = now.as_timestamp_ms();
    let stamp = (clock & !((1 << TIMESTAMP_BITS) - 1)) | carried;
    if stamp > clock {
        stamp.wrapping_sub(1 << TIMESTAMP_BITS)
    } else {
        stamp
    }
}

fn mss_table(tuple: &CookieTuple) -> &'static [u16; 4] {
    if tuple.local.is_ipv4() {
        &MSS_V4
    } else {
        &MSS_V6
    }
}

fn count_at(now: Instant) -> u32 {
    u32::try_from((now.as_us() / PERIOD.as_us()) & u64::from(u32::MAX)).unwrap_or(0)
}

fn hash(secret: &[u8; 16], tuple: &CookieTuple, count: Option<u32>) -> u32 {
    let mut hasher = SipHasher24::new_with_key(secret);
    hasher.write(b"cookie");
    for address in [tuple.local, tuple.remote] {
        match address {
            SocketAddr::V4(v4) => hasher.write(&v4.ip().octets()),
            SocketAddr::V6(v6) => hasher.write(&v6.ip().octets()),
        }
        hasher.write_u16(address.port());
    }
    hasher.write_u64(count.map_or(u64::MAX, u64::from));
    let [a, b, c, d, ..] = hasher.finish().to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RECEIVE_BUFFER_MAX;
    use proptest::prelude::*;
    use wire::tcp::Timestamps;

    const KEY: [u8; 16] = [3; 16];
    const NOW: Instant = Instant::from_us(10_000_000_000);

    fn tuple(port: u16) -> CookieTuple {
        CookieTuple {
            local: SocketAddr::from(([10, 0, 0, 1], 80)),
            remote: SocketAddr::from(([10, 0, 0, 2], port)),
        }
    }

    fn syn(mss: u16, options: Options) -> Header {
        Header {
            seq: 0xffff_fff0,
            flags: Flags::SYN,
            options: Options {
                mss: Some(mss),
                ..options
            },
            ..Header::default()
        }
    }

    fn answer(syn_ack: &Header) -> Header {
        Header {
            seq: syn_ack.ack,
            ack: syn_ack.seq.wrapping_add(1),
            flags: Flags::ACK,
            options: Options {
                timestamps: syn_ack.options.timestamps.map(|timestamps| Timestamps {
                    value: 78,
                    echo: timestamps.value,
                }),
                ..Options::default()
            },
            ..Header::default()
        }
    }

    #[test]
    fn a_cookie_is_good_for_its_own_tuple_and_between_one_and_two_minutes() {
        let syn = syn(1_460, Options::default());
        let iss = cookie(&KEY, &tuple(1), &syn, NOW);
        let ack = answer(&cookie_syn_ack(
            iss,
            &syn,
            1_460,
            RECEIVE_BUFFER_MAX,
            0,
            false,
            NOW,
        ));
        let redeemed = |tuple: &CookieTuple, after_s: u64| {
            redeem(&KEY, tuple, &ack, 0, NOW + Duration::from_secs(after_s)).is_some()
        };
        assert!(redeemed(&tuple(1), 0) && redeemed(&tuple(1), 60));
        assert!(!redeemed(&tuple(1), 120));
        assert!(!redeemed(&tuple(2), 0));
        assert_eq!(redeem(&[4; 16], &tuple(1), &ack, 0, NOW), None);
    }

    #[test]
    fn without_timestamps_only_the_mss_survives() {
        let syn = syn(
            1_400,
            Options {
                window_scale: Some(7),
                sack_permitted: true,
                ..Options::default()
            },
        );
        let iss = cookie(&KEY, &tuple(1), &syn, NOW);
        let syn_ack = cookie_syn_ack(iss, &syn, 1_460, RECEIVE_BUFFER_MAX, 5, false, NOW);
        assert_eq!(syn_ack.options.window_scale, None);
        let again = redeem(&KEY, &tuple(1), &answer(&syn_ack), 5, NOW).unwrap();
        assert_eq!(again.options.mss, Some(1_300), "the next below");
        assert_eq!(again.seq, syn.seq);
        assert!(!again.options.sack_permitted && again.options.timestamps.is_none());
    }

    #[test]
    fn one_guess_in_millions_passes() {
        let passed = (0..1_000_000_u32)
            .filter(|guess| {
                let ack = Header {
                    seq: 1,
                    ack: guess.wrapping_mul(2_654_435_761),
                    flags: Flags::ACK,
                    ..Header::default()
                };
                redeem(&KEY, &tuple(1), &ack, 0, NOW).is_some()
            })
            .count();
        // 2 counts × 4 MSS of 2³² numbers.
        assert!(passed <= 2, "{passed}");
    }

    proptest! {
        #[test]
        fn options_come_back_through_the_timestamp(
            shift in proptest::option::of(0_u8..=14), sack: bool, ecn: bool, value: u32, offset: u32, us in 0..1_u64 << 50,
        ) {
            let now = Instant::from_us(us);
            let timestamps = Some(Timestamps { value, echo: 0 });
            let syn = syn(1_460, Options { window_scale: shift, sack_permitted: sack, timestamps, ..Options::default() });
            let iss = cookie(&KEY, &tuple(9), &syn, now);
            let syn_ack = cookie_syn_ack(iss, &syn, 1_460, RECEIVE_BUFFER_MAX, offset, ecn, now);
            let sent = syn_ack.options.timestamps.unwrap().value.wrapping_sub(offset);
            let behind = now.as_timestamp_ms().wrapping_sub(sent);
            prop_assert!(behind < 128, "{behind} ms behind");
            let again = redeem(&KEY, &tuple(9), &answer(&syn_ack), offset, now).unwrap();
            prop_assert_eq!(again.options.window_scale, shift);
            prop_assert_eq!(again.options.sack_permitted, sack);
            prop_assert_eq!(again.flags.contains(Flags::ECE), ecn);
            prop_assert_eq!(again.options.mss, Some(1_460));
        }
    }
}
