//! An engine that answers nobody for a while, and then comes back: connections go on, what was asked meanwhile is answered.

use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use testkit::{
    steady::{Steady, undisturbed},
    world::Mode,
};

/// How long it stands still; nothing that waits for an engine may give up after less.
const STANDSTILL: Duration = Duration::from_secs(13);

fn stands_still(way: Mode) {
    let Some(steady) = Steady::new("stopped", way) else {
        return;
    };
    let [mut asking, other] = [(); 2].map(|()| steady.start(0));
    let engine = i32::try_from(steady.world.engine_pid()).ok();
    let engine = engine.and_then(Pid::from_raw);
    let engine = engine.expect("invariant: a process has a number");
    kill_process(engine, Signal::STOP).unwrap_or_else(|error| panic!("{error}"));
    // One more connection of a program that has some.
    asking.ask_for_another();
    // The standstill itself is what is tested: there is no condition to wait for.
    std::thread::sleep(STANDSTILL);
    kill_process(engine, Signal::CONT).unwrap_or_else(|error| panic!("{error}"));
    asking.wait_said("another");
    let late = steady.start(0);
    assert_eq!(late.finish(), undisturbed(2));
    assert_eq!(asking.finish(), undisturbed(3));
    assert_eq!(other.finish(), undisturbed(2));
}

#[test]
fn an_engine_that_stands_still_for_a_while_costs_nobody_a_connection() {
    stands_still(Mode::Engine);
}

#[test]
fn an_engine_of_two_cores_that_stands_still_for_a_while_costs_nobody_a_connection() {
    stands_still(Mode::Cores);
}

#[test]
fn an_engine_that_stands_still_for_a_while_costs_supervised_programs_nothing() {
    stands_still(Mode::Supervised);
}
