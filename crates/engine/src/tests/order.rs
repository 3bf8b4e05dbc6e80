//! Programs hear of sockets in the order in which something happened to them (epoll(7) of Linux).

use crate::tests::scene::Scene;
use hostif::{Completion, SocketId};

#[test]
fn what_happens_in_one_turn_is_announced_in_the_order_in_which_it_happened() {
    let mut scene = Scene::new();
    let pairs: Vec<_> = (0..4).map(|_| scene.connected()).collect();
    for order in [[0, 1, 2, 3], [3, 1, 0, 2], [2, 3, 1, 0]] {
        scene.wired.settle();
        scene.passive.reap();
        scene.passive.reaped.clear();
        for n in order {
            assert_eq!(scene.active.send(&pairs[n].0, b"x"), 1);
        }
        scene.wired.settle();
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
