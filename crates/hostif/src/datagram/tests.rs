//! Records survive the way through memory, and what a program may scribble is refused or harmless.

use proptest::prelude::*;

use super::*;

fn ip_address() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        any::<[u8; 4]>().prop_map(IpAddr::from),
        any::<[u8; 16]>().prop_map(IpAddr::from)
    ]
}

fn socket_address() -> impl Strategy<Value = SocketAddr> {
    (ip_address(), any::<u16>(), 0_u32..65_536).prop_map(|(address, port, scope)| match address {
        IpAddr::V4(_) => SocketAddr::new(address, port),
        IpAddr::V6(address) => SocketAddr::V6(SocketAddrV6::new(address, port, 0, scope)),
    })
}

proptest! {
    #[test]
    fn outgoing_records_decode_to_what_was_encoded(
        (len, segment_bytes, interface) in (0..=PAYLOAD_MAX, any::<u16>(), any::<u32>()),
        (destination, source) in (
            proptest::option::of(socket_address()), proptest::option::of(ip_address())
        ),
        (tos, ttl, stamps, stamp_key) in (
            any::<Option<u8>>(), any::<Option<u8>>(), 0_u8..16, any::<u32>()
        ),
    ) {
        let record = Outgoing {
            len, segment_bytes, destination, source, interface, tos, ttl, stamps, stamp_key,
        };
        prop_assert_eq!(Outgoing::decode(&record.encode()), Ok(record));
    }

    #[test]
    fn received_records_decode_to_what_was_encoded(
        (len, segment_bytes, interface) in (0..=PAYLOAD_MAX, any::<u16>(), any::<u32>()),
        (source, destination) in (socket_address(), ip_address()),
        (tos, ttl, timestamp_ns, more) in (any::<u8>(), any::<u8>(), any::<u64>(), 0_u32..1_000),
    ) {
        let room = u32::try_from(record_bytes(len)).unwrap() + 64 * more;
        let record = Received {
            len, room, segment_bytes, source, destination, interface, tos, ttl, timestamp_ns,
        };
        prop_assert_eq!(Received::decode(&record.encode()), Ok(record));
    }

    #[test]
    fn failures_decode_to_what_was_encoded(
        (len, errno, origin, kind, code) in (0..=PAYLOAD_MAX, any::<u16>(), any::<u8>(), any::<u8>(), any::<u8>()),
        (destination, offender) in (socket_address(), proptest::option::of(ip_address())),
        (info, data, timestamp_ns) in any::<(u32, u32, u64)>(),
    ) {
        let record = Failure { len, errno, origin, kind, code, info, data, destination, offender, timestamp_ns };
        prop_assert_eq!(Failure::decode(&record.encode()), Ok(record));
    }

    #[test]
    fn arbitrary_bytes_are_refused_or_within_bounds(half in any::<[[u8; 32]; 2]>()) {
        let mut raw = [0; RECORD_BYTES];
        raw[..32].copy_from_slice(&half[0]);
        raw[32..].copy_from_slice(&half[1]);
        if let Ok(record) = Outgoing::decode(&raw) {
            prop_assert!(record.len <= PAYLOAD_MAX);
        }
        let _ = (Received::decode(&raw), Failure::decode(&raw));
    }

    #[test]
    fn rings_lie_within_their_windows_and_apart(
        (send, receive) in (12_u32..24, 12_u32..24), (wanted_send, wanted_receive) in any::<(u32, u32)>()
    ) {
        let send = WindowSpan { offset: 4_096, size: 1 << send };
        let receive = WindowSpan { offset: 4_096 + u64::from(send.size), size: 1 << receive };
        let rings = Rings::new(send, receive, wanted_send, wanted_receive);
        for span in [rings.send, rings.receive, rings.errors] {
            prop_assert!(span.size.is_power_of_two());
        }
        prop_assert!(rings.send.offset + u64::from(rings.send.size) <= rings.errors.offset);
        prop_assert!(rings.errors.offset + u64::from(rings.errors.size) <= receive.offset);
        prop_assert!(rings.receive.size <= receive.size);
    }
}

#[test]
fn records_take_whole_lines() {
    assert_eq!(
        [0, 1, 64, 65].map(record_bytes),
        [64, 128, 128, 192],
        "a header line and the payload's lines"
    );
}

#[test]
fn a_queue_that_nobody_reads_holds_as_many_datagrams_as_linuxs() {
    // Counted on Linux 6.18 with its default of 212,992 bytes, over loopback and, up to 1,472 bytes, a veth pair.
    let counted = [
        (0, 256),
        (1, 256),
        (128, 256),
        (200, 166),
        (600, 166),
        (1_000, 92),
        (1_472, 92),
        (3_000, 48),
        (9_000, 12),
        (30_000, 6),
        (60_000, 3),
    ];
    for (len, held) in counted {
        assert_eq!(212_992 / charged_bytes(len), held, "{len} bytes");
        assert!(charged_bytes(len) >= record_bytes(len));
        assert!(charged_bytes(len).is_multiple_of(64));
    }
}

#[test]
fn a_record_that_leaves_itself_no_room_is_refused() {
    let record = Received {
        len: 65,
        room: 192,
        segment_bytes: 0,
        source: SocketAddr::new(IpAddr::from([10, 0, 0, 1]), 5),
        destination: IpAddr::from([10, 0, 0, 2]),
        interface: 0,
        tos: 0,
        ttl: 64,
        timestamp_ns: 0,
    };
    for (room, expected) in [
        (192, true),
        (256, true),
        (128, false),
        (0, false),
        (200, false),
    ] {
        let record = Received { room, ..record };
        assert_eq!(
            Received::decode(&record.encode()).is_ok(),
            expected,
            "{room}"
        );
    }
}

#[test]
fn a_payload_longer_than_a_datagram_is_refused() {
    let record = Outgoing {
        len: PAYLOAD_MAX + 1,
        ..Outgoing::default()
    };
    assert_eq!(Outgoing::decode(&record.encode()), Err(Malformed));
}
