//! What is left of a program that dies, and what its peers see.

use crate::tests::scene::Scene;
use hostif::{Flags, Op};
use rustix::io::Errno;
use tcp::Duration;

#[test]
fn a_dead_program_ends_its_connections_with_fin_after_what_it_had_sent() {
    let mut scene = Scene::new();
    let (near, far) = scene.connected();
    assert_eq!(scene.active.send(&near, b"last words"), 10);
    drop(scene.active);
    scene.wired.run_until_idle();
    assert!(far.flags().contains(Flags::FIN));
    assert!(!far.flags().contains(Flags::ERROR));
    let mut bytes = [0; 16];
    assert_eq!(scene.passive.receive(&far, &mut bytes), 10);
    assert_eq!(&bytes[..10], b"last words");
}

#[test]
fn a_dead_program_that_had_unread_bytes_resets() {
    let mut scene = Scene::new();
    let (_near, far) = scene.connected();
    assert_eq!(scene.passive.send(&far, b"never read"), 10);
    scene.wired.run_until_idle();
    drop(scene.active);
    scene.wired.run_until_idle();
    assert!(far.flags().contains(Flags::ERROR | Flags::HUP));
    assert_eq!(far.header().error(), 104, "ECONNRESET");
}

#[test]
fn what_a_dead_program_consumed_without_a_note_was_read() {
    let mut scene = Scene::new();
    let (near, far) = scene.connected();
    assert_eq!(scene.passive.send(&far, b"read"), 4);
    scene.wired.run_until_idle();
    near.header().program_set_consumed(4);
    drop(scene.active);
    scene.wired.run_until_idle();
    assert!(far.flags().contains(Flags::FIN));
    assert!(!far.flags().contains(Flags::ERROR));
}

#[test]
fn a_dead_listener_resets_those_that_waited_and_refuses_others() {
    let mut scene = Scene::new();
    let waiting = scene
        .active
        .connect(&mut scene.wired, scene.listener.1)
        .unwrap();
    scene.wired.run_until_idle();
    assert!(waiting.flags().contains(Flags::CONNECTED));
    drop(scene.passive);
    scene.wired.run_until_idle();
    assert!(waiting.flags().contains(Flags::ERROR));
    let late = scene
        .active
        .connect(&mut scene.wired, scene.listener.1)
        .unwrap();
    scene.wired.run_until_idle();
    assert_eq!(late.header().error(), 111, "ECONNREFUSED");
}

#[test]
fn a_dead_program_leaves_nothing_behind() {
    let mut scene = Scene::new();
    let idle = scene.wired.holdings();
    let (near, far) = scene.connected();
    let (second, _) = scene.connected();
    // Nobody answers there: the connect is still under way.
    let nowhere = "10.9.0.77:1".parse().unwrap();
    scene.active.connect(&mut scene.wired, nowhere).unwrap();
    scene.active.listen(&mut scene.wired, 4).unwrap();
    scene.active.open(&mut scene.wired).unwrap();
    scene.active.send(&second, &[5; 16_384]);
    scene.passive.send(&far, &[6; 100]);
    scene.wired.turn();
    drop((near, scene.active));
    scene.wired.run_until_idle();
    assert_eq!(scene.wired.cores[0].programs.iter().count(), 0);
    drop(scene.passive);
    scene.wired.advance(Duration::from_secs(600));
    assert_eq!(scene.wired.holdings(), [[0; 6]; 2]);
    assert_ne!(idle, [[0; 6]; 2]);
}

#[test]
fn the_locks_of_a_dead_program_are_free() {
    let mut scene = Scene::new();
    let (near, far) = scene.connected();
    let channel = scene.active.fork(&mut scene.wired).unwrap();
    let child = scene.wired.greet(0, channel).unwrap();
    for lock in [near.header().send_lock(), near.header().receive_lock()] {
        assert!(lock.try_lock(scene.active.session));
    }
    drop(scene.active);
    scene.wired.run_until_idle();
    for lock in [near.header().send_lock(), near.header().receive_lock()] {
        assert!(lock.try_lock(child.session), "the dead hold on");
        lock.unlock(child.session);
    }
    assert_eq!(child.send(&near, b"heir"), 4);
    scene.wired.run_until_idle();
    let mut bytes = [0; 4];
    assert_eq!(scene.passive.receive(&far, &mut bytes), 4);
}

#[test]
fn a_forked_child_goes_on_after_its_parent_and_the_region_lives_as_long() {
    let mut scene = Scene::new();
    let (near, far) = scene.connected();
    let channel = scene.active.fork(&mut scene.wired).unwrap();
    drop(scene.active);
    scene.wired.run_until_idle();
    assert!(!far.flags().intersects(Flags::FIN | Flags::ERROR));
    // The child speaks for the first time only now; its own region is the second.
    let mut child = scene.wired.greet(0, channel).unwrap();
    assert_eq!(scene.wired.cores[0].layer.sockets.regions.len(), 2);
    assert_eq!(scene.passive.send(&far, b"hello"), 5);
    scene.wired.run_until_idle();
    let mut bytes = [0; 8];
    assert_eq!(child.receive(&near, &mut bytes), 5);
    child.close(&near);
    scene.wired.run_until_idle();
    assert!(far.flags().contains(Flags::FIN));
    assert!(!far.flags().contains(Flags::ERROR));
    scene.passive.close(&far);
    scene.wired.run_until_idle();
    assert_eq!(
        scene.wired.cores[0].layer.sockets.regions.len(),
        1,
        "nobody uses the region of the parent"
    );
}

#[test]
fn a_child_that_never_speaks_keeps_no_engine_busy_and_its_end_ends_its_holds() {
    let mut scene = Scene::new();
    let (near, far) = scene.connected();
    let channel = scene.active.fork(&mut scene.wired).unwrap();
    scene.passive.send(&far, b"news");
    scene.wired.run_until_idle();
    assert!(!scene.wired.cores[0].programs.has_waiting_news());
    scene.active.receive(&near, &mut [0; 4]);
    scene.active.close(&near);
    scene.wired.run_until_idle();
    assert!(
        !far.flags().contains(Flags::FIN),
        "the child still holds it"
    );
    // The parent has closed its descriptor, the child's goes with it.
    scene.active.backing = crate::harness::kernel_socket();
    drop(channel);
    scene.wired.run_until_idle();
    assert!(far.flags().contains(Flags::FIN));
    assert_eq!(scene.wired.cores[0].programs.iter().count(), 1);
}

#[test]
fn what_a_dead_program_had_asked_for_last_still_happens() {
    let mut scene = Scene::new();
    let (near, far) = scene.connected();
    // In the rings, unseen by the engine, when the program dies.
    scene.active.send(&near, b"one");
    scene.active.close(&near);
    drop(scene.active);
    scene.wired.run_until_idle();
    assert_eq!(scene.passive.receive(&far, &mut [0; 8]), 3);
    assert!(far.flags().contains(Flags::FIN));
}

#[test]
fn sockets_of_others_are_not_there() {
    let mut scene = Scene::new();
    let (near, _) = scene.connected();
    let mut other = scene.wired.attach(0);
    let close = Op::Close {
        written: 0,
        consumed: 0,
    };
    assert_eq!(
        other.try_call(&mut scene.wired, near.id, close),
        Err(Errno::BADF)
    );
    assert!(near.flags().contains(Flags::CONNECTED));
}
