//! Data both ways: Nagle, delayed ACK, out-of-order placement, timestamps, urgent, large segments.

use super::harness::{IRS, Script, plain, seg};
use crate::{Config, Events, SocketOptions, TransmitLimits, WriteMode};

fn nodelay() -> Config {
    Config {
        options: SocketOptions {
            nodelay: true,
            ..SocketOptions::default()
        },
        ..plain()
    }
}

#[test]
fn data_is_cut_to_the_mss_and_the_last_segment_pushes() {
    let mut script = Script::established(&plain());
    script.writes(2_500);
    script.leaves(&[". 1:1001 ack 1", ". 1001:2001 ack 1", "P. 2001:2501 ack 1"]);
}

#[test]
fn nagle_holds_a_second_small_segment_until_the_first_is_acknowledged() {
    let mut script = Script::established(&plain());
    script.writes(10);
    script.leaves(&["P. 1:11 ack 1"]);
    script.writes(10);
    script.leaves(&[]);
    script.arrives(seg(".", 1, 11, b""));
    script.leaves(&["P. 11:21 ack 1"]);
}

#[test]
fn nodelay_sends_small_segments_at_once() {
    let mut script = Script::established(&nodelay());
    script.writes(10);
    script.writes(10);
    script.leaves(&["P. 1:21 ack 1"]);
    script.writes(10);
    script.leaves(&["P. 21:31 ack 1"]);
}

#[test]
fn cork_holds_a_partial_segment_until_uncorked_or_200_ms() {
    let corked = SocketOptions {
        cork: true,
        ..SocketOptions::default()
    };
    let mut script = Script::established(&Config {
        options: corked,
        ..plain()
    });
    script.writes(1_500);
    script.leaves(&[". 1:1001 ack 1"]);
    script.arrives(seg(".", 1, 1_001, b""));
    script.leaves(&[]);
    script
        .conn
        .set_options(script.now, &SocketOptions::default());
    script.leaves(&["P. 1001:1501 ack 1"]);

    let mut script = Script::established(&Config {
        options: corked,
        ..plain()
    });
    script.writes(5);
    script.leaves(&[]);
    assert_eq!(script.next_timer().0, 200);
    script.leaves(&["P. 1:6 ack 1"]);

    let mut script = Script::established(&Config {
        options: corked,
        ..plain()
    });
    script.writes(5);
    script.leaves(&[]);
    script.conn.push();
    script.leaves(&["P. 1:6 ack 1"]);
    script.writes(5);
    script.leaves(&[]);
}

#[test]
fn the_rest_of_a_send_with_more_to_follow_leaves_when_something_arrives() {
    let mut script = Script::established(&nodelay());
    script
        .conn
        .handle_written_as(script.now, 1_300, WriteMode::More)
        .unwrap();
    script.leaves(&[". 1:1001 ack 1"]);
    script.arrives(seg("P.", 1, 1, b"data alone"));
    script.leaves(&[]);
    let events = script.arrives(seg(".", 11, 1_001, b""));
    assert!(events.contains(Events::TRANSMIT));
    // Nobody has pushed it (Linux `tcp_push`).
    script.leaves(&[". 1001:1301 ack 11"]);
}

#[test]
fn one_small_segment_is_acknowledged_late_two_full_ones_at_once() {
    let mut script = Script::established(&plain());
    script.arrives(seg("P.", 1, 1, &[1; 100]));
    script.leaves(&[]);
    assert_eq!(script.next_timer().0, 40);
    script.leaves(&[". 1:1 ack 101"]);
    script.arrives(seg(".", 101, 1, &[2; 1_000]));
    script.leaves(&[]);
    script.arrives(seg(".", 1_101, 1, &[2; 1_000]));
    script.leaves(&[". 1:1 ack 2101"]);
}

#[test]
fn an_answer_carries_the_delayed_acknowledgement() {
    let mut script = Script::established(&plain());
    script.arrives(seg("P.", 1, 1, b"request"));
    script.writes(6);
    script.leaves(&["P. 1:7 ack 8"]);
    script.arrives(seg(".", 8, 7, b""));
    assert_eq!(script.conn.deadline(), None);
}

#[test]
fn data_out_of_order_is_placed_at_once_and_each_segment_is_acknowledged() {
    let mut script = Script::established(&plain());
    assert!(
        !script
            .arrives(seg(".", 4, 1, b"def"))
            .contains(Events::READABLE)
    );
    script.arrives(seg(".", 10, 1, b"jkl"));
    script.leaves(&[". 1:1 ack 1", ". 1:1 ack 1"]);
    assert!(
        script
            .arrives(seg(".", 1, 1, b"abc"))
            .contains(Events::READABLE)
    );
    assert_eq!(script.conn.readable_end(), 6);
    script.leaves(&[". 1:1 ack 7"]);
    script.arrives(seg(".", 7, 1, b"ghi"));
    script.leaves(&[". 1:1 ack 13"]);
    assert_eq!(script.memory.bytes, b"abcdefghijkl");
}

#[test]
fn after_a_hole_was_filled_single_segments_are_acknowledged_at_once_for_a_while() {
    let mut script = Script::established(&plain());
    script.arrives(seg(".", 1_001, 1, &[0; 1_000]));
    script.arrives(seg(".", 1, 1, &[0; 1_000]));
    script.sent();
    for ack in (3_001..).step_by(1_000).take(15) {
        script.arrives(seg(".", ack - 1_000, 1, &[0; 1_000]));
        assert_eq!(script.sent().len(), 1, "{ack}");
    }
    script.arrives(seg(".", 17_001, 1, &[0; 1_000]));
    script.leaves(&[]);
    script.next_timer();
    script.leaves(&[". 1:1 ack 18001"]);
}

#[test]
fn after_a_hole_a_batch_is_acknowledged_twice_so_that_one_ack_may_be_lost() {
    let mut script = Script::established(&nodelay());
    // Before, segments that come together are one reason to answer.
    let full = |nth: u32| seg(".", 1 + 1_000 * nth, 1, &[7; 1_000]).win(60_000);
    for nth in 0..4 {
        script.arrives(full(nth));
    }
    script.leaves(&[". 1:1 ack 4001"]);
    script.arrives(full(5));
    script.leaves(&[". 1:1 ack 4001"]);
    script.arrives(full(4));
    script.leaves(&[". 1:1 ack 6001"]);
    for nth in 6..10 {
        script.arrives(full(nth));
    }
    script.leaves(&[". 1:1 ack 9001", ". 1:1 ack 10001"]);
    script.consumes_all();
    script.sent();
    // What our program writes says as much as a bare ACK.
    script.arrives(full(10));
    script.arrives(full(11));
    script.writes(10);
    script.leaves(&["P. 1:11 ack 12001"]);
    // And a peer that goes on without a loss is soon believed.
    for nth in 12..300 {
        script.arrives(full(nth));
        script.sent();
        script.consumes_all();
        script.sent();
    }
    for nth in 300..304 {
        script.arrives(full(nth));
    }
    assert_eq!(script.sent().len(), 1);
}

fn with_sack() -> Script {
    let config = Config {
        sack: true,
        ..plain()
    };
    Script::established_with(&config, seg("S.", 0, 1, b"").mss(1_000).sack_ok())
}

#[test]
fn a_segment_that_came_before_is_reported_once() {
    // RFC 2883 §4.1.1.
    let mut script = with_sack();
    script.arrives(seg(".", 1, 1, &[0; 1_000]));
    script.next_timer();
    script.leaves(&[". 1:1 ack 1001"]);
    script.arrives(seg(".", 1, 1, &[0; 1_000]));
    script.leaves(&[". 1:1 ack 1001 sack 1:1001"]);
    script.arrives(seg(".", 1_001, 1, &[0; 1_000]));
    script.next_timer();
    script.leaves(&[". 1:1 ack 2001"]);
}

#[test]
fn of_a_segment_that_is_partly_new_the_old_part_is_reported() {
    // RFC 2883 §4.2.
    let mut script = with_sack();
    script.arrives(seg(".", 1, 1, &[0; 500]));
    script.next_timer();
    script.sent();
    script.arrives(seg(".", 1, 1, &[0; 1_000]));
    script.next_timer();
    script.leaves(&[". 1:1 ack 1001 sack 1:501"]);
}

#[test]
fn a_duplicate_beyond_a_hole_is_followed_by_the_range_that_holds_it() {
    // RFC 2883 §4.1.3, and §4.2 for a segment that ends in something new.
    let mut script = with_sack();
    script.arrives(seg(".", 501, 1, &[0; 500]));
    script.arrives(seg(".", 1_001, 1, &[0; 500]));
    script.sent();
    script.arrives(seg(".", 1_001, 1, &[0; 500]));
    script.leaves(&[". 1:1 ack 1 sack 1001:1501 sack 501:1501"]);
    script.arrives(seg(".", 1_201, 1, &[0; 500]));
    script.leaves(&[". 1:1 ack 1 sack 1201:1501 sack 501:1701"]);
    script.leaves(&[]);
}

#[test]
fn without_sack_nothing_is_reported() {
    let mut script = Script::established(&plain());
    script.arrives(seg(".", 1, 1, &[0; 1_000]));
    script.next_timer();
    script.sent();
    script.arrives(seg(".", 1, 1, &[0; 1_000]));
    script.leaves(&[". 1:1 ack 1001"]);
}

#[test]
fn sack_blocks_name_the_newest_range_first() {
    let mut script = with_sack();
    script.arrives(seg(".", 11, 1, &[0; 10]));
    script.leaves(&[". 1:1 ack 1 sack 11:21"]);
    script.arrives(seg(".", 31, 1, &[0; 10]));
    script.leaves(&[". 1:1 ack 1 sack 31:41 sack 11:21"]);
    script.arrives(seg(".", 21, 1, &[0; 5]));
    script.leaves(&[". 1:1 ack 1 sack 11:26 sack 31:41"]);
    script.arrives(seg(".", 1, 1, &[0; 10]));
    script.leaves(&[". 1:1 ack 26 sack 31:41"]);
}

#[test]
fn overlapping_and_repeated_segments_deliver_each_byte_once() {
    let mut script = Script::established(&plain());
    script.arrives(seg(".", 1, 1, b"abcd"));
    script.arrives(seg(".", 3, 1, b"cdef"));
    assert_eq!(script.conn.readable_end(), 6);
    script.sent();
    assert!(
        !script
            .arrives(seg(".", 1, 1, b"abcd"))
            .contains(Events::READABLE)
    );
    script.leaves(&[". 1:1 ack 7"]);
    assert_eq!(script.memory.bytes, b"abcdef");
}

#[test]
fn timestamps_are_echoed_and_old_segments_dropped() {
    let config = Config {
        timestamps: true,
        ..plain()
    };
    let mut script = Script::established_with(&config, seg("S.", 0, 1, b"").mss(1_000).ts(500, 0));
    script.arrives(seg("P.", 1, 1, b"a").ts(510, 0));
    assert_eq!(script.next_timer().0, 40);
    let ack = script.sent()[0];
    assert_eq!(ack.header.options.timestamps.unwrap().echo, 510);
    // RFC 7323 §5.3: older than TS.Recent; acknowledged, not taken.
    script.arrives(seg("P.", 2, 1, b"b").ts(400, 0));
    script.leaves(&[". 1:1 ack 2"]);
    assert_eq!(script.conn.readable_end(), 1);
    script.arrives(seg("P.", 2, 1, b"b").ts(511, 0));
    assert_eq!(script.conn.readable_end(), 2);
}

#[test]
fn segments_shrink_by_the_length_of_the_options() {
    let config = Config {
        timestamps: true,
        ..plain()
    };
    let mut script = Script::established_with(&config, seg("S.", 0, 1, b"").mss(1_000).ts(500, 0));
    script.writes(3_000);
    assert_eq!(script.sent()[0].len, 988);
}

#[test]
fn a_device_that_cuts_gets_one_large_segment() {
    let mut script =
        Script::established_with(&plain(), seg("S.", 0, 1, b"").mss(1_000).win(60_000));
    script.limits = TransmitLimits {
        mss: 1_000,
        max_payload: 64_000,
    };
    script.writes(9_500);
    // As Linux: half of the window at most.
    let sent = script.sent();
    let lengths: Vec<u32> = sent.iter().map(|one| one.len).collect();
    assert_eq!(
        (lengths, sent[0].segment_size),
        (vec![5_000, 4_500], Some(1_000))
    );
}

#[test]
fn a_train_pushes_though_more_is_to_follow_and_a_single_segment_does_not() {
    for (max_payload, pushes) in [(4_000, true), (1_000, false)] {
        let mut script =
            Script::established_with(&plain(), seg("S.", 0, 1, b"").mss(1_000).win(60_000));
        script.limits = TransmitLimits {
            mss: 1_000,
            max_payload,
        };
        script.writes(9_500);
        let first = script.sent()[0];
        assert_eq!(first.header.flags.contains(wire::tcp::Flags::PSH), pushes);
    }
}

#[test]
fn a_merged_segment_of_many_is_taken_as_one() {
    let mut script = Script::established(&plain());
    script.arrives(seg(".", 1, 1, &[9; 40_000]));
    assert_eq!(script.conn.readable_end(), 40_000);
    script.leaves(&[". 1:1 ack 40001"]);
}

#[test]
fn urgent_data_is_announced_and_stays_in_the_stream() {
    let mut script = Script::established(&plain());
    let events = script.arrives(seg("P.", 1, 1, b"ab!").urgent(3));
    assert!(events.contains(Events::URGENT | Events::READABLE));
    assert_eq!(script.conn.urgent_end(), Some(3));
    assert_eq!(script.memory.bytes, b"ab!");
}

#[test]
fn urgent_data_we_send_carries_the_pointer() {
    let mut script = Script::established(&plain());
    script
        .conn
        .handle_written_as(script.now, 4, crate::WriteMode::Urgent)
        .unwrap();
    let sent = script.sent();
    assert_eq!(sent[0].header.urgent, 4);
    assert!(sent[0].header.flags.contains(wire::tcp::Flags::URG));
}

#[test]
fn positions_that_a_program_cannot_mean_are_refused() {
    let mut script = Script::established(&Config {
        send_capacity: 4_096,
        ..plain()
    });
    assert!(script.conn.handle_written(script.now, 4_097).is_err());
    script.writes(10);
    assert!(script.conn.handle_written(script.now, 9).is_err());
    assert!(script.conn.handle_consumed(script.now, 1).is_err());
    script.conn.shutdown_write(script.now);
    assert!(script.conn.handle_written(script.now, 11).is_err());
}

#[test]
fn the_window_field_counts_what_was_not_consumed() {
    let mut script = Script::established(&plain());
    script.arrives(seg(".", 1, 1, &[9; 40_000]));
    assert_eq!(script.sent()[0].header.window, 25_000);
    assert_eq!(script.conn.info().receive_queue, 40_000);
    assert!(script.consumes_all().contains(Events::TRANSMIT));
    let update = script.sent()[0].header;
    assert_eq!(
        (update.window, update.ack),
        (65_535, IRS.wrapping_add(40_001))
    );
}

#[test]
fn a_small_message_that_was_read_and_is_not_answered_is_acknowledged() {
    let mut script = Script::established(&plain());
    script.conn.rcv.quick_acks = 0;
    script.arrives(seg("P.", 1, 1, &[7; 10]));
    script.leaves(&[]);
    script.consumes_all();
    script.leaves(&[". 1:1 ack 11"]);
    // Not before all of it was read, and not where a full segment without PSH says that more is to come.
    script.arrives(seg("P.", 11, 1, &[7; 10]));
    script.conn.handle_consumed(script.now, 15).unwrap();
    script.leaves(&[]);
    script.consumes_all();
    script.leaves(&[". 1:1 ack 21"]);
    script.arrives(seg(".", 21, 1, &[7; 1_000]));
    script.consumes_all();
    script.leaves(&[]);
    script.arrives(seg(".", 1_021, 1, &[7; 1_000]));
    script.leaves(&[". 1:1 ack 2021"]);
    script.arrives(seg("P.", 2_021, 1, &[7; 1_000]));
    script.leaves(&[]);
    script.consumes_all();
    script.leaves(&[". 1:1 ack 3021"]);
}

#[test]
fn the_ack_of_a_message_that_is_answered_travels_with_the_answer() {
    let mut script = Script::established(&nodelay());
    script.conn.rcv.quick_acks = 0;
    for round in 0..3 {
        let (ours, theirs) = (1 + 10 * round, 1 + 10 * round);
        script.arrives(seg("P.", theirs, ours, &[7; 10]));
        if round > 0 {
            script.consumes_all();
        }
        script.leaves(&[]);
        script.writes(10);
        script.leaves(&[&format!("P. {ours}:{} ack {}", ours + 10, theirs + 10)]);
    }
    // Until an answer is late.
    script.arrives(seg("P.", 31, 31, &[7; 10]));
    script.consumes_all();
    script.leaves(&[]);
    assert_eq!(script.next_timer().0, 40);
    script.leaves(&[". 31:31 ack 41"]);
    script.arrives(seg("P.", 41, 31, &[7; 10]));
    script.consumes_all();
    script.leaves(&[". 31:31 ack 51"]);
}

#[test]
fn a_program_that_has_answered_once_is_sent_no_quick_acks_alone() {
    let mut script = Script::established(&nodelay());
    script.conn.rcv.quick_acks = 16;
    script.arrives(seg("P.", 1, 1, &[7; 10]));
    script.leaves(&[". 1:1 ack 11"]);
    script.writes(10);
    script.leaves(&["P. 1:11 ack 11"]);
    script.arrives(seg("P.", 11, 11, &[7; 10]));
    script.leaves(&[]);
    script.writes(10);
    script.leaves(&["P. 11:21 ack 21"]);
    // Beside a hole each is sent one all the same, and again once an answer was late.
    script.arrives(seg("P.", 31, 21, &[7; 10]));
    script.leaves(&[". 21:21 ack 21"]);
    script.arrives(seg("P.", 21, 21, &[7; 10]));
    script.leaves(&[". 21:21 ack 41"]);
    script.arrives(seg("P.", 41, 21, &[7; 10]));
    script.leaves(&[". 21:21 ack 51"]);
}
