//! The TAP driver against this host's own kernel, in a namespace. Needs root, or says what it lacks.

#![allow(
    clippy::unwrap_used,
    reason = "a test program: helpers fail the test that calls them"
)]

mod support;

use std::io::{self, Read, Write};
use std::net::{TcpStream, UdpSocket};

use ::wire::ethernet::Address;
use ::wire::{ipv4, tcp};
use nic::tap::{Adopt, Config, OpenError, Tap};
use nic::{Driver, PartialChecksum, RxChecksum, TxFrame};
use support::{LEFT, Namespace, PATIENCE, RIGHT, is_ipv4, pattern, receive};

const TAP: &str = "tap0";

/// A TAP whose kernel end has an address and knows ours.
fn open(namespace: &Namespace) -> Tap {
    let config = Config {
        name: Some(TAP.to_owned()),
        up: true,
        mtu: Some(1500),
        ..Config::default()
    };
    let tap = namespace.run(|| Tap::create(&config).unwrap());
    namespace.ip(&format!("address add {LEFT}/24 dev {TAP}"));
    let ours = tap
        .caps()
        .hardware_address
        .0
        .map(|byte| format!("{byte:02x}"))
        .join(":");
    namespace.ip(&format!(
        "neighbour replace {RIGHT} lladdr {ours} dev {TAP}"
    ));
    tap
}

/// From us to the kernel that sent `frame`.
fn back(frame: &[u8]) -> (Address, Address) {
    let address = |at: usize| Address(frame[at..at + 6].try_into().unwrap());
    (address(0), address(6))
}

#[test]
fn a_datagram_goes_to_the_kernel_and_back() {
    let Some(namespace) = support::alone("a_datagram_goes_to_the_kernel_and_back") else {
        return;
    };
    let mut tap = open(&namespace);
    let socket = namespace.run(|| UdpSocket::bind((LEFT, 5000)).unwrap());
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.send_to(b"question", (RIGHT, 6000)).unwrap();
    let found = receive(&mut tap, |frame| is_ipv4(frame, ipv4::Protocol::UDP));
    assert_eq!(found.checksum, RxChecksum::Partial);
    assert_eq!(found.bytes[42..], *b"question");

    let hosts = (RIGHT, LEFT);
    let mut headers = support::ipv4_headers(back(&found.bytes), hosts, ipv4::Protocol::UDP, 14);
    headers.extend([0x17, 0x70, 0x13, 0x88, 0, 14]); // 6000 to 5000, 14 bytes
    headers.extend(support::partial_sum(hosts, ipv4::Protocol::UDP, 14));
    let frame = TxFrame {
        payload: TxFrame::spans([b"ans"[..].into(), b"wer"[..].into()]),
        checksum: Some(PartialChecksum {
            start: 34,
            offset: 6,
        }),
        ..TxFrame::plain(&headers)
    };
    assert_eq!(tap.tx_burst(&[frame]).unwrap(), 1);
    let mut answer = [0; 64];
    let (len, from) = socket.recv_from(&mut answer).unwrap();
    assert_eq!(
        (&answer[..len], from),
        (&b"answer"[..], (RIGHT, 6000).into())
    );
    assert_eq!((tap.counters().tx_frames, tap.counters().tx_bytes), (1, 48));
}

/// Answers the kernel's SYN; returns its port, our next sequence number and its.
fn accept(tap: &mut Tap) -> ((Address, Address), tcp::Header) {
    let syn = receive(tap, |frame| is_ipv4(frame, ipv4::Protocol::TCP));
    let link = back(&syn.bytes);
    let (theirs, _) = tcp::Header::parse(&syn.bytes[34..]).unwrap();
    let mut ours = tcp::Header {
        source_port: theirs.destination_port,
        destination_port: theirs.source_port,
        seq: 1000,
        ack: theirs.seq.wrapping_add(1),
        flags: tcp::Flags::SYN | tcp::Flags::ACK,
        window: 65535,
        ..Default::default()
    };
    ours.options.mss = Some(1460);
    let headers = support::tcp_headers(link, (RIGHT, LEFT), &ours, 0);
    assert_eq!(
        tap.tx_burst(&[support::tcp_frame(&headers, &[], None)])
            .unwrap(),
        1
    );
    receive(tap, |frame| is_ipv4(frame, ipv4::Protocol::TCP));
    ours.options = tcp::Options::default();
    ours.seq = 1001;
    ours.flags = tcp::Flags::ACK | tcp::Flags::PSH;
    (link, ours)
}

#[test]
fn large_tcp_segments_go_to_the_kernel_and_back_whole() {
    let Some(namespace) = support::alone("large_tcp_segments_go_to_the_kernel_and_back_whole")
    else {
        return;
    };
    let mut tap = open(&namespace);
    let payload = pattern(60_000);
    let kernel = |expected: Vec<u8>| {
        move || {
            let peer = (RIGHT, 80).into();
            let mut stream = TcpStream::connect_timeout(&peer, PATIENCE).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let mut bytes = vec![0; expected.len()];
            stream.read_exact(&mut bytes).unwrap();
            assert!(bytes == expected);
            stream.write_all(&expected[..10_000]).unwrap();
            stream
        }
    };
    std::thread::scope(|scope| {
        let expected = payload.clone();
        let peer = scope.spawn(|| namespace.run(kernel(expected)));
        let (link, header) = accept(&mut tap);
        let headers = support::tcp_headers(link, (RIGHT, LEFT), &header, payload.len());
        let frame = support::tcp_frame(&headers, &payload, Some(1460));
        assert_eq!(tap.tx_burst(&[frame]).unwrap(), 1);
        let merged = receive(&mut tap, |frame| {
            is_ipv4(frame, ipv4::Protocol::TCP) && frame.len() > 1514
        });
        assert_eq!(merged.segment_size, Some(1460));
        assert_eq!(merged.checksum, RxChecksum::Partial);
        let (header, data) = tcp::Header::parse(&merged.bytes[34..]).unwrap();
        assert_eq!(
            header.ack, 61_001,
            "the kernel has acknowledged the whole segment"
        );
        assert!(payload.starts_with(data));
        drop(peer.join().unwrap());
    });
}

#[test]
fn payload_in_a_file_that_was_cut_short_is_dropped() {
    let Some(namespace) = support::alone("payload_in_a_file_that_was_cut_short_is_dropped") else {
        return;
    };
    let mut tap = open(&namespace);
    assert!(tap.caps().payload_by_address);
    let headers = [0; 54];
    let bad = TxFrame {
        payload: TxFrame::spans([support::sys::cut_short(1000)]),
        ..TxFrame::plain(&headers)
    };
    assert_eq!(tap.tx_burst(&[bad, TxFrame::plain(&headers)]).unwrap(), 2);
    let counters = tap.counters();
    assert_eq!((counters.tx_frames, counters.tx_dropped), (1, 1));
}

#[test]
fn a_descriptor_that_is_passed_on_works_as_the_first_one() {
    let Some(namespace) = support::alone("a_descriptor_that_is_passed_on_works_as_the_first_one")
    else {
        return;
    };
    let first = open(&namespace);
    let fd = first.wait_fd().unwrap().try_clone_to_owned().unwrap();
    let hardware_address = Some(first.caps().hardware_address);
    // Outside the namespace, as the receiving process may be.
    let mut tap = Tap::adopt(
        fd,
        &Adopt {
            hardware_address,
            mtu: 1500,
        },
    )
    .unwrap();
    assert_eq!(tap.name(), TAP);
    drop(first);
    let socket = namespace.run(|| UdpSocket::bind((LEFT, 5000)).unwrap());
    socket.send_to(b"still here", (RIGHT, 6000)).unwrap();
    let found = receive(&mut tap, |frame| is_ipv4(frame, ipv4::Protocol::UDP));
    assert_eq!(found.bytes[42..], *b"still here");
}

#[test]
fn our_end_has_a_random_local_address_unless_one_is_given() {
    let Some(namespace) = support::alone("our_end_has_a_random_local_address_unless_one_is_given")
    else {
        return;
    };
    let open = |hardware_address| {
        let config = Config {
            hardware_address,
            ..Config::default()
        };
        namespace.run(|| Tap::create(&config).unwrap())
    };
    let (first, second) = (open(None), open(None));
    let address = first.caps().hardware_address;
    assert_eq!(
        address.0[0] & 3,
        2,
        "locally administered, not a group: {address:?}"
    );
    assert_ne!(address, second.caps().hardware_address);
    assert_ne!(first.name(), second.name());
    let given = Address([2, 3, 4, 5, 6, 7]);
    assert_eq!(open(Some(given)).caps().hardware_address, given);
}

#[test]
fn a_stopped_interface_is_said_once_and_one_that_is_gone_is_taken_back() {
    let test = "a_stopped_interface_is_said_once_and_one_that_is_gone_is_taken_back";
    let Some(namespace) = support::alone(test) else {
        return;
    };
    let mut tap = namespace.run(|| Tap::create(&Config::default()).unwrap());
    let error = tap.tx_burst(&[TxFrame::plain(&[0xff; 60])]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NetworkUnreachable);
    assert!(error.to_string().contains("down or gone"), "{error}");
    assert_eq!(tap.tx_burst(&[TxFrame::plain(&[0xff; 60])]).unwrap(), 1);
    assert_eq!(namespace.run(|| tap.attend()), nic::Presence::Down);
    assert!(tap.complaints()[0].contains("ip link set"));
    let name = tap.name().to_owned();
    namespace.ip(&format!("link set {name} up"));
    assert_eq!(namespace.run(|| tap.attend()), nic::Presence::Up);
    assert_eq!(tap.tx_burst(&[TxFrame::plain(&[0xff; 60])]).unwrap(), 1);

    namespace.ip(&format!("link del {name}"));
    let error = tap.rx_burst(8, &mut |_| ()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NetworkUnreachable);
    assert_eq!(tap.rx_burst(8, &mut |_| ()).unwrap(), 0);
    assert_eq!(namespace.run(|| tap.attend()), nic::Presence::Gone);
    namespace.ip(&format!("tuntap add {name} mode tap vnet_hdr"));
    namespace.ip(&format!("link set {name} up"));
    let found = namespace.run(|| tap.attend());
    assert!(matches!(found, nic::Presence::Back { .. }), "{found:?}");
    assert_eq!(tap.tx_burst(&[TxFrame::plain(&[0xff; 60])]).unwrap(), 1);
    assert_eq!(namespace.run(|| tap.attend()), nic::Presence::Up);
}

#[test]
fn what_cannot_be_had_is_named() {
    let Some(namespace) = support::alone("what_cannot_be_had_is_named") else {
        return;
    };
    let open = |name: &str| {
        let config = Config {
            name: Some(name.to_owned()),
            ..Config::default()
        };
        namespace.run(|| Tap::create(&config))
    };
    let held = open("held0").unwrap();
    assert!(matches!(open("held0").err().unwrap(), OpenError::Busy { name } if name == "held0"));
    drop(held);
    assert!(matches!(
        open("lo").err().unwrap(),
        OpenError::BadName { .. }
    ));
    assert!(matches!(
        open("a-name-longer-than-15").err().unwrap(),
        OpenError::BadName { .. }
    ));
    let plain = std::fs::File::open("/dev/null").unwrap();
    let adopt = Adopt {
        hardware_address: None,
        mtu: 1500,
    };
    assert!(matches!(
        Tap::adopt(plain.into(), &adopt).err().unwrap(),
        OpenError::NotTap { .. }
    ));
}
