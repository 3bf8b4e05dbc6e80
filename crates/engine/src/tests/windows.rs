//! Where bytes lie in windows, how much of those for receiving is offered, and what that costs in memory.

use crate::harness::{Program, Socket, Wired, small_limits};
use hostif::{Layout, Op, OptionChanges};

const SIZE: u32 = 1 << 20;

/// Two programs with windows of a MiB.
fn scene() -> (Wired, [Program; 2], [Socket; 2]) {
    let mut limits = small_limits();
    limits.region = Layout {
        send_window_bytes: SIZE,
        receive_window_bytes: SIZE,
        ..limits.region
    };
    let mut wired = Wired::new(limits);
    let (mut active, mut passive) = (wired.attach(0), wired.attach(1));
    let listener = passive.listen(&mut wired, 8).unwrap();
    let programs = [&mut active, &mut passive];
    let (near, far) = Program::connected(&mut wired, programs, &listener);
    (wired, [active, passive], [near, far])
}

/// Bytes at the start of a receive window.
fn start_of(socket: &Socket, bytes: &mut [u8]) {
    let (_, span) = socket.header().windows();
    let window = socket.region().window(span).unwrap();
    window.copy_out(0, bytes);
}

#[test]
fn a_window_that_was_emptied_begins_anew() {
    let (mut wired, [active, passive], [near, far]) = scene();
    for round in 0..50_u8 {
        let bytes = [round; 10_000];
        assert_eq!(active.send(&near, &bytes), bytes.len());
        wired.run_until_idle();
        let mut received = [0; 10_001];
        assert_eq!(passive.receive(&far, &mut received), bytes.len());
        assert_eq!(received[..10_000], bytes);
        wired.run_until_idle();
    }
    // 500,000 bytes have passed, and yet no more than what lies between two beginnings was touched at either end.
    for (core, socket, span) in [
        (0, &near, near.header().windows().0),
        (1, &far, far.header().windows().1),
    ] {
        let window = socket.region().window(span).unwrap();
        let mut beyond = vec![0; 400_000];
        window.copy_out(16_384, &mut beyond);
        assert!(beyond.iter().all(|byte| *byte == 0));
        let memory = wired.cores[core].layer.sockets.regions.measure();
        assert!(memory < 1 << 20, "{memory}");
    }
}

#[test]
fn a_send_window_with_bytes_that_the_peer_does_not_take_stays_where_it_is() {
    let (mut wired, [active, passive], [near, far]) = scene();
    let bytes: Vec<u8> = (0..900_000_u32).map(|at| at.to_le_bytes()[1]).collect();
    let (mut sent, mut received) = (0, Vec::new());
    let mut piece = vec![0; 20_001];
    let mut behind_others = 0;
    while received.len() < bytes.len() {
        // The receiver lags behind, so that its window is full and the rest waits in the sender's.
        let end = bytes.len().min(sent + 100_003);
        let waits = near.header().written() > near.header().acknowledged();
        behind_others += u32::from(waits && sent < end);
        sent += active.send(&near, &bytes[sent..end]);
        wired.run_until_idle();
        let len = passive.receive(&far, &mut piece);
        received.extend_from_slice(&piece[..len]);
        wired.run_until_idle();
    }
    assert!(received == bytes);
    assert!(behind_others >= 3, "{behind_others}");
}

#[test]
fn a_window_in_use_stays_where_it_is() {
    let (mut wired, [active, passive], [near, far]) = scene();
    let bytes: Vec<u8> = (0..200_000_u32).map(|at| at.to_le_bytes()[0]).collect();
    assert_eq!(active.send(&near, &bytes), bytes.len());
    wired.run_until_idle();
    let mut first = [0; 16];
    start_of(&far, &mut first);
    assert_eq!(first[..], bytes[..16]);
    let mut received = vec![0; bytes.len()];
    let half = bytes.len() / 2;
    assert_eq!(passive.receive(&far, &mut received[..half]), half);
    wired.run_until_idle();
    assert_eq!(active.send(&near, &[1; 5_000]), 5_000);
    wired.run_until_idle();
    assert_eq!(passive.receive(&far, &mut received[half..]), half);
    assert!(received == bytes);
    wired.run_until_idle();
    let mut rest = [0; 6_000];
    assert_eq!(passive.receive(&far, &mut rest), 5_000);
    assert!(rest[..5_000].iter().all(|byte| *byte == 1));
}

#[test]
fn a_program_that_does_not_read_holds_the_first_offer_and_no_more() {
    let (mut wired, [active, _passive], [near, far]) = scene();
    while active.send(&near, &[1; 50_000]) > 0 {
        wired.run_until_idle();
    }
    let (_, offered) = far.header().receive_place(0, SIZE);
    assert_eq!(offered, 256 * 1024);
    assert!(far.header().received_end() <= u64::from(offered));
}

#[test]
fn one_that_reads_is_offered_more_until_memory_is_short() {
    let mut grown = [0, 0];
    for (grown, most) in grown.iter_mut().zip([u64::MAX, 0]) {
        let (mut wired, [active, passive], [near, far]) = scene();
        for core in &mut wired.cores {
            core.config.limits.window_memory_bytes = most;
        }
        let mut received = vec![0; 1 << 20];
        for _ in 0..20 {
            wired.advance(tcp::Duration::from_ms(1_100));
            while active.send(&near, &[1; 50_000]) > 0 {
                wired.run_until_idle();
            }
            while passive.receive(&far, &mut received) > 0 {
                wired.run_until_idle();
            }
        }
        *grown = far.header().receive_place(0, SIZE).1;
    }
    assert!(grown[0] > 256 * 1024, "{grown:?}");
    assert_eq!(grown[1], 256 * 1024, "{grown:?}");
}

/// Fills the send window as far as the program may, and lets all of it arrive and be read.
fn fill(wired: &mut Wired, [active, passive]: [&Program; 2], [near, far]: [&Socket; 2]) -> usize {
    let bytes = vec![7; 1 << 20];
    near.header().program_want_tx();
    let sent = active.send(near, &bytes);
    let mut received = vec![0; 1 << 20];
    for _ in 0..8 {
        wired.run_until_idle();
        while passive.receive(far, &mut received) > 0 {
            wired.run_until_idle();
        }
    }
    // For the last delayed ACK.
    wired.advance(tcp::Duration::from_ms(100));
    wired.run_until_idle();
    sent
}

#[test]
fn a_program_that_comes_back_to_an_empty_send_window_may_fill_more_of_it() {
    let (mut wired, [active, passive], [near, far]) = scene();
    let mut filled = || fill(&mut wired, [&active, &passive], [&near, &far]);
    assert_eq!(filled(), 256 * 1024);
    // It had no room; the engine sees it come back with this write.
    assert_eq!(filled(), 256 * 1024);
    assert!(filled() >= 512 * 1024);
    assert_eq!(filled(), 1024 * 1024);
    assert_eq!(filled(), 1024 * 1024, "all there is");
}

#[test]
fn what_the_program_has_set_is_not_tuned_either_way() {
    let (mut wired, [mut active, mut passive], [near, far]) = scene();
    for (program, socket) in [(&mut active, &near), (&mut passive, &far)] {
        let changes = OptionChanges {
            send_buffer_bytes: Some(100_000),
            receive_buffer_bytes: Some(50_000),
            ..OptionChanges::default()
        };
        program
            .try_call(
                &mut wired,
                socket.id,
                Op::SetOptions {
                    changes,
                    written_low: 0,
                },
            )
            .unwrap();
    }
    for _ in 0..4 {
        let sent = fill(&mut wired, [&active, &passive], [&near, &far]);
        assert_eq!(sent, 100_000);
    }
    assert_eq!(far.header().receive_place(0, SIZE).1, 50_000);
}
