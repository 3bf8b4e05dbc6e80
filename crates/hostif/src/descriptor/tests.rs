//! Descriptors: round trips, and arbitrary words never panic.

use core::net::{Ipv6Addr, SocketAddr};

use proptest::prelude::*;

use super::*;

fn any_address() -> impl Strategy<Value = SocketAddr> {
    prop_oneof![
        (any::<[u8; 4]>(), any::<u16>()).prop_map(SocketAddr::from),
        (any::<[u8; 16]>(), any::<u16>())
            .prop_map(|(bytes, port)| SocketAddr::from((Ipv6Addr::from(bytes), port))),
    ]
}

fn any_socket() -> impl Strategy<Value = SocketId> {
    (any::<u32>(), 1..=u32::MAX).prop_map(|(index, generation)| SocketId { index, generation })
}

fn any_options() -> impl Strategy<Value = OptionChanges> {
    (
        any::<[Option<u32>; 7]>(),
        any::<[Option<bool>; 2]>(),
        any::<Option<Option<u32>>>(),
        any::<Option<u8>>(),
    )
        .prop_map(|(numbers, switches, linger_s, congestion)| OptionChanges {
            no_delay: switches[0],
            keep_alive: switches[1],
            keep_idle_s: numbers[0],
            keep_interval_s: numbers[1],
            keep_count: numbers[2],
            user_timeout_ms: numbers[3],
            linger_s,
            receive_buffer_bytes: numbers[4],
            send_buffer_bytes: numbers[5],
            congestion,
            max_pacing_rate: numbers[6],
        })
}

fn any_op() -> impl Strategy<Value = Op> {
    let how = prop_oneof![
        Just(ShutdownHow::Read),
        Just(ShutdownHow::Write),
        Just(ShutdownHow::Both)
    ];
    prop_oneof![
        any_address().prop_map(|local| Op::Bind { local }),
        any::<u32>().prop_map(|backlog| Op::Listen { backlog }),
        (any_address(), proptest::option::of(any_address()))
            .prop_map(|(remote, local)| Op::Connect { remote, local }),
        (any_address(), proptest::option::of(any_address()))
            .prop_map(|(remote, local)| Op::ConnectHeard { remote, local }),
        (any_address(), proptest::option::of(any_address()))
            .prop_map(|(remote, local)| Op::ConnectFast { remote, local }),
        (any_address(), proptest::option::of(any_address()))
            .prop_map(|(remote, local)| Op::ConnectForCookie { remote, local }),
        any::<([u8; 16], Option<[u8; 16]>)>()
            .prop_map(|(primary, backup)| Op::SetFastOpenKeys(FastOpenKeys { primary, backup })),
        any::<u32>().prop_map(|handle| Op::Accept { handle }),
        (how, any::<u64>()).prop_map(|(how, written)| Op::Shutdown { how, written }),
        any::<(u64, u64)>().prop_map(|(written, consumed)| Op::Close { written, consumed }),
        (any_options(), any::<u32>()).prop_map(|(changes, written_low)| Op::SetOptions {
            changes,
            written_low,
        }),
        Just(Op::Disconnect),
        any_address().prop_map(|destination| Op::TooLong { destination }),
        (
            (0_u8..4, any::<u32>()),
            any_address(),
            proptest::option::of(any_address()),
        )
            .prop_map(|((change, interface), group, source)| Op::Membership {
                change: MembershipChange::from_code(change).unwrap(),
                group: group.ip(),
                source: source.map(|source| source.ip()),
                interface,
            }),
        any_datagram_options().prop_map(Op::SetDatagramOptions),
        (
            proptest::sample::select(SocketOption::ALL),
            any::<(u64, u32)>()
        )
            .prop_map(|(option, (value, written_low))| Op::SetOption {
                option,
                value,
                written_low,
            }),
        prop_oneof![
            Just(Query::Figures),
            Just(Query::SavedSyn),
            Just(Query::Congestion),
            Just(Query::Holders)
        ]
        .prop_map(|what| Op::Query { what }),
        (0..3_u8).prop_map(|code| Op::TellLane(LaneNews::from_code(code).unwrap())),
        any::<u32>().prop_map(|handle| Op::CloseBacking { handle }),
    ]
}

fn any_family_options() -> impl Strategy<Value = FamilyOptions> {
    (any::<[bool; 3]>(), any::<[u8; 4]>(), any::<u32>()).prop_map(
        |(switches, numbers, multicast_interface)| {
            let [error_queue, multicast_loop, multicast_all] = switches;
            let [ttl, tos, multicast_ttl, mtu_discovery] = numbers;
            FamilyOptions {
                ttl,
                tos,
                multicast_ttl,
                mtu_discovery,
                error_queue,
                multicast_loop,
                multicast_all,
                multicast_interface,
            }
        },
    )
}

fn any_datagram_options() -> impl Strategy<Value = DatagramOptions> {
    let families = (any_family_options(), any_family_options());
    (any::<[bool; 5]>(), families, any::<(u32, u32)>()).prop_map(
        |(switches, (v4, v6), (send_bytes, receive_bytes))| {
            let [broadcast, reuse_port, v6_only, merged, addressed_only] = switches;
            DatagramOptions {
                broadcast,
                reuse_port,
                v6_only,
                merged,
                addressed_only,
                v4,
                v6,
                send_bytes,
                receive_bytes,
            }
        },
    )
}

fn any_written() -> impl Strategy<Value = Written> {
    let source = proptest::option::of((any::<u32>(), 0..=u64::MAX >> 2));
    let mode = prop_oneof![
        Just(WriteMode::Plain),
        Just(WriteMode::More),
        Just(WriteMode::Urgent)
    ];
    (
        any_socket(),
        any::<u64>(),
        0..=u64::MAX >> 2,
        source,
        mode,
        (any::<bool>(), 0_u8..16),
    )
        .prop_map(|(socket, start, len, source, mode, (in_place, stamps))| {
            let end = start.saturating_add(len);
            let source = source.map(|(handle, offset)| FileSource { handle, offset });
            Written {
                socket,
                start,
                end,
                source,
                mode,
                in_place,
                stamps,
            }
        })
}

fn any_completion() -> impl Strategy<Value = Completion> {
    prop_oneof![
        any::<(u32, u16, u64)>().prop_map(|(token, errno, value)| Completion::Done {
            token,
            errno,
            value
        }),
        (any::<(u32, u32, u32)>(), any_socket(), any_address()).prop_map(
            |((token, region, header), socket, peer)| Completion::Accepted {
                token,
                socket,
                region,
                header,
                peer
            }
        ),
        any_socket().prop_map(|socket| Completion::Event { socket }),
    ]
}

proptest! {
    #[test]
    fn a_command_survives_its_words(token: u32, id in any_socket(), op in any_op()) {
        let socket = (!matches!(op, Op::CloseBacking { .. })).then_some(id);
        let command = Command { token, socket, op };
        prop_assert_eq!(Command::decode(&command.encode()), Ok(command));
    }

    #[test]
    fn positions_and_completions_survive_their_words(
        id in any_socket(), written in any_written(), end: u64, completion in any_completion()
    ) {
        prop_assert_eq!(Written::decode(&written.encode()), Ok(written));
        prop_assert!(Consumed::decode(&written.encode()).is_err());
        let in_place = written.in_place;
        let consumed = Consumed { socket: id, end, in_place };
        prop_assert_eq!(Consumed::decode(&consumed.encode()), Ok(consumed));
        prop_assert_eq!(Completion::decode(&completion.encode()), Ok(completion));
    }

    #[test]
    fn what_arbitrary_words_decode_to_is_stable(mut words: Words, kind in 0u8..64) {
        words[0] = words[0] & !0xff | u64::from(kind);
        if let Ok(written) = Written::decode(&words) {
            prop_assert!(written.start <= written.end);
            prop_assert_eq!(Written::decode(&written.encode()), Ok(written));
        }
        if let Ok(command) = Command::decode(&words) {
            prop_assert_eq!(Command::decode(&command.encode()), Ok(command));
        }
        if let Ok(completion) = Completion::decode(&words) {
            prop_assert_eq!(Completion::decode(&completion.encode()), Ok(completion));
        }
    }
}

#[test]
fn a_note_that_ends_before_it_starts_or_beyond_any_file_is_malformed() {
    let note = Written {
        socket: SocketId {
            index: 1,
            generation: 1,
        },
        start: 10,
        end: 30,
        source: Some(FileSource {
            handle: 3,
            offset: 4096,
        }),
        mode: WriteMode::Plain,
        in_place: false,
        stamps: 0,
    };
    let mut words = note.encode();
    assert_eq!(Written::decode(&words), Ok(note));
    words[3] = 31;
    assert_eq!(Written::decode(&words), Err(Malformed));
    for offset in [u64::MAX, u64::MAX - 19, i64::MAX.unsigned_abs() - 19] {
        let source = Some(FileSource { handle: 3, offset });
        let beyond = Written { source, ..note };
        assert_eq!(Written::decode(&beyond.encode()), Err(Malformed));
    }
    words = note.encode();
    words[4] = 1 << 32;
    assert_eq!(Written::decode(&words), Err(Malformed));
    words = note.encode();
    words[0] |= 16 << 8;
    assert_eq!(Written::decode(&words), Err(Malformed));
}
