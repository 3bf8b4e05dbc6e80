//! A poll for notes alone, and events that say nothing new.

use crate::core::EngineCore;
use crate::harness::{OTHER, Program, Socket, Wired, small_limits};

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

#[test]
fn a_poll_for_notes_sends_them_and_leaves_what_has_arrived_to_the_next() {
    let (mut wired, [active, passive], [near, far]) = scene();
    let now = wired.now;
    assert_eq!(passive.send(&far, b"question"), 8);
    wired.cores[OTHER].poll(now, None);
    assert_eq!(active.send(&near, b"answer"), 6);
    assert!(wired.cores[0].poll_notes(now) > 0);
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
fn commands_and_notes_of_what_was_read_are_taken_with_notes_too() {
    let (mut wired, [active, mut passive], [near, far]) = scene();
    let now = wired.now;
    assert_eq!(passive.send(&far, &[1; 100]), 100);
    wired.cores[OTHER].poll(now, None);
    wired.cores[0].poll(now, None);
    assert_eq!(active.receive(&near, &mut [0; 100]), 100);
    assert!(wired.cores[0].poll_notes(now) > 0);
    assert_eq!(wired.cores[0].poll_notes(now), 0);
    passive.close(&far);
    assert!(wired.cores[OTHER].poll_notes(now) > 0);
    wired.run_until_idle();
    assert!(near.flags().contains(hostif::Flags::FIN));
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
