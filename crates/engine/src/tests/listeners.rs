//! Listeners and what ends them.

use crate::tests::scene::Scene;
use hostif::{Flags, Op, ShutdownHow};
use rustix::io::Errno;

#[test]
fn a_listener_that_is_shut_resets_its_queue_refuses_and_can_listen_again() {
    let mut scene = Scene::new();
    let (listener, address) = scene.listener.clone();
    let shut = |how| Op::Shutdown { how, written: 0 };
    let (wired, passive) = (&mut scene.wired, &mut scene.passive);
    let unchanged = passive.try_call(wired, listener.id, shut(ShutdownHow::Write));
    assert_eq!(unchanged, Ok(0));
    assert!(listener.flags().contains(Flags::LISTENING));
    let waiting = scene.active.connect(wired, address).unwrap();
    wired.run_until_idle();
    assert!(waiting.flags().contains(Flags::CONNECTED));
    assert_eq!(listener.header().accept_ready(), 1);

    let done = passive.try_call(wired, listener.id, shut(ShutdownHow::Read));
    assert_eq!(done, Ok(0));
    wired.run_until_idle();
    assert!(!listener.flags().contains(Flags::LISTENING));
    assert_eq!(listener.header().accept_ready(), 0);
    assert!(waiting.flags().contains(Flags::ERROR), "it was reset");
    assert_eq!(passive.accept(wired, &listener).err(), Some(Errno::INVAL));
    let refused = scene.active.connect(wired, address).unwrap();
    wired.run_until_idle();
    assert!(refused.flags().contains(Flags::ERROR));
    let again = passive.try_call(wired, listener.id, shut(ShutdownHow::Read));
    assert_eq!(again, Err(Errno::NOTCONN));

    let listens = passive.try_call(wired, listener.id, Op::Listen { backlog: 4 });
    assert_eq!(listens, Ok(0));
    let taken = scene.active.connect(wired, address).unwrap();
    wired.run_until_idle();
    assert!(taken.flags().contains(Flags::CONNECTED));
    assert!(passive.accept(wired, &listener).is_ok());
}
