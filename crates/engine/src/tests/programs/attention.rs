//! Programs that do nothing: they doze, cost no look, and are heard when they do something.

use crate::harness::{Program, Wired, small_limits};
use crate::tests::scene::Scene;
use engine_config::Limits;
use hostif::Flags;
use tcp::Duration;

/// More than stay awake in any case.
const IDLE: usize = 20;

fn doze(wired: &mut Wired) {
    wired.now += Duration::from_ms(11);
    let now = wired.now;
    for core in &mut wired.cores {
        core.programs.let_doze(now);
    }
}

fn with_idle_programs() -> (Scene, Vec<Program>) {
    let mut scene = Scene::with(Limits {
        sessions: 64,
        ..small_limits()
    });
    let idle = (0..IDLE).map(|_| scene.wired.attach(0)).collect();
    scene.wired.run_until_idle();
    (scene, idle)
}

#[test]
fn idle_programs_doze_and_eight_stay_awake() {
    let (mut scene, idle) = with_idle_programs();
    assert_eq!(scene.wired.cores[0].programs.awake().count(), IDLE + 1);
    doze(&mut scene.wired);
    assert_eq!(scene.wired.cores[0].programs.awake().count(), 8);
    drop(idle);
    scene.wired.run_until_idle();
    let sessions = scene.wired.cores[0].programs.iter().count();
    assert_eq!(sessions, 1);
    assert!(scene.wired.cores[0].programs.awake().count() <= 1);
}

#[test]
fn one_that_dozes_is_promised_to_be_heard_and_is() {
    let (mut scene, mut idle) = with_idle_programs();
    doze(&mut scene.wired);
    let is_awake = |wired: &Wired, program: &Program| {
        wired.cores[0].programs.get(program.slot).unwrap().is_awake
    };
    let dozing = idle.iter().position(|one| !is_awake(&scene.wired, one));
    let program = &mut idle[dozing.expect("most of them doze")];
    let word = program.region.engine_sleep_word();
    assert!(word.must_ring(), "who leaves a note has to ring");
    let now = scene.wired.now;
    scene.wired.cores[0].programs.wake(now, program.slot);
    assert!(is_awake(&scene.wired, program) && !word.must_ring());
    let near = program.connect(&mut scene.wired, scene.listener.1).unwrap();
    scene.wired.run_until_idle();
    assert!(near.flags().contains(Flags::CONNECTED));
}

#[test]
fn a_note_that_was_left_before_the_promise_keeps_its_program_awake() {
    let (mut scene, idle) = with_idle_programs();
    let (near, _far) = scene.connected();
    scene.wired.now += Duration::from_ms(11);
    assert_eq!(scene.active.send(&near, b"note"), 4);
    let now = scene.wired.now;
    scene.wired.cores[0].programs.let_doze(now);
    let session = scene.wired.cores[0].programs.get(scene.active.slot);
    assert!(session.unwrap().is_awake);
    drop(idle);
}

#[test]
fn news_reach_a_program_that_dozes() {
    let (mut scene, idle) = with_idle_programs();
    let (near, far) = scene.connected();
    doze(&mut scene.wired);
    scene.active.reap();
    assert_eq!(scene.passive.send(&far, b"news"), 4);
    scene.wired.run_until_idle();
    let mut bytes = [0; 8];
    assert_eq!(scene.active.receive(&near, &mut bytes), 4);
    drop(idle);
}
