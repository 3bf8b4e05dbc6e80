//! An engine core that serves established connections allocates nothing: not for packets, not for
//! events, not for timers. A binary of its own, for its allocator.

#![allow(clippy::unwrap_used)] // a failure here ends the test, as it should

#[path = "engine_allocation/sys.rs"]
mod sys;

use engine::harness::{Program, Socket, Wired, small_limits};
use tcp::Duration;

#[global_allocator]
static ALLOCATOR: sys::Counting = sys::Counting;

struct Scene {
    wired: Wired,
    programs: [Program; 2],
    pairs: Vec<[Socket; 2]>,
    /// Allocations inside the cores.
    allocations: u64,
}

impl Scene {
    fn new(connections: usize) -> Self {
        let mut wired = Wired::new(small_limits());
        let (mut active, mut passive) = (wired.attach(0), wired.attach(1));
        let listener = passive.listen(&mut wired, 8).unwrap();
        let mut pairs = Vec::new();
        for _ in 0..connections {
            let programs = [&mut active, &mut passive];
            let (near, far) = Program::connected(&mut wired, programs, &listener);
            pairs.push([near, far]);
        }
        Self {
            wired,
            programs: [active, passive],
            pairs,
            allocations: 0,
        }
    }

    fn turn(&mut self) {
        let before = sys::allocations();
        self.wired.turn();
        self.allocations += sys::allocations() - before;
        for program in &mut self.programs {
            program.reap();
            program.reaped.clear();
        }
    }

    /// Every connection sends `len` bytes each way; both sides read all of it.
    fn exchange(&mut self, bytes: &[u8]) {
        let total = 2 * self.pairs.len() * bytes.len();
        let mut sent = vec![[0_usize; 2]; self.pairs.len()];
        let (mut received, mut buffer) = (0, vec![0; 16_384]);
        for _ in 0..10_000 {
            for (pair, sent) in self.pairs.iter().zip(&mut sent) {
                for side in [0, 1] {
                    sent[side] += self.programs[side].send(&pair[side], &bytes[sent[side]..]);
                }
            }
            self.turn();
            for pair in &self.pairs {
                for side in [0, 1] {
                    received += self.programs[side].receive(&pair[side], &mut buffer);
                }
            }
            if received == total {
                return;
            }
            self.wired.now += Duration::from_us(50);
        }
        panic!("{received} of {total} bytes arrived");
    }

    fn measure(&mut self, rounds: usize, bytes: &[u8]) -> u64 {
        for _ in 0..rounds {
            self.exchange(bytes);
        }
        self.allocations = 0;
        for _ in 0..rounds {
            self.exchange(bytes);
            // Delayed acknowledgements and other timers come due.
            self.wired.now += Duration::from_ms(250);
            self.turn();
        }
        self.allocations
    }
}

#[test]
fn small_messages_both_ways_allocate_nothing() {
    let mut scene = Scene::new(1);
    assert_eq!(scene.measure(2_000, &[7; 100]), 0);
    assert_ne!(sys::allocations(), 0, "nothing is counted");
}

#[test]
fn bulk_both_ways_allocates_nothing() {
    let mut scene = Scene::new(1);
    assert_eq!(scene.measure(100, &[7; 200_000]), 0);
}

#[test]
fn many_connections_at_once_allocate_nothing() {
    let mut scene = Scene::new(24);
    assert_eq!(scene.measure(200, &[7; 3_000]), 0);
}

#[test]
fn answering_who_has_an_address_allocates_nothing() {
    let mut scene = Scene::new(1);
    // Neighbours are asked again every half minute or so of traffic.
    scene.exchange(&[1; 10]);
    for _ in 0..40 {
        scene.wired.now += Duration::from_secs(20);
        scene.exchange(&[1; 10]);
    }
    scene.allocations = 0;
    for _ in 0..40 {
        scene.wired.now += Duration::from_secs(20);
        scene.exchange(&[1; 10]);
    }
    assert_eq!(scene.allocations, 0);
}
