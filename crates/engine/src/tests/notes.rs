//! Notes that are in no ring, and events that say nothing new.

use crate::core::{EngineCore, SmallWrite};
use crate::harness::datagrams::record_of;
use crate::harness::{OTHER, Program, Socket, Wired, small_limits};
use crate::sockets::user_buffer::UserBuffer;
use std::io::IoSliceMut;

fn scene() -> (Wired, [Program; 2], [Socket; 2]) {
    let mut wired = Wired::new(small_limits());
    let (mut active, mut passive) = (wired.attach(0), wired.attach(OTHER));
    let listener = passive.listen(&mut wired, 8).unwrap();
    let programs = [&mut active, &mut passive];
    let (near, far) = Program::connected(&mut wired, programs, &listener);
    wired.run_until_idle();
    (wired, [active, passive], [near, far])
}

fn events_told(core: &EngineCore, program: &Program) -> u64 {
    let session = core.programs.get(program.slot).unwrap();
    session.notifications()[0]
}

/// Of bytes that are written next, as by a thread of the engine's own process.
fn note(program: &Program, socket: &Socket, bytes: &[u8]) -> SmallWrite {
    let header = socket.header();
    let window = socket.region().window(header.windows().0).unwrap();
    let start = header.written();
    let end = start + window.copy_in(start, bytes) as u64;
    header.program_set_written(end);
    SmallWrite {
        session: program.session,
        socket: socket.id,
        start,
        end,
    }
}

#[test]
fn a_note_in_no_ring_is_sent_and_leaves_what_has_arrived_to_the_next_poll() {
    let (mut wired, [active, passive], [near, far]) = scene();
    let now = wired.now;
    assert_eq!(passive.send(&far, b"question"), 8);
    wired.cores[OTHER].poll(now, None);
    let answer = note(&active, &near, b"answer");
    assert!(wired.cores[0].poll_note(now, &answer, false).is_some());
    let mut bytes = [0; 16];
    assert_eq!(active.receive(&near, &mut bytes), 0);
    wired.cores[OTHER].poll(now, None);
    assert_eq!(passive.receive(&far, &mut bytes), 6);
    assert_eq!(bytes[..6], *b"answer");
    wired.cores[0].poll(now, None);
    assert_eq!(active.receive(&near, &mut bytes), 8);
    assert_eq!(bytes[..8], *b"question");
}

#[test]
fn a_note_in_no_ring_that_is_not_the_next_or_not_the_sessions_changes_nothing() {
    let (mut wired, [active, passive], [near, _far]) = scene();
    let now = wired.now;
    let next = note(&active, &near, &[7; 10]);
    let beyond = SmallWrite { start: 5, ..next };
    let nothing = SmallWrite { end: 0, ..next };
    let too_far = SmallWrite {
        end: u64::MAX,
        ..next
    };
    let of_another = SmallWrite {
        session: passive.session + 7,
        ..next
    };
    let core = &mut wired.cores[0];
    for refused in [beyond, nothing, too_far, of_another] {
        assert_eq!(core.poll_note(now, &refused, false), None, "{refused:?}");
    }
    assert!(core.poll_note(now, &next, false).is_some());
    assert_eq!(core.poll_note(now, &next, false), None, "it is known");
    assert!(!core.programs.has_faulty());
}

#[test]
fn a_note_in_no_ring_is_refused_where_another_process_may_write_too() {
    let (mut wired, [active, _passive], [near, far]) = scene();
    let channel = active.fork(&mut wired).unwrap();
    let child = wired.greet(0, channel).unwrap();
    let (now, next) = (wired.now, note(&active, &near, b"alone"));
    assert_eq!(wired.cores[0].poll_note(now, &next, false), None);
    drop(child);
    wired.run_until_idle();
    let now = wired.now;
    assert!(wired.cores[0].poll_note(now, &next, false).is_some());
    wired.run_until_idle();
    assert_eq!(far.header().received_end(), 5);
}

#[test]
fn a_datagram_in_no_ring_is_sent_unless_something_comes_before_it() {
    let mut wired = Wired::new(small_limits());
    let mut programs = [wired.attach(0), wired.attach(OTHER)];
    let (socket, _) = programs[0].datagram_socket(&mut wired).unwrap();
    let (other, to) = programs[1].datagram_socket(&mut wired).unwrap();
    // From now on the neighbour is known.
    programs[0].send_datagram(&socket, Some(to), b"first");
    wired.run_until_idle();
    let place = |payload: &[u8]| {
        let note = programs[0].place_records(&socket, &record_of(Some(to), payload));
        SmallWrite {
            session: programs[0].session,
            socket: note.socket,
            start: note.start,
            end: note.end,
        }
    };
    let now = wired.now;
    let (second, third) = (place(b"second"), place(b"third"));
    for is_alone in [false, true] {
        let core = &mut wired.cores[0];
        assert_eq!(core.poll_note(now, &third, is_alone), None, "not the next");
        let too_far = SmallWrite {
            end: u64::MAX,
            ..second
        };
        assert_eq!(
            core.poll_note(now, &too_far, is_alone),
            None,
            "beyond the ring"
        );
    }
    assert!(wired.cores[0].poll_note(now, &second, false).is_some());
    assert_eq!(
        wired.cores[0].poll_note(now, &second, true),
        None,
        "it is known"
    );
    assert!(wired.cores[0].poll_note(now, &third, true).is_some());
    wired.cores[OTHER].poll(now, None);
    for payload in [&b"first"[..], b"second", b"third"] {
        let taken = programs[1].receive_datagram(&other).unwrap();
        assert_eq!(taken.1, payload);
    }
    assert!(!wired.cores[0].programs.has_faulty());
}

/// A poll of the second core by a thread that is alone, with a buffer for so many bytes of the socket lent. How many were placed, and
/// whether the poll was brief.
fn poll_alone(wired: &mut Wired, program: &Program, socket: &Socket, room: usize) -> (usize, bool) {
    let mut bytes = vec![0; room];
    let mut slices = [IoSliceMut::new(&mut bytes)];
    let start = socket.header().consumed();
    let mut user_buffer = UserBuffer::new((program.session, socket.id), start, &mut slices, 0);
    let now = wired.now;
    let core = &mut wired.cores[OTHER];
    assert!(core.poll_alone(now, &mut user_buffer) > 0);
    (user_buffer.placed(), core.owes_whole_poll())
}

#[test]
fn a_poll_that_brings_a_thread_its_bytes_is_brief_and_its_event_comes_with_a_whole_one() {
    let (mut wired, [active, passive], [near, far]) = scene();
    let before = events_told(&wired.cores[OTHER], &passive);
    let mut brief = 0;
    for _ in 0..50 {
        assert_eq!(active.send(&near, &[7; 10]), 10);
        wired.cores[0].poll(wired.now, None);
        let (placed, is_brief) = poll_alone(&mut wired, &passive, &far, 10);
        assert_eq!(placed, 10);
        brief += u32::from(is_brief);
        // The answer acknowledges.
        let answer = note(&passive, &far, &[7; 10]);
        let (now, core) = (wired.now, &mut wired.cores[OTHER]);
        assert!(core.poll_note(now, &answer, true).is_some());
        wired.cores[0].poll(now, None);
        assert_eq!(active.receive(&near, &mut [0; 10]), 10);
    }
    // At first each segment is acknowledged at once.
    assert!((30..50).contains(&brief), "{brief} of 50");
    wired.run_until_idle();
    assert!(!wired.cores[OTHER].owes_whole_poll());
    assert_eq!(events_told(&wired.cores[OTHER], &passive), before + 1);
    assert_eq!(far.header().received_end(), 500);
}

#[test]
fn a_poll_is_whole_where_it_brings_anything_else() {
    let (mut wired, [mut active, passive], [near, far]) = scene();
    let sent = |wired: &mut Wired, bytes: usize| {
        assert_eq!(active.send(&near, &vec![7; bytes]), bytes);
        wired.cores[0].poll(wired.now, None);
    };
    sent(&mut wired, 20);
    let more_than_fits = poll_alone(&mut wired, &passive, &far, 10);
    assert_eq!(more_than_fits, (10, false));
    assert_eq!(passive.receive(&far, &mut [0; 10]), 10);
    wired.run_until_idle();
    let other = wired.attach(OTHER);
    sent(&mut wired, 10);
    let beside_another_program = poll_alone(&mut wired, &passive, &far, 10);
    assert_eq!(beside_another_program, (10, false));
    drop(other);
    wired.run_until_idle();
    sent(&mut wired, 10);
    active.close(&near);
    wired.cores[0].poll(wired.now, None);
    let before_the_end = poll_alone(&mut wired, &passive, &far, 20);
    assert_eq!(before_the_end, (10, false));
    assert!(far.flags().contains(hostif::Flags::FIN));
}

#[test]
fn a_note_in_no_ring_is_brief_where_nobody_else_is_awake() {
    let (mut wired, [active, _passive], [near, far]) = scene();
    let now = wired.now;
    let first = note(&active, &near, b"first");
    assert!(wired.cores[0].poll_note(now, &first, true).is_some());
    assert!(wired.cores[0].owes_whole_poll());
    let second = note(&active, &near, b"second");
    assert!(wired.cores[0].poll_note(now, &second, false).is_some());
    assert!(!wired.cores[0].owes_whole_poll());
    wired.run_until_idle();
    assert_eq!(far.header().received_end(), 11);
}

#[test]
fn an_event_that_the_program_has_not_taken_is_not_told_again() {
    let (mut wired, [active, mut passive], [near, far]) = scene();
    passive.reap();
    let before = events_told(&wired.cores[OTHER], &passive);
    for bytes in [1, 2, 3] {
        assert_eq!(active.send(&near, &[7; 10]), 10);
        wired.run_until_idle();
        let waiting = far.header().received_end() - far.header().consumed();
        assert_eq!(waiting, 10 * bytes, "the header says it all the same");
        assert_eq!(events_told(&wired.cores[OTHER], &passive), before + 1);
    }
    passive.reap();
    assert_eq!(active.send(&near, &[7; 10]), 10);
    wired.run_until_idle();
    assert_eq!(events_told(&wired.cores[OTHER], &passive), before + 2);
}
