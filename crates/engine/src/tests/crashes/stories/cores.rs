//! An engine with two cores: a program of the first joins the other one, and has connections at both; the way there is by what one core leaves
//! for the other in memory, which ends with the engine.

use super::programs::{attach, leave};
use crate::harness::{ADDRESSES, kernel_socket};
use crate::tests::crashes::cable::STEERING;
use crate::tests::crashes::scene::{End, Listener, Pair, SOME, Scene};
use core::net::SocketAddr;
use hostif::{Flags, Op};
use rustix::io::Errno;
use std::sync::atomic::Ordering;

/// The place of the second core among all.
const SECOND: usize = 2;
/// How often a library asks for a channel to another core.
const ATTEMPTS: usize = 3;

pub fn play(mut scene: Scene) {
    let far_listener = scene.listen(1);
    let first = attach(&mut scene);
    let second = join(&mut scene, first);
    let pairs = [first, second].map(|program| scene.connected(program, &far_listener));
    for [near, far] in &pairs {
        scene.carry(near, far, SOME);
        scene.losses.leaving.store(1, Ordering::Relaxed);
        scene.carry(far, near, SOME);
    }
    // Both at once, and each core ends one of them.
    carry_at_once(&mut scene, &pairs);
    let [[near, far], [second_near, second_far]] = &pairs;
    scene.end([near, far]);
    scene.end([second_far, second_near]);

    // One comes to the second core, and its program ends right after it has written there.
    let listener = scene.listen(second);
    let [far, near] = come(&mut scene, &listener);
    scene.carry(&far, &near, 100);
    let words = scene.bytes(100);
    assert_eq!(scene.programs[second].send(&near.socket, &words), 100);
    leave(&mut scene, second);
    scene.hears(&far, &words);
    scene.hears_the_end(&far);
    scene.close(&far);
    // It may join again: the first core knows it.
    let again = join(&mut scene, first);
    let pair = scene.connected(again, &far_listener);
    scene.carry(&pair[1], &pair[0], 100);
    scene.end([&pair[0], &pair[1]]);
    scene.close(&far_listener.0);
    scene.nothing_is_left();
}

/// The program has a session at the second core, too. What one core had left for the other is lost with the engine: it is asked for again.
fn join(scene: &mut Scene, program: usize) -> usize {
    for _ in 0..ATTEMPTS {
        let channel = scene.programs[program].join(&mut scene.wired, 1).unwrap();
        match scene.wired.greet(SECOND, channel) {
            Err(Errno::CONNRESET) => assert!(scene.has_ended.get(), "nobody took the channel"),
            joined => {
                scene.programs.push(joined.unwrap());
                return scene.programs.len() - 1;
            }
        }
    }
    panic!("the second core is never joined");
}

/// Bytes on both connections, in both directions, before any has arrived.
fn carry_at_once(scene: &mut Scene, pairs: &[Pair; 2]) {
    let mut sent = Vec::new();
    for [near, far] in pairs {
        for (from, to) in [(near, far), (far, near)] {
            let bytes = scene.bytes(100);
            assert_eq!(scene.programs[from.program].send(&from.socket, &bytes), 100);
            sent.push((from, to, bytes));
        }
    }
    for (from, to, bytes) in sent {
        scene.receive(from, to, &bytes, |_| {});
    }
}

/// A connection from the other engine that is the second core's.
fn come(scene: &mut Scene, listener: &Listener) -> Pair {
    let remote = listener.1;
    let program = &mut scene.programs[1];
    let local = loop {
        let local = SocketAddr::new(ADDRESSES[1].into(), program.port());
        if STEERING.core_of(local, remote) == 1 {
            break local;
        }
        program.backing = kernel_socket();
    };
    let socket = program.open(&mut scene.wired).unwrap();
    let local = Some(local);
    let begun = program.try_call(&mut scene.wired, socket.id, Op::Connect { remote, local });
    begun.unwrap();
    scene.until("a connection stands", |_| {
        socket.flags().contains(Flags::CONNECTED)
    });
    let far = End { program: 1, socket };
    [far, scene.accept(listener)]
}
