//! Headers as both sides see them.

use core::net::SocketAddr;

use super::*;
use crate::{Layout, Region};

const ID: SocketId = SocketId {
    index: 4,
    generation: 1,
};

#[test]
fn a_header_tells_the_program_what_the_engine_set() {
    let region = Region::create(Layout::default(), 1, 1).unwrap();
    let (header, id) = (region.socket_header(3).unwrap(), ID);
    header.engine_reset(id);
    assert!(header.is_of(id));
    let local: SocketAddr = "10.0.0.1:80".parse().unwrap();
    let remote: SocketAddr = "[2001:db8::1]:99".parse().unwrap();
    header.engine_set_addresses(Some(local), Some(remote));
    assert_eq!(header.addresses(), (Some(local), Some(remote)));
    let (send, receive) = region.window_pair(5).unwrap();
    header.engine_set_windows(send, receive);
    assert_eq!(header.windows(), (send, receive));
    header.engine_set_error(111);
    header.engine_set_flags(Flags::ERROR | Flags::HUP);
    assert!(header.error_pending());
    assert_eq!(header.program_take_error(), Some(111));
    assert_eq!(header.program_take_error(), None);
    assert!(!header.error_pending());
    header.engine_reset(SocketId {
        index: 4,
        generation: 2,
    });
    assert!(!header.is_of(id));
    assert_eq!(header.addresses(), (None, None));
}

#[test]
fn urgent_positions_and_limits_are_told_and_forgotten_with_the_socket() {
    let region = Region::create(Layout::default(), 1, 1).unwrap();
    let (header, id) = (region.socket_header(5).unwrap(), ID);
    header.engine_reset(id);
    assert_eq!(header.send_limit(4096), 4096, "no limit but the window");
    header.engine_set_send_limit(1000);
    header.engine_set_urgent_end(7);
    header.engine_set_sent(9);
    header.program_set_urgent_taken(7);
    let told = (header.urgent_end(), header.urgent_taken(), header.sent());
    assert_eq!((told, header.send_limit(4096)), ((7, 7, 9), 1000));
    assert_eq!(header.send_limit(512), 512);
    header.engine_reset(id);
    let told = (header.urgent_end(), header.urgent_taken(), header.sent());
    assert_eq!((told, header.send_limit(4096)), ((0, 0, 0), 4096));
}

#[test]
fn a_receive_window_has_a_beginning_and_an_offer() {
    let region = Region::create(Layout::default(), 1, 1).unwrap();
    let header = region.socket_header(5).unwrap();
    assert_eq!(header.receive_place(70, 4096), (70, 4096));
    header.engine_set_receive_place(70, 1024);
    assert_eq!(header.receive_place(75, 4096), (5, 1024));
    assert_eq!(header.receive_place(75, 512), (5, 512));
    // The base is told modulo 2^32, which every size of a window divides.
    let (place, _) = header.receive_place((1 << 32) + 70, 4096);
    assert_eq!(place % 4096, 0);
}

#[test]
fn a_send_window_begins_anew_when_nothing_waits_to_be_acknowledged() {
    let region = Region::create(Layout::default(), 1, 1).unwrap();
    let header = region.socket_header(5).unwrap();
    let (span, _) = region.window_pair(0).unwrap();
    let window = region.window(span).unwrap();
    header.engine_reset(ID);
    let at_start = |offset: u64, of: u8| {
        header.place_sent(window).copy_in(offset, &[of]);
        let mut byte = [0];
        window.copy_out(0, &mut byte);
        byte == [of]
    };
    assert!(at_start(0, 1));
    header.program_place_sent(window, 700, 5).copy_in(700, &[2]);
    assert!(!at_start(700, 3), "what is there stays where it lies");
    header.program_place_sent(window, 700, 0).copy_in(700, &[4]);
    assert!(at_start(700, 5));
    header.engine_reset(ID);
    assert!(at_start(0, 6), "another connection begins at its start");
}

#[test]
fn wanting_space_is_taken_once() {
    let region = Region::create(Layout::default(), 1, 1).unwrap();
    let header = region.socket_header(0).unwrap();
    assert!(!header.engine_take_tx_wanted());
    header.program_want_tx();
    assert!(header.engine_take_tx_wanted());
    assert!(!header.engine_take_tx_wanted());
}

#[test]
fn who_has_seen_something_waits_until_it_was_signalled_of_or_waiting_makes_no_sense() {
    let region = Region::create(Layout::default(), 1, 1).unwrap();
    let header = region.socket_header(5).unwrap();
    header.engine_reset(SocketId {
        index: 4,
        generation: 1,
    });
    assert!(header.has_sent_signals());
    header.program_await_signals(&mut || panic!("nothing is due"));
    header.engine_set_signals_due(1);
    assert!(!header.has_sent_signals());
    let mut asked = 0;
    header.program_await_signals(&mut || {
        asked += 1;
        asked < 2
    });
    assert_eq!(asked, 2);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let header = region.socket_header(5).unwrap();
            header.program_await_signals(&mut || true);
            header.has_sent_signals()
        });
        header.engine_set_signals_sent(1);
        assert!(waiter.join().unwrap());
    });
}

#[test]
fn calls_are_counted_until_the_header_is_another_sockets() {
    let region = Region::create(Layout::default(), 1, 1).unwrap();
    let (header, id) = (region.socket_header(5).unwrap(), ID);
    header.engine_reset(id);
    header.program_count_read();
    header.program_count_read();
    header.program_count_write();
    let told = header.calls();
    assert_eq!((told.reads, told.writes), (2, 1));
    let most = Calls {
        reads: u64::MAX,
        writes: 1,
    };
    assert_eq!(told.plus(most).reads, u64::MAX);
    header.engine_reset(id);
    assert_eq!(header.calls(), Calls::default());
}
