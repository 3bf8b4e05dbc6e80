//! Users: what their threads do, and how much of the engine they may take.

use super::*;
use rustix::io::Errno;
use std::sync::mpsc::sync_channel;

fn descriptor() -> OwnedFd {
    hostif::sync::doorbell::create().expect("a descriptor")
}

/// Waits until the user's thread has done all that it was asked before.
fn await_thread(user: &User) {
    let (done, is_done) = sync_channel(1);
    user.run(move || done.send(()).expect("somebody waits"));
    is_done.recv().expect("an answer");
}

#[test]
fn a_descriptor_is_closed_elsewhere_and_counted_until_then() {
    let users = Users::with_threads(50);
    let user = users.user(4_242).unwrap();
    let (go, may_go) = sync_channel::<()>(0);
    let waits = move || may_go.recv().expect("somebody says when");
    user.run(waits);
    let (near, far) = rustix::net::socketpair(
        rustix::net::AddressFamily::UNIX,
        rustix::net::SocketType::STREAM,
        rustix::net::SocketFlags::NONBLOCK,
        None,
    )
    .unwrap();
    let is_open = || rustix::io::read(&near, &mut [0; 1]) == Err(Errno::AGAIN);
    drop(user.keep(far));
    assert!(is_open(), "its thread has something else to do");
    assert_eq!(user.held(), 1);
    go.send(()).unwrap();
    await_thread(&user);
    assert!(!is_open());
    assert_eq!(user.held(), 0);
}

#[test]
fn one_users_thread_does_not_wait_for_anothers() {
    let users = Users::with_threads(50);
    let (slow, other) = (users.user(1).unwrap(), users.user(2).unwrap());
    let (go, may_go) = sync_channel::<()>(0);
    slow.run(move || may_go.recv().expect("somebody says when"));
    await_thread(&other);
    go.send(()).unwrap();
    await_thread(&slow);
}

#[test]
fn a_user_may_take_half_of_the_descriptors_and_is_told_so() {
    let mut users = Users::new(50, false);
    users.limit = 16;
    let user = users.user(4_242).unwrap();
    let mut kept: Vec<ProgramFd> = (0..8).map(|_| user.keep(descriptor())).collect();
    assert_eq!(user.check_limit(), Ok(()));
    kept.push(user.keep(descriptor()));
    let text = user.check_limit().unwrap_err();
    assert!(text.contains("user 4242") && text.contains('8'), "{text}");
    let other = users.user(4_243).unwrap();
    assert_eq!(other.check_limit(), Ok(()));
    kept.truncate(3);
    assert_eq!(user.check_limit(), Ok(()));
}

#[test]
fn a_share_can_be_said_and_is_never_nothing() {
    for (percent, all, share) in [(50, 1_024, 512), (10, 1_024, 103), (100, 7, 7), (1, 3, 1)] {
        assert_eq!(Users::new(percent, false).share_of(all), share);
    }
    let mut users = Users::new(25, false);
    users.limit = 16;
    let user = users.user(4_242).unwrap();
    let kept: Vec<ProgramFd> = (0..5).map(|_| user.keep(descriptor())).collect();
    assert!(user.check_limit().unwrap_err().contains("--user-share"));
    drop(kept);
}

#[test]
fn whoever_left_something_to_a_thread_that_waits_is_still_counted() {
    let users = Users::with_threads(50);
    let user = users.user(4_242).unwrap();
    let (go, may_go) = sync_channel::<()>(0);
    user.run(move || may_go.recv().expect("somebody says when"));
    drop(user.keep(descriptor()));
    drop(user);
    let again = users.user(4_242).unwrap();
    assert_eq!(again.held(), 1);
    go.send(()).unwrap();
    await_thread(&again);
    assert_eq!(again.held(), 0);
}

#[test]
fn what_is_finished_rings_and_comes_in_order() {
    let finished = FinishedJobs::new().unwrap();
    let is_rung = || {
        let mut watched = [rustix::event::PollFd::from_borrowed_fd(
            finished.bell(),
            rustix::event::PollFlags::IN,
        )];
        let at_once = rustix::event::Timespec::default();
        rustix::event::poll(&mut watched, Some(&at_once)) == Ok(1)
    };
    assert!(finished.take().is_none() && !is_rung());
    for pair in 0..3 {
        finished.sender().tell(Finished::Freed { region: 1, pair });
    }
    assert!(is_rung());
    let taken = core::iter::from_fn(|| finished.take());
    let pairs: Vec<u32> = taken
        .map(|finished| match finished {
            Finished::Freed { pair, .. } => pair,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(pairs, [0, 1, 2]);
    assert!(finished.take().is_none() && !is_rung());
}

#[test]
fn an_engine_inside_a_program_spares_what_is_beyond_an_eighth_and_all_once_numbers_are_short() {
    let mut users = Users::new(50, false);
    users.limit = 32;
    let user = users.user(4_242).unwrap();
    let mut kept: Vec<ProgramFd> = (0..2).map(|_| user.keep(descriptor())).collect();
    assert!(!user.holds_enough());
    kept.push(user.keep(descriptor()));
    assert!(user.holds_enough());
    kept.truncate(1);
    assert!(!user.holds_enough());
    user.spare_all();
    assert!(user.holds_enough());
    // A process of the engine's own has its descriptors to itself.
    let others = Users::with_threads(50).user(4_242).unwrap();
    others.spare_all();
    let _kept = others.keep(descriptor());
    assert!(!others.holds_enough());
}
