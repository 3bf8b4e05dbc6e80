//! An engine that ends at every store: in front of each store to what is kept, and after it, an engine that carries, makes and ends connections
//! is killed, and another one goes on. docs/reliability.md says what has to go on.
//!
//! Each point is tried in a process of its own, which plays the scene up to it, has a copy of itself be the engine that is killed
//! (`sys.rs`), takes up what that has left, and plays on.

mod cable;
mod kept;
mod scene;
mod sys;

use crate::harness::Act;
use crate::programs::resume::Taken;
use kept::fingerprint;
use rustix::fd::OwnedFd;
use rustix::pipe::{PipeFlags, pipe_with};
use scene::Scene;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::rc::Rc;
use sys::End;

/// A process that is still there after that has found no end.
const DEADLINE_S: u32 = 60;
/// One of so many points is tried: 1 unless it says otherwise.
const STRIDE: &str = "SHUNT_CRASH_STRIDE";
/// One of so many points at which an engine leaves what the second begins to take up, and one of so many at which that ends.
const STRIDES_OF_RESUMING: [usize; 2] = [211, 17];

/// Where an engine ends: in which of the things that it is asked for, counted from 0, and at which point of that. Where the one that goes on
/// ends while it takes up what is there, so that a third one does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Point {
    act: usize,
    point: u64,
    resuming: Option<u64>,
}

/// What became of a scene.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Outcome {
    /// The last engine that was to end did so at its point, and all went on as it should.
    WentOn,
    /// It did what it had to do, and passed so many points; then it ended, and all went on.
    Whole(u64),
    /// Something is not as it should be.
    Wrong(String),
}

/// Acts in a process of its own; what it says there comes back.
fn apart(act: impl FnOnce(&OwnedFd)) -> (End, String) {
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).unwrap();
    let end = sys::in_process(DEADLINE_S, || {
        let said = rustix::io::dup(&writer).unwrap();
        std::panic::set_hook(Box::new(move |info| say(&said, &format!("{info}\n"))));
        i32::from(catch_unwind(AssertUnwindSafe(|| act(&writer))).is_err())
    });
    drop(writer);
    let said = std::io::read_to_string(std::fs::File::from(reader)).unwrap();
    (end, said)
}

/// A pipe holds what a test says.
fn say(writer: &OwnedFd, text: &str) {
    let _ = rustix::io::write(writer, text.as_bytes());
}

/// Plays the scene with an engine that ends at a point.
fn play(at: Point) -> Outcome {
    let (end, said) = apart(|writer| {
        let (mut scene, keeper) = Scene::new();
        let mut acts = 0;
        let has_ended = Rc::clone(&scene.has_ended);
        let writer = rustix::io::dup(writer).unwrap();
        scene.wired.stand_in = Some(Box::new(move |core, now, act: Act| {
            acts += 1;
            if acts - 1 == at.act {
                has_ended.set(true);
                let mut passed = keeper.end(core, now, at.point, |core| {
                    act.perform(core, now);
                });
                if let Some(point) = at.resuming {
                    passed = keeper.end(core, now, point, |core| {
                        core.resume(now, &mut Taken::default());
                    });
                }
                core.resume(now, &mut Taken::default());
                say(
                    &writer,
                    &passed.map_or("ended".to_owned(), |passed| passed.to_string()),
                );
            }
            act.perform(core, now)
        }));
        scene.play();
    });
    match (end, said.parse()) {
        (End::Exited(0), _) if said == "ended" => Outcome::WentOn,
        (End::Exited(0), Ok(passed)) => Outcome::Whole(passed),
        _ => Outcome::Wrong(format!("{end:?}: {said}")),
    }
}

/// Which of the things that the engine is asked for change what is kept.
fn acts_that_change() -> Vec<usize> {
    let (end, said) = apart(|writer| {
        let (mut scene, keeper) = Scene::new();
        let changing = Rc::<Cell<Vec<usize>>>::default();
        let (mut acts, seen) = (0, Rc::clone(&changing));
        let mut before = fingerprint();
        scene.wired.stand_in = Some(Box::new(move |core, now, act| {
            let _ = &keeper;
            let work = act.perform(core, now);
            let after = fingerprint();
            if after != before {
                let mut all = seen.take();
                all.push(acts);
                seen.set(all);
            }
            before = after;
            acts += 1;
            work
        }));
        scene.play();
        let text: Vec<_> = changing.take().iter().map(usize::to_string).collect();
        say(writer, &text.join(" "));
    });
    assert_eq!(end, End::Exited(0), "{said}");
    said.split(' ')
        .map(|number| number.parse().unwrap())
        .collect()
}

/// All points.
fn points() -> Vec<Point> {
    let all = acts_that_change().into_iter().flat_map(|act| {
        let at = move |point| Point {
            act,
            point,
            resuming: None,
        };
        (0..passed(at(u64::MAX))).map(at)
    });
    all.collect()
}

/// Points behind the last one of a scene.
fn passed(at: Point) -> u64 {
    match play(at) {
        Outcome::Whole(passed) => passed,
        wrong => panic!("{at:?}: {wrong:?}"),
    }
}

/// Tries points, and says where something goes wrong. How many there were.
fn try_all(points: impl IntoIterator<Item = Point>) -> usize {
    let (mut tried, mut wrong) = (0, BTreeMap::new());
    for point in points {
        tried += 1;
        if let Outcome::Wrong(how) = play(point) {
            wrong.insert(point, how);
        }
    }
    assert!(wrong.is_empty(), "{} of {tried}: {wrong:#?}", wrong.len());
    tried
}

/// Points at which a second engine ends while it takes up what the first has left at one of `points`.
fn resuming(points: impl IntoIterator<Item = Point>) -> Vec<Point> {
    let all = points.into_iter().flat_map(|at| {
        let at = move |point| Point {
            resuming: Some(point),
            ..at
        };
        (0..passed(at(u64::MAX))).map(at)
    });
    all.collect()
}

fn stride() -> usize {
    std::env::var(STRIDE).map_or(1, |stride| stride.parse().unwrap())
}

/// Runs one of the tests below with few of its points, in a process that has one thread: whoever is copied holds no lock.
fn run_few(test: &str, stride: usize) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "--nocapture", "--test-threads=1"])
        .arg(format!("tests::crashes::{test}"))
        .env(STRIDE, stride.to_string())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("points were tried"), "{said}");
}

#[test]
fn what_is_kept_is_whole_wherever_an_engine_ends() {
    // A prime number, so that each store of a loop has its turn.
    run_few("what_is_kept_is_whole_at_every_store", 37);
}

#[test]
fn what_is_kept_is_whole_where_the_engine_that_takes_it_up_ends_too() {
    run_few(
        "what_is_kept_is_whole_at_stores_of_the_engine_that_takes_it_up",
        7,
    );
}

#[test]
#[ignore = "ten thousand stores, minutes: make long"]
fn what_is_kept_is_whole_at_every_store() {
    let points = points();
    assert!(
        points.len() > 5_000,
        "the scene does little: {}",
        points.len()
    );
    let tried = try_all(points.into_iter().step_by(stride()));
    eprintln!("{tried} points were tried");
}

#[test]
#[ignore = "a thousand stores: make long"]
fn what_is_kept_is_whole_at_stores_of_the_engine_that_takes_it_up() {
    let [first, second] = STRIDES_OF_RESUMING;
    let points = resuming(points().into_iter().step_by(first * stride()));
    let tried = try_all(points.into_iter().step_by(second));
    eprintln!("{tried} points were tried");
}
