//! Programs hear of sockets in the order in which something happened to them (epoll(7) of Linux).

use crate::tests::scene::Scene;
use hostif::{Completion, Op, OptionChanges, SocketId, SocketOption, WriteMode};

#[test]
fn what_happens_in_one_turn_is_announced_in_the_order_in_which_it_happened() {
    let mut scene = Scene::new();
    let pairs: Vec<_> = (0..4).map(|_| scene.connected()).collect();
    for order in [[0, 1, 2, 3], [3, 1, 0, 2], [2, 3, 1, 0]] {
        scene.wired.run_until_idle();
        scene.passive.reap();
        scene.passive.reaped.clear();
        for n in order {
            assert_eq!(scene.active.send(&pairs[n].0, b"x"), 1);
        }
        scene.wired.run_until_idle();
        scene.passive.reap();
        let announced: Vec<SocketId> = (scene.passive.reaped.iter())
            .filter_map(|completion| match completion {
                Completion::Event { socket } => Some(*socket),
                _ => None,
            })
            .collect();
        assert_eq!(announced, order.map(|n| pairs[n].1.id));
        for (_, far) in &pairs {
            assert_eq!(scene.passive.receive(far, &mut [0; 8]), 1);
        }
    }
}

/// An engine that comes late finds all three in one turn.
#[test]
fn an_option_is_for_what_is_written_after_it() {
    let mut scene = Scene::new();
    let (near, far) = scene.connected();
    let no_delay = |written_low| Op::SetOptions {
        changes: OptionChanges {
            no_delay: Some(true),
            ..OptionChanges::default()
        },
        written_low,
    };
    let written = near.header().written();
    let first = u32::try_from(written).unwrap();
    let received = |scene: &mut Scene, bytes: &mut [u8]| {
        scene.wired.run_until_idle();
        scene.passive.receive(&far, bytes)
    };

    scene.active.post(Some(near.id), no_delay(first));
    scene.active.send_as(&near, b"ab", WriteMode::More);
    assert_eq!(received(&mut scene, &mut [0; 8]), 0);
    scene.active.send(&near, b"cd");
    assert_eq!(received(&mut scene, &mut [0; 8]), 4);

    let cork = |value, written_low| Op::SetOption {
        option: SocketOption::Cork,
        value,
        written_low,
    };
    // What was written before a cork leaves, as does what a cork is lifted for; what comes after it stays.
    scene.active.send(&near, b"e");
    scene.active.post(Some(near.id), cork(1, first + 5));
    scene.active.send(&near, b"fgh");
    assert_eq!(received(&mut scene, &mut [0; 8]), 1);
    scene.active.post(Some(near.id), cork(0, first + 8));
    scene.active.post(Some(near.id), cork(1, first + 8));
    scene.active.send(&near, b"i");
    assert_eq!(received(&mut scene, &mut [0; 8]), 3);
    // So does what TCP_NODELAY takes from under it.
    scene.active.post(Some(near.id), no_delay(first + 9));
    scene.active.send(&near, b"jk");
    assert_eq!(received(&mut scene, &mut [0; 8]), 1);
}
