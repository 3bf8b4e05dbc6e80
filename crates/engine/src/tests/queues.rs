//! A device one of whose queues stops: connections over it end in their time, and the engine says why.

use crate::harness::{Program, Socket, Wired, small_limits};
use hostif::Flags;
use nic::wire::{self, WireEnd};
use nic::{Caps, Counters, Driver, RxFrame, TxFrame};
use rustix::fd::BorrowedFd;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tcp::Duration;

/// ETIMEDOUT, and EHOSTUNREACH where it is the neighbour that was asked in vain.
const ENDS: [u32; 2] = [110, 113];

/// Which queues of a device stand still.
#[derive(Default)]
struct Stopped {
    sending: AtomicBool,
    receiving: AtomicBool,
}

/// A device whose queues can be stopped.
struct Stoppable(WireEnd, Arc<Stopped>);

impl Driver for Stoppable {
    fn caps(&self) -> &Caps {
        self.0.caps()
    }
    fn rx_burst(&mut self, budget: usize, sink: &mut dyn FnMut(RxFrame<'_>)) -> io::Result<usize> {
        if self.1.receiving.load(Ordering::Relaxed) {
            return Ok(0);
        }
        self.0.rx_burst(budget, sink)
    }
    fn tx_burst(&mut self, frames: &[TxFrame<'_>]) -> io::Result<usize> {
        if self.1.sending.load(Ordering::Relaxed) {
            return Ok(0);
        }
        self.0.tx_burst(frames)
    }
    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.0.wait_fd()
    }
    fn prepare_wait(&mut self) -> io::Result<bool> {
        self.0.prepare_wait()
    }
    fn counters(&self) -> Counters {
        self.0.counters()
    }
}

struct Scene {
    wired: Wired,
    active: Program,
    passive: Program,
    listener: (Socket, core::net::SocketAddr),
    device: Arc<Stopped>,
}

impl Scene {
    fn new() -> Self {
        let (left, right) = WireEnd::pair(&wire::Config::default()).unwrap();
        let device = Arc::new(Stopped::default());
        let ends = [
            Stoppable(left, Arc::clone(&device)),
            Stoppable(right, Arc::default()),
        ];
        let mut wired = Wired::over(ends, small_limits());
        let (active, mut passive) = (wired.attach(0), wired.attach(1));
        let listener = passive.listen(&mut wired, 8).unwrap();
        Self {
            wired,
            active,
            passive,
            listener,
            device,
        }
    }

    fn connected(&mut self) -> (Socket, Socket) {
        let programs = [&mut self.active, &mut self.passive];
        Program::connected(&mut self.wired, programs, &self.listener)
    }

    /// Seconds in small steps: an engine offers again what the device did not take.
    fn pass(&mut self, seconds: u64) {
        for _ in 0..seconds * 10 {
            self.wired.advance(Duration::from_ms(100));
        }
    }

    fn said(&self) -> String {
        self.wired.cores[0].complaints().join(";")
    }
}

fn has_ended(socket: &Socket) -> bool {
    socket.flags().contains(Flags::ERROR) && ENDS.contains(&socket.header().error())
}

#[test]
fn behind_a_queue_that_takes_nothing_all_connections_end_in_their_time_and_it_is_said() {
    let mut scene = Scene::new();
    let (idle, idle_far) = scene.connected();
    let (busy, _busy_far) = scene.connected();
    scene.device.sending.store(true, Ordering::Relaxed);
    // More attempts than one: only the first frame of all is at the device, the others wait behind it.
    let mut asking = Vec::new();
    for _ in 0..3 {
        let socket = scene.active.connect(&mut scene.wired, scene.listener.1);
        asking.push(socket.unwrap());
    }
    assert_eq!(scene.active.send(&busy, b"never"), 5);
    scene.pass(3);
    assert!(scene.said().contains("takes no frames"), "{}", scene.said());
    // tcp_syn_retries = 6: 127 s.
    scene.pass(140);
    for socket in &asking {
        assert!(has_ended(socket));
    }
    assert!(
        !idle.flags().contains(Flags::ERROR),
        "nothing was sent on it"
    );
    // tcp_retries2 = 15: 924.6 s.
    scene.pass(900);
    assert!(has_ended(&busy));
    // The device recovers: nothing is left over of it.
    scene.device.sending.store(false, Ordering::Relaxed);
    assert_eq!(scene.active.send(&idle, b"at last"), 7);
    scene.pass(10);
    assert_eq!(scene.passive.receive(&idle_far, &mut [0; 9]), 7);
    assert_eq!(scene.said(), "");
}

#[test]
fn a_queue_that_stands_still_for_seconds_costs_time_and_no_bytes() {
    let mut scene = Scene::new();
    let (near, far) = scene.connected();
    scene.device.sending.store(true, Ordering::Relaxed);
    let bytes = [7; 10_000];
    assert_eq!(scene.active.send(&near, &bytes), bytes.len());
    scene.pass(5);
    scene.device.sending.store(false, Ordering::Relaxed);
    scene.pass(10);
    let mut received = [0; 20_000];
    assert_eq!(scene.passive.receive(&far, &mut received), bytes.len());
    assert_eq!(received[..bytes.len()], bytes);
}

#[test]
fn behind_a_queue_that_brings_nothing_connections_end_in_their_time_and_it_is_said() {
    let mut scene = Scene::new();
    let (busy, _far) = scene.connected();
    scene.device.receiving.store(true, Ordering::Relaxed);
    assert_eq!(scene.active.send(&busy, b"unheard"), 7);
    let asking = scene.active.connect(&mut scene.wired, scene.listener.1);
    let asking = asking.unwrap();
    scene.pass(30);
    assert!(
        scene.said().contains("nothing has arrived"),
        "{}",
        scene.said()
    );
    scene.pass(110);
    assert!(has_ended(&asking));
    scene.pass(900);
    assert!(has_ended(&busy));
}
