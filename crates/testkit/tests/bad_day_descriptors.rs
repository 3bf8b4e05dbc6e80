//! Descriptors that a program closes twice, while their numbers travel to the engine: that call alone fails, as on the
//! kernel, and neither other connections nor other programs notice.

use std::fs;

use testkit::{
    PATIENCE,
    steady::{Steady, undisturbed},
    wait_for,
    world::Mode,
};

/// Pairs of calls that race.
const ROUNDS: u32 = 400;
/// Descriptors that an engine may have more afterwards: it keeps some ready.
const MORE: usize = 16;

fn open_descriptors(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count)
}

fn closes_twice(way: Mode) {
    let Some(steady) = Steady::new("closed-twice", way) else {
        return;
    };
    // Engines inside programs have addresses of their own.
    let mut other = (way != Mode::Inline).then(|| steady.start(0));
    let mut program = steady.start(ROUNDS);
    let engine = steady.world.engine.as_ref();
    let engine = engine.map_or_else(|| program.0.pid(), testkit::Program::pid);
    let before = open_descriptors(engine);
    let said = program.close_twice();
    let is_well = said.starts_with("closed twice; another error: none;")
        // With an engine inside, its descriptors are among those; they are counted below.
        && (way == Mode::Inline || said.ends_with("leaked: 0"));
    assert!(is_well, "{said}");
    // It may open connections afterwards as before.
    program.ask_for_another();
    program.wait_said("another");
    if let Some(other) = &mut other {
        // It closes none twice, and rests between two exchanges from now on.
        let said = other.close_twice();
        assert!(said.ends_with("refused: 0; leaked: 0"), "{said}");
    }
    // Connections that were closed are in TIME-WAIT for a minute.
    wait_for("end of what was opened", PATIENCE * 3, || {
        open_descriptors(engine) <= before + MORE
    });
    assert_eq!(program.finish(), undisturbed(3));
    if let Some(other) = other {
        assert_eq!(other.finish(), undisturbed(2));
    }
}

#[test]
fn a_number_that_is_closed_twice_disturbs_nobody_on_an_engine() {
    closes_twice(Mode::Engine);
}

#[test]
fn a_number_that_is_closed_twice_disturbs_nobody_on_two_cores() {
    closes_twice(Mode::Cores);
}

#[test]
fn a_number_that_is_closed_twice_disturbs_nobody_with_an_engine_inside() {
    closes_twice(Mode::Inline);
}

#[test]
fn a_number_that_is_closed_twice_disturbs_nobody_under_a_supervisor() {
    closes_twice(Mode::Supervised);
}
