//! What the driver says where an interface goes, changes, is taken or cannot do what is asked.

use std::time::Instant;

use nic::{
    Driver, Presence,
    af_xdp::{AfXdp, Config, Mode, OpenError},
};

use crate::support::{self, PATIENCE, VETH, receive, receive_all, wait};
use crate::{config, headers, is_tcp, open, veth};

#[test]
fn a_vanished_interface_is_said_and_another_one_served_by_the_packet_socket() {
    let test = "a_vanished_interface_is_said_and_another_one_served_by_the_packet_socket";
    let Some([left, right]) = veth(test) else {
        return;
    };
    let mut driver = open(&left, &Config::new(VETH));
    let headers = headers(&driver, &driver, 0);
    while !driver.prepare_wait().unwrap() {
        receive_all(&mut driver);
    }
    right.ip(&format!("link del {VETH}"));
    assert!(wait(&driver, PATIENCE), "the sleeper is woken");
    let error = driver.rx_burst(8, &mut |_| ()).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::NetworkUnreachable);
    assert!(error.to_string().contains(VETH), "{error}");
    sending_says_so(&mut driver, &headers);
    assert_eq!(left.run(|| driver.attend()), Presence::Gone);
    support::join([&left, &right], 1).unwrap();
    let found = left.run(|| driver.attend());
    assert!(matches!(found, Presence::Back { .. }), "{found:?}");
    assert!(driver.complaints()[0].contains("made anew"));
    let mut peer = open(&right, &Config::new(VETH));
    for _ in 0..2 {
        peer.tx_burst(&[support::tcp_frame(&headers, &[], None)])
            .unwrap();
        peer.flush_tx().unwrap();
        receive(&mut driver, is_tcp);
        driver
            .tx_burst(&[support::tcp_frame(&headers, &[], None)])
            .unwrap();
        driver.flush_tx().unwrap();
        receive(&mut peer, is_tcp);
    }
}

fn sending_says_so(driver: &mut AfXdp, headers: &[u8]) {
    driver
        .tx_burst(&[support::tcp_frame(headers, &[], None)])
        .unwrap();
    let error = driver.flush_tx().unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::NetworkUnreachable);
    driver
        .tx_burst(&[support::tcp_frame(headers, &[], None)])
        .unwrap();
    driver.flush_tx().unwrap();
}

#[test]
fn an_interface_that_is_switched_off_is_said_and_goes_on_when_it_is_on() {
    let test = "an_interface_that_is_switched_off_is_said_and_goes_on_when_it_is_on";
    let Some([left, right]) = veth(test) else {
        return;
    };
    let mut driver = open(&left, &Config::new(VETH));
    let headers = headers(&driver, &driver, 0);
    left.ip(&format!("link set {VETH} down"));
    sending_says_so(&mut driver, &headers);
    assert_eq!(left.run(|| driver.attend()), Presence::Down);
    left.ip(&format!("link set {VETH} up"));
    assert_eq!(left.run(|| driver.attend()), Presence::Up);
    let mut peer = open(&right, &Config::new(VETH));
    driver
        .tx_burst(&[support::tcp_frame(&headers, &[], None)])
        .unwrap();
    driver.flush_tx().unwrap();
    receive(&mut peer, is_tcp);
    peer.tx_burst(&[support::tcp_frame(&headers, &[], None)])
        .unwrap();
    peer.flush_tx().unwrap();
    receive(&mut driver, is_tcp);
}

#[test]
fn a_program_taken_off_is_said_and_frames_come_through_the_packet_socket() {
    let test = "a_program_taken_off_is_said_and_frames_come_through_the_packet_socket";
    let Some([left, right]) = veth(test) else {
        return;
    };
    let mut driver = open(&right, &Config::new(VETH));
    let mut left = open(&left, &Config::new(VETH));
    assert_eq!(driver.complaints(), Vec::<String>::new());
    right.run(|| support::sys::take_programs_off(support::index(VETH)));
    let complaints = driver.complaints();
    assert!(complaints[0].contains("packet socket"), "{complaints:?}");
    let headers = headers(&left, &driver, 0);
    left.tx_burst(&[support::tcp_frame(&headers, &[], None)])
        .unwrap();
    left.flush_tx().unwrap();
    receive(&mut driver, is_tcp);
}

#[test]
fn frames_leave_by_the_packet_socket_when_the_ring_has_stopped_and_that_is_said() {
    let test = "frames_leave_by_the_packet_socket_when_the_ring_has_stopped_and_that_is_said";
    let Some([left, right]) = veth(test) else {
        return;
    };
    let mut driver = open(&left, &Config::new(VETH));
    let mut peer = open(&right, &Config::new(VETH));
    let headers = headers(&driver, &peer, 0);
    let frame = support::tcp_frame(&headers, &[], None);
    driver.hold_transmit_ring(true);
    assert_eq!(
        driver.tx_burst(&[frame]).unwrap(),
        0,
        "it may be full for a while"
    );
    let until = Instant::now() + PATIENCE;
    while driver.tx_burst(&[frame]).unwrap() == 0 {
        assert!(Instant::now() < until, "the frame waits for ever");
        std::thread::yield_now();
    }
    receive(&mut peer, is_tcp);
    let complaints = driver.complaints();
    assert!(complaints[0].contains("takes no frames"), "{complaints:?}");
    driver.hold_transmit_ring(false);
    assert_eq!(driver.tx_burst(&[frame]).unwrap(), 1);
    driver.flush_tx().unwrap();
    receive(&mut peer, is_tcp);
    assert_eq!(driver.complaints(), Vec::<String>::new());
}

#[test]
fn a_changed_mtu_is_followed() {
    let Some([left, _right]) = veth("a_changed_mtu_is_followed") else {
        return;
    };
    let mut driver = open(&left, &Config::new(VETH));
    assert_eq!(driver.caps().mtu, 1500);
    left.ip(&format!("link set {VETH} mtu 1400"));
    assert_eq!(left.run(|| driver.attend()), Presence::Up);
    assert_eq!(driver.caps().mtu, 1400);
    assert_eq!(driver.complaints(), Vec::<String>::new());
}

#[test]
fn an_interface_in_use_is_refused_and_free_again_afterwards() {
    let Some([left, _right]) = veth("an_interface_in_use_is_refused_and_free_again_afterwards")
    else {
        return;
    };
    let driver = open(&left, &Config::new(VETH));
    let again = left
        .run(|| AfXdp::open(&Config::new(VETH)))
        .map(drop)
        .unwrap_err();
    assert!(
        matches!(again, OpenError::Taken { queue: 0, .. }),
        "{again}"
    );
    assert!(again.leaves_packet_sockets() && !again.is_privilege());
    drop(driver);
    for _ in 0..5 {
        open(&left, &Config::new(VETH));
    }
}

#[test]
fn zero_copy_is_said_to_be_missing_where_it_is() {
    let test = "zero_copy_is_said_to_be_missing_where_it_is";
    let Some([left, _right]) = veth(test) else {
        return;
    };
    match left.run(|| AfXdp::open(&config(Mode::ZeroCopy))) {
        Ok(_) => {}
        Err(error @ OpenError::NoSuchMode { .. }) => {
            assert!(error.to_string().contains("zero-copy"), "{error}");
            support::skipped("AF_XDP in zero-copy mode", &error.to_string());
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn what_cannot_be_opened_is_named() {
    let Some(namespace) = support::alone("what_cannot_be_opened_is_named") else {
        return;
    };
    let missing = Config::new("nosuch0");
    let error = namespace
        .run(|| AfXdp::open(&missing))
        .map(drop)
        .unwrap_err();
    assert!(error.to_string().contains("nosuch0") && !error.leaves_packet_sockets());
    let odd = Config {
        receiving: 100,
        ..Config::new("lo")
    };
    namespace.ip("link set lo up");
    let error = namespace.run(|| AfXdp::open(&odd)).map(drop).unwrap_err();
    assert!(
        matches!(error, OpenError::Rings { receiving: 100, .. }),
        "{error}"
    );
}
