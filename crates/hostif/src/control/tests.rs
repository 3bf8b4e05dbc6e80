//! Control messages: round trips, hostile bytes, versions, and descriptors over a real socket.

use core::net::IpAddr;

use proptest::prelude::*;
use rustix::fd::AsFd;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType};

use super::*;
use crate::SocketId;

fn any_ip() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        any::<[u8; 4]>().prop_map(IpAddr::from),
        any::<[u8; 16]>().prop_map(IpAddr::from)
    ]
}

fn any_request() -> impl Strategy<Value = Request> {
    let kind = prop_oneof![
        Just(QueryKind::Status),
        Just(QueryKind::Sockets),
        Just(QueryKind::Sessions),
        Just(QueryKind::Interfaces)
    ];
    prop_oneof![
        any::<(u16, u16, u32)>().prop_map(|(min_version, max_version, pid)| Request::Hello {
            min_version,
            max_version,
            pid
        }),
        (1u16..=16).prop_map(|count| Request::Open { count }),
        (1u16..=64).prop_map(|count| Request::Prepare { count }),
        Just(Request::OpenDatagram),
        Just(Request::ShareFile),
        Just(Request::Fork),
        any::<u16>().prop_map(|core| Request::Join { core }),
        any::<u32>().prop_map(|region| Request::MapRegion { region }),
        Just(Request::Adopt),
        any::<(u32, u32)>().prop_map(|(index, generation)| Request::Share {
            socket: SocketId::new(index, generation),
        }),
        any::<u32>().prop_map(|channel_region| Request::MapArea { channel_region }),
        Just(Request::MapHolders),
        Just(Request::Yield),
        (
            1..=SNAP_BYTES_MAX,
            proptest::option::of(any_ip()),
            any::<u16>(),
            0_u8..5
        )
            .prop_map(|(snap_bytes, host, port, protocol)| {
                Request::Capture(CaptureFilter {
                    snap_bytes,
                    host,
                    port: Some(port).filter(|&port| port != 0),
                    protocol: CaptureProtocol::from_number(protocol).unwrap(),
                })
            }),
        (any::<u32>(), 1u32..).prop_map(|(index, generation)| Request::Signals {
            socket: SocketId { index, generation },
        }),
        Just(Request::Addresses),
        any::<(u32, u32)>().prop_map(|(every, after_us)| {
            let every = Some(every).filter(|&every| every != 0);
            Request::Moderate(crate::Moderation { every, after_us })
        }),
        kind.prop_map(|kind| Request::Query { kind }),
    ]
}

fn any_reply() -> impl Strategy<Value = Reply> {
    let opened =
        (any::<u32>(), 1u32.., any::<u32>()).prop_map(|(index, generation, header)| Opened {
            socket: SocketId { index, generation },
            header,
        });
    let address =
        (any_ip(), any::<u8>(), any::<u32>()).prop_map(|(address, prefix_len, mtu_bytes)| {
            EngineAddress {
                address,
                prefix_len,
                mtu_bytes,
            }
        });
    prop_oneof![
        (any::<(u16, u16, u32, u32, u32)>(), 1..=crate::CORES_MAX).prop_map(|(numbers, cores)| {
            let (version, core, key, session, region) = numbers;
            Reply::Welcome(Welcome {
                version,
                core,
                steering: crate::Steering { cores, key },
                session,
                region,
            })
        }),
        proptest::collection::vec(opened, 0..=MAX_OPEN).prop_map(Reply::Opened),
        (any::<u32>(), 1u16..=64).prop_map(|(first, count)| Reply::Prepared { first, count }),
        Just(Reply::Joined),
        Just(Reply::Shared),
        Just(Reply::Signals),
        Just(Reply::Holders),
        Just(Reply::Yields),
        Just(Reply::Capture),
        (any::<u32>(), 1u32.., any::<u32>(), any::<u32>()).prop_map(
            |(index, generation, region, header)| Reply::Adopted(Adopted {
                socket: SocketId { index, generation },
                region,
                header,
            })
        ),
        any::<u32>().prop_map(|session| Reply::Forked { session }),
        any::<u32>().prop_map(|region| Reply::Region { region }),
        any::<u32>().prop_map(|channel_region| Reply::ChannelRegion { channel_region }),
        (
            proptest::collection::vec(address, 0..=150),
            proptest::collection::vec(any_ip(), 0..=2),
            any::<u32>(),
            (0_u8..4, 0_u8..3),
        )
            .prop_map(|(addresses, gateways, scope_id, (kinds, sharing))| {
                Reply::Addresses(Addresses {
                    addresses,
                    gateways,
                    scope_id,
                    kinds: SocketKinds::from_bits_retain(kinds),
                    sharing: Sharing::from_number(sharing).unwrap(),
                })
            }),
        Just(Reply::Report),
        Just(Reply::Moderated),
        (any::<u16>(), "\\PC{0,80}").prop_map(|(errno, text)| Reply::Refused { errno, text }),
    ]
}

proptest! {
    #[test]
    fn messages_survive_their_packets_and_no_prefix_of_them_is_one(
        request in any_request(), reply in any_reply(), cut in any::<proptest::sample::Index>()
    ) {
        let bytes = request.encode();
        prop_assert_eq!(Request::decode(&bytes), Ok(request));
        prop_assert!(Request::decode(&bytes[..cut.index(bytes.len())]).is_err());
        let bytes = reply.encode();
        prop_assert!(bytes.len() <= MESSAGE_BYTES);
        prop_assert!(Reply::decode(&bytes[..cut.index(bytes.len())]).is_err());
        prop_assert_eq!(Reply::decode(&bytes), Ok(reply));
    }

    #[test]
    fn hostile_bytes_are_values_not_panics(
        mut bytes in proptest::collection::vec(any::<u8>(), 0..200), kind in 0u16..10, reply: bool
    ) {
        let _ = Request::decode(&bytes);
        let _ = Reply::decode(&bytes);
        if bytes.len() >= 8 {
            bytes[..4].copy_from_slice(b"SHNT");
            bytes[4..6].copy_from_slice(&1u16.to_le_bytes());
            bytes[6..8].copy_from_slice(&(kind | if reply { 0x100 } else { 0 }).to_le_bytes());
            let _ = Request::decode(&bytes);
            let _ = Reply::decode(&bytes);
        }
    }
}

#[test]
fn a_hello_of_another_version_is_understood_and_others_are_refused() {
    let mut hello = Request::Hello {
        min_version: 7,
        max_version: 9,
        pid: 1,
    }
    .encode();
    hello[4..6].copy_from_slice(&9u16.to_le_bytes());
    assert!(matches!(
        Request::decode(&hello),
        Ok(Request::Hello { min_version: 7, .. })
    ));
    let mut fork = Request::Fork.encode();
    fork[4..6].copy_from_slice(&9u16.to_le_bytes());
    assert_eq!(Request::decode(&fork), Err(Invalid::Version(9)));
}

#[test]
fn versions_are_negotiated_to_the_newest_that_both_speak() {
    assert_eq!(negotiate(MIN_VERSION, MAX_VERSION), Ok(MAX_VERSION));
    assert_eq!(negotiate(0, u16::MAX), Ok(MAX_VERSION));
    assert!(negotiate(MAX_VERSION + 1, MAX_VERSION + 3).is_err());
    assert!(negotiate(0, MIN_VERSION - 1).is_err());
    assert!(negotiate(MAX_VERSION, MIN_VERSION.saturating_sub(1)).is_err());
}

#[test]
fn descriptors_travel_with_their_packet_and_a_close_is_seen() {
    let (ours, theirs) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .unwrap();
    let bells: Vec<_> = (0..64)
        .map(|_| crate::sync::doorbell::create().unwrap())
        .collect();
    let borrowed: Vec<_> = bells.iter().map(AsFd::as_fd).collect();
    let request = Request::Prepare { count: 64 };
    send(ours.as_fd(), &request.encode(), &borrowed).unwrap();
    let received = receive(theirs.as_fd(), RecvFlags::empty()).unwrap();
    assert_eq!(Request::decode(&received.bytes), Ok(request.clone()));
    assert_eq!(received.descriptors.len(), request.descriptors());
    crate::sync::doorbell::ring(received.descriptors[63].as_fd());
    let mut count = [0; 8];
    assert_eq!(rustix::io::read(&bells[63], &mut count), Ok(8));
    drop(ours);
    assert!(
        receive(theirs.as_fd(), RecvFlags::empty())
            .unwrap()
            .bytes
            .is_empty()
    );
}

#[test]
fn an_engine_is_found_by_its_name() {
    let name = format!("@shunt/test/{}", std::process::id());
    let listener = listen(&name).unwrap();
    let program = connect(&name).unwrap();
    let accepted = rustix::net::accept(&listener).unwrap();
    send(program.as_fd(), &Request::Addresses.encode(), &[]).unwrap();
    let received = receive(accepted.as_fd(), RecvFlags::empty()).unwrap();
    assert_eq!(Request::decode(&received.bytes), Ok(Request::Addresses));
    assert!(connect("@shunt/test/nobody").is_err());
}
