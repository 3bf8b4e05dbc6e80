//! A day on which nothing happens: the witness of the other `bad_day_*` tests is answered over every way that is
//! served, and an engine holds afterwards what it held before.

use testkit::{
    EngineState, Witness,
    world::{self, Mode, World},
};

#[test]
fn a_witness_is_answered_and_leaves_nothing_behind() {
    if !world::can_run("bad-day-quiet", &["python3"]) {
        return;
    }
    for way in [Mode::Engine, Mode::Cores, Mode::Supervised] {
        let world = World::new("bad-day-quiet", way);
        let before = EngineState::settled(&world);
        let mut witness = Witness::start(&world);
        witness.goes_on(20);
        assert!(EngineState::of_world(&world).served["connections"] >= 2);
        let seen = witness.finish(30);
        assert!(seen.answers >= 60, "{way:?}: {seen:?}");
        before.with_tables().assert_back_in(&world);
    }
}

#[test]
fn a_witness_is_answered_with_an_engine_inside_and_over_the_kernel() {
    if !world::can_run("bad-day-quiet-in", &["python3"]) {
        return;
    }
    for way in [Mode::Inline, Mode::Kernel] {
        let world = World::new("bad-day-quiet-in", way);
        let seen = Witness::start(&world).finish(20);
        assert!(seen.answers >= 40, "{way:?}: {seen:?}");
    }
}
