//! How often a sleeping program is rung, by policy.

use crate::harness::{Program, Socket, Wired, small_limits};
use hostif::Moderation;
use hostif::control::{Reply, Request};
use tcp::Duration;

const CONNECTIONS: usize = 12;

/// A program with connections on which data arrives, one after the other.
struct Scene {
    wired: Wired,
    active: Program,
    passive: Program,
    near: Vec<Socket>,
    /// Rings that were counted.
    rung: u64,
    _far: Vec<Socket>,
}

impl Scene {
    fn new(policy: &str, completion_entries: u32) -> Self {
        let mut limits = small_limits();
        limits.region.ring_entries.completion = completion_entries;
        let mut wired = Wired::new(limits);
        let (mut active, mut passive) = (wired.attach(0), wired.attach(1));
        let listener = passive.listen(&mut wired, 16).unwrap();
        let (mut near, mut far) = (Vec::new(), Vec::new());
        for _ in 0..CONNECTIONS {
            let programs = [&mut active, &mut passive];
            let pair = Program::connected(&mut wired, programs, &listener);
            near.push(pair.0);
            far.push(pair.1);
        }
        let policy = Moderation::parse(policy).unwrap();
        let (reply, _) = passive
            .request(&mut wired, &Request::Moderate(policy), &[])
            .unwrap();
        assert_eq!(reply, Reply::Moderated);
        wired.advance(Duration::from_ms(100));
        passive.reap();
        let mut scene = Self {
            wired,
            active,
            passive,
            near,
            _far: far,
            rung: 0,
        };
        scene.rings();
        scene
    }

    /// How often the program was rung since this was asked last; it sleeps again then.
    fn rings(&mut self) -> usize {
        let session = self.wired.cores[self.passive.side]
            .programs
            .get(self.passive.slot);
        let [_, rung] = session.unwrap().notifications();
        let before = core::mem::replace(&mut self.rung, rung);
        self.passive.region.program_sleep_word().announce();
        usize::try_from(rung - before).unwrap()
    }

    /// One byte on a connection.
    fn send(&mut self, connection: usize) {
        assert_eq!(self.active.send(&self.near[connection], b"x"), 1);
        self.wired.run_until_idle();
    }

    /// After which of the connections the program was rung.
    fn rung_after(&mut self) -> Vec<usize> {
        let rung = (0..CONNECTIONS).filter(|&connection| {
            self.send(connection);
            self.rings() > 0
        });
        rung.collect()
    }
}

#[test]
fn each_event_rings_unless_told_otherwise() {
    assert_eq!(
        Scene::new("each", 64).rung_after(),
        (0..CONNECTIONS).collect::<Vec<_>>()
    );
}

#[test]
fn every_fourth_event_rings_and_the_rest_after_its_time() {
    let mut scene = Scene::new("every=5,us=200", 64);
    assert_eq!(scene.rung_after(), [4, 9]);
    scene.wired.advance(Duration::from_us(199));
    assert_eq!(scene.rings(), 0);
    scene.wired.advance(Duration::from_us(1));
    assert_eq!(scene.rings(), 1);
    scene.wired.advance(Duration::from_ms(500));
    assert_eq!(scene.rings(), 0, "it was told of everything");
}

#[test]
fn a_full_ring_rings() {
    let mut scene = Scene::new("full,us=1000000", 8);
    assert_eq!(scene.rung_after()[0], 8, "eight events fit");
}

#[test]
fn the_answer_to_a_command_waits_for_nothing() {
    let mut scene = Scene::new("full,us=1000000", 64);
    let closed = (crate::harness::ADDRESSES[0], 1).into();
    scene.passive.connect(&mut scene.wired, closed).unwrap();
    assert!(scene.rings() > 0);
}

#[test]
fn urgent_data_overtakes_what_waits_and_takes_it_along() {
    let mut scene = Scene::new("full,us=1000000", 64);
    scene.send(1);
    assert_eq!(scene.rings(), 0, "it waits");
    let (near, header) = (&scene.near[0], scene.near[0].header());
    let window = near.region().window(header.windows().0).unwrap();
    window.copy_in(0, b"abX");
    header.program_set_written(3);
    let note = hostif::Written {
        socket: near.id,
        start: 0,
        end: 3,
        source: None,
        mode: hostif::WriteMode::Urgent,
        in_place: false,
        stamps: 0,
    };
    scene.active.written.push(&note).unwrap();
    scene.wired.run_until_idle();
    assert_eq!(scene.rings(), 1);
    let side = scene.passive.side;
    assert_eq!(scene.wired.cores[side].programs.urgent, 1);
    scene.wired.advance(Duration::from_ms(1_500));
    assert_eq!(scene.rings(), 0, "it was told of everything");
    scene.send(2);
    assert_eq!(scene.rings(), 0, "what comes next waits again");
}

#[test]
fn nothing_waits_while_memory_is_past_its_mark() {
    let mut scene = Scene::new("full,us=1000000", 64);
    scene.send(0);
    assert_eq!(scene.rings(), 0);
    let side = scene.passive.side;
    scene.wired.cores[side].config.limits.window_memory_bytes = 0;
    scene.wired.advance(Duration::from_ms(999));
    assert_eq!(scene.rings(), 1, "before its time was up");
    assert_eq!(scene.rung_after(), (0..CONNECTIONS).collect::<Vec<_>>());
    let urgent = scene.wired.cores[side].programs.urgent;
    assert_eq!(urgent, CONNECTIONS as u64 + 1);
    scene.wired.cores[side].config.limits.window_memory_bytes = u64::MAX;
    scene.wired.advance(Duration::from_secs(2));
    scene.rings();
    scene.send(0);
    assert_eq!(scene.rings(), 0, "it is over");
}

#[test]
fn a_policy_out_of_bounds_is_refused() {
    let mut wired = Wired::new(small_limits());
    let program = wired.attach(0);
    let policy = Moderation {
        every: Some(2),
        after_us: hostif::sync::moderation::MAX_AFTER_US + 1,
    };
    let asked = program.request(&mut wired, &Request::Moderate(policy), &[]);
    assert!(asked.is_err());
}
