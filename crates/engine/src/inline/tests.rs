//! The helper thread and the turns, over one end of a wire.

use super::helper::{JUST_US, Nap};
use super::*;
use crate::harness::{ADDRESSES, small_limits};
use engine_config::{Address, Config};
use hostif::control::{Reply, Request, receive, send};
use hostif::{MAX_VERSION, MIN_VERSION};
use nic::TxFrame;
use nic::wire::{self, WireEnd};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use std::thread::JoinHandle;

const PATIENCE: Duration = Duration::from_secs(10);

/// An engine that lives as long as the test's process, and its name.
fn engine(test: &str) -> (&'static Inline, String) {
    let (end, other) = WireEnd::pair(&wire::Config::default()).unwrap();
    // The peer's end stays, so that the device does.
    std::mem::forget(other);
    let own = Address {
        address: ADDRESSES[0].into(),
        prefix_len: 24,
    };
    let name = format!("@shunt/test/inline/{test}/{}", std::process::id());
    let config = Config {
        limits: small_limits(),
        name: name.clone(),
        hold_idle_latency: false,
        ..Config::new("test", "wire", vec![own])
    };
    let listener = hostif::control::listen(&name).unwrap();
    let engine = Inline::start(config, listener, Box::new(end)).unwrap();
    (Box::leak(Box::new(engine)), name)
}

fn helper(engine: &'static Inline) -> JoinHandle<Result<(), Errno>> {
    std::thread::spawn(|| engine.help())
}

/// Says hello as a program does.
fn greet(name: &str) -> OwnedFd {
    let channel = hostif::control::connect(name).unwrap();
    let hello = Request::Hello {
        min_version: MIN_VERSION,
        max_version: MAX_VERSION,
        pid: std::process::id(),
    };
    send(channel.as_fd(), &hello.encode(), &[]).unwrap();
    channel
}

fn answer(channel: &OwnedFd) -> Reply {
    let received = receive(channel.as_fd(), RecvFlags::empty()).unwrap();
    Reply::decode(&received.bytes).unwrap()
}

#[test]
fn the_helper_answers_programs_and_ends_with_the_engine() {
    let (engine, name) = engine("answers");
    let helper = helper(engine);
    let channel = greet(&name);
    assert!(matches!(answer(&channel), Reply::Welcome(_)));
    engine.keep(PATIENCE).unwrap().forget();
    let hung_up = receive(channel.as_fd(), RecvFlags::empty());
    assert!(!hung_up.is_ok_and(|received| !received.bytes.is_empty()));
    assert!(!engine.notify(None));
    assert_eq!(engine.watch(), Watched::Ended);
    engine.unwatch();
    // Asleep on a control channel that is gone, it wakes within its usual second; this is quicker.
    doorbell::ring(engine.kick.as_fd());
    assert_eq!(helper.join().unwrap(), Ok(()));
}

#[test]
fn a_kept_engine_stands_still_and_makes_up_for_it_afterwards() {
    let (engine, name) = engine("stands");
    let kept = engine.keep(PATIENCE).unwrap();
    let helper = helper(engine);
    let channel = greet(&name);
    engine.poll(None);
    assert!(engine.notify(None), "it will be found");
    assert!(!kept.is_needed(), "nobody has been let in");
    drop(kept);
    assert!(matches!(answer(&channel), Reply::Welcome(_)));
    engine.keep(PATIENCE).unwrap().forget();
    doorbell::ring(engine.kick.as_fd());
    assert_eq!(helper.join().unwrap(), Ok(()));
}

#[test]
fn a_thread_that_turns_or_stops_watching_kicks_a_helper_that_sleeps_for_long() {
    let (engine, _) = engine("kicks");
    let is_kicked = || {
        let left = rustix::time::timerfd_gettime(&engine.late_kick).unwrap();
        let mut fds = [PollFd::new(&engine.late_kick, PollFlags::IN)];
        let is_set = left.it_value != Timespec::default();
        let patience = if is_set { PATIENCE } else { Duration::ZERO };
        let patience = Timespec::try_from(patience).unwrap();
        let kicked = rustix::event::poll(&mut fds, Some(&patience)) == Ok(1);
        doorbell::drain(engine.late_kick.as_fd());
        kicked
    };
    engine.poll(None);
    assert!(!is_kicked(), "the helper looks by anyway");
    engine.parked.store(true, Ordering::SeqCst);
    engine.poll(None);
    assert!(is_kicked());
    engine.poll(None);
    assert!(!is_kicked(), "once is enough");
    assert!(matches!(engine.watch(), Watched::Device(..)));
    engine.parked.store(true, Ordering::SeqCst);
    engine.unwatch();
    assert!(is_kicked());
}

#[test]
fn a_helper_beside_a_thread_that_watches_leaves_the_device_to_it() {
    let (engine, _) = engine("beside");
    engine.poll(None);
    let now_us = engine.polled_us.load(Ordering::SeqCst) + JUST_US;
    let nap = |now_us| engine.busy_nap(now_us, TICK_US);
    assert!(matches!(nap(now_us), Some(Nap::Tick(TICK_US))));
    assert!(matches!(engine.watch(), Watched::Device(..)));
    assert!(nap(now_us).is_none());
    engine.polled_us.store(0, Ordering::SeqCst);
    assert!(matches!(
        engine.prepare_nap(false),
        Some(Nap::Park(1.., false))
    ));
    engine.unwatch();
    assert!(matches!(
        engine.prepare_nap(true),
        Some(Nap::Park(1.., true))
    ));
}

#[test]
fn the_helper_does_not_sleep_on_what_a_poll_has_left_while_the_threads_sleep() {
    let (engine, _) = engine("left");
    let leave = || {
        let push = |core: &mut CoreLoop| {
            let frame = TxFrame::plain(&[0; 60]);
            Ok(core.core.layer.link.loopback.push(&frame).is_ok())
        };
        assert_eq!(engine.run_surely(push), Some(true));
    };
    let has_left = || engine.run_surely(|core| Ok(core.core.layer.has_backlog()));
    // A thread has polled long ago, or just now.
    for polled_us in [0, u64::MAX] {
        engine.poll(None);
        assert!(matches!(engine.watch(), Watched::Device(..)));
        leave();
        engine.polled_us.store(polled_us, Ordering::SeqCst);
        assert!(engine.prepare_nap(false).is_some());
        assert_eq!(has_left(), Some(false));
        engine.unwatch();
    }
}

#[test]
fn a_turn_that_panics_ends_the_engine_and_blocks_nobody() {
    let (engine, name) = engine("panics");
    let channel = hostif::control::connect(&name).unwrap();
    let panics = std::thread::spawn(|| {
        engine.try_run::<()>(|_| panic!("as a bug of ours would"));
    });
    assert!(panics.join().is_err());
    assert!(!engine.notify(None));
    assert_eq!(engine.watch(), Watched::Ended);
    assert!(engine.keep(PATIENCE).is_none());
    let hung_up = receive(channel.as_fd(), RecvFlags::empty());
    assert!(!hung_up.is_ok_and(|received| !received.bytes.is_empty()));
}

#[test]
fn notes_are_polled_for_alone_until_a_poll_has_to_receive() {
    let (engine, _) = engine("notes");
    let in_a_row = || (0..100).take_while(|_| engine.takes_notes_alone()).count();
    assert_eq!(in_a_row(), 0, "nothing was received yet");
    engine.poll(None);
    assert_eq!(in_a_row(), 16);
    assert_eq!(in_a_row(), 0);
    engine.poll(None);
    assert_eq!(in_a_row(), 16);
}

#[test]
fn the_helper_sends_what_a_program_held_back_and_then_computed() {
    let (engine, _) = engine("holds");
    // As `notify`, but for the clock: sends of a machine this slow would be no row.
    let hold = || {
        let offer = || engine.batch.offer(7, u64::MAX, || engine.now_us());
        while offer() == Offer::Send {}
        doorbell::ring(engine.kick.as_fd());
    };
    hold();
    engine.flush_small();
    assert!(!engine.batch.holds(), "a call of another kind");
    engine.batch.on_wait();
    hold();
    engine.poll(None);
    assert!(!engine.batch.holds(), "a wait");
    let helper = helper(engine);
    let begun = StdInstant::now();
    for _ in 0..3 {
        hold();
        while engine.batch.holds() {
            assert!(begun.elapsed() < PATIENCE, "the helper sleeps");
            std::thread::yield_now();
        }
    }
    engine.keep(PATIENCE).unwrap().forget();
    assert!(!engine.notify(None));
    doorbell::ring(engine.kick.as_fd());
    assert_eq!(helper.join().unwrap(), Ok(()));
}
