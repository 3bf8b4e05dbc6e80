//! Connections of both kinds, bytes in and out of order, timers, ends and resets, datagrams.

use crate::tests::crashes::scene::{End, Pair, SOME, Scene};
use hostif::{Flags, Op, OptionChanges};
use std::sync::atomic::Ordering;

pub fn play(mut scene: Scene) {
    let listener = scene.listen(0);
    let [far, near] = scene.connected(1, &listener);
    scene.carry(&far, &near, SOME);
    scene.carry(&near, &far, SOME);
    scene.losses.leaving.store(1, Ordering::Relaxed);
    scene.carry(&far, &near, SOME);
    scene.losses.coming.store(2, Ordering::Relaxed);
    scene.carry(&near, &far, SOME);
    datagrams(&mut scene);
    scene.end([&far, &near]);

    let far_listener = scene.listen(1);
    let pair = scene.connected(0, &far_listener);
    scene.carry(&pair[0], &pair[1], 10);
    scene.carry(&pair[1], &pair[0], 10);
    program_closes(&mut scene, &pair);
    let pair = scene.connected(0, &far_listener);
    scene.carry(&pair[1], &pair[0], 10);
    peer_resets(&mut scene, &pair);
    scene.close(&listener.0);
    scene.close(&far_listener.0);
    scene.nothing_is_left();
}

/// Datagrams both ways. One may be lost, or come twice, where an engine ends.
fn datagrams(scene: &mut Scene) {
    let mut sockets = Vec::new();
    for program in &mut scene.programs {
        sockets.push(program.datagram_socket(&mut scene.wired).unwrap());
    }
    for (socket, address) in &sockets {
        assert!(
            socket.flags().contains(Flags::DATAGRAM),
            "nobody was told of the socket"
        );
        let named = socket.header().addresses().0.map(|local| local.port());
        assert_eq!(named, Some(address.port()));
    }
    for from in [1, 0] {
        let payload = [7 + u8::from(from == 0); 100];
        let destination = sockets[1 - from].1;
        let mut waited = 0;
        scene.until("a datagram", |scene| {
            if waited % 8 == 0 {
                let sender = &scene.programs[from];
                sender.send_datagram(&sockets[from].0, Some(destination), &payload);
            }
            waited += 1;
            let received = scene.programs[1 - from].receive_datagram(&sockets[1 - from].0);
            received.is_some_and(|(_, bytes)| {
                assert_eq!(bytes, payload);
                true
            })
        });
    }
    for (program, (socket, _)) in sockets.into_iter().enumerate() {
        scene.close(&End { program, socket });
    }
}

/// The program closes first, right after it has written: the engine waits in TIME-WAIT.
fn program_closes(scene: &mut Scene, [near, far]: &Pair) {
    let words = b"last words";
    assert_eq!(scene.programs[0].send(&near.socket, words), words.len());
    scene.programs[0].close(&near.socket);
    scene.hears(far, words);
    scene.hears_the_end(far);
    scene.close(far);
}

fn peer_resets(scene: &mut Scene, [near, far]: &Pair) {
    let changes = OptionChanges {
        linger_s: Some(Some(0)),
        ..OptionChanges::default()
    };
    let op = Op::SetOptions {
        written_low: 0,
        changes,
    };
    scene.programs[1]
        .try_call(&mut scene.wired, far.socket.id, op)
        .unwrap();
    scene.close(far);
    scene.hears_a_reset(near);
    scene.close(near);
}
