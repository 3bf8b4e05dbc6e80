//! An engine that is told to end: what programs and peers hear.

use super::scene::Scene;
use hostif::Flags;

#[test]
fn what_programs_hold_ends_with_a_reset_on_both_sides() {
    let mut scene = Scene::new();
    let (near, far) = scene.connected();
    let waiting = scene
        .active
        .connect(&mut scene.wired, scene.listener.1)
        .unwrap();
    scene.wired.run_until_idle();
    let now = scene.wired.now;
    scene.wired.cores[1].reset_connections(now);
    scene.wired.run_until_idle();
    for (name, socket) in [("near", &near), ("far", &far), ("waiting", &waiting)] {
        let flags = socket.flags();
        assert!(
            flags.contains(Flags::ERROR | Flags::HUP),
            "{name}: {flags:?}"
        );
        assert_eq!(socket.header().error(), 104, "ECONNRESET");
    }
    assert!(!scene.wired.cores[1].has_last_words());
}

#[test]
fn what_was_closed_may_say_its_last_words() {
    let mut scene = Scene::new();
    let (near, far) = scene.connected();
    assert_eq!(scene.active.send(&near, b"last words"), 10);
    scene.active.close(&near);
    scene.wired.turn();
    let now = scene.wired.now;
    scene.wired.cores[0].reset_connections(now);
    assert!(scene.wired.cores[0].has_last_words());
    scene.wired.run_until_idle();
    assert!(far.flags().contains(Flags::FIN));
    assert!(!far.flags().contains(Flags::ERROR));
    let mut bytes = [0; 16];
    assert_eq!(scene.passive.receive(&far, &mut bytes), 10);
}
