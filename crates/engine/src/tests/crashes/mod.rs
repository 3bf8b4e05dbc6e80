//! An engine that ends at every store: in front of each store to what is kept, and after it, an engine that carries, makes and ends connections
//! is killed, and another one goes on. docs/reliability.md says what has to go on.
//!
//! Each point is tried in a process of its own, which plays the scene up to it, has a copy of itself be the engine that is killed
//! (`sys.rs`), takes up what that has left, and plays on.

mod cable;
mod kept;
mod scene;
mod stories;
mod sys;

use crate::harness::Act;
use kept::{fingerprint, kept_memory};
use rustix::fd::OwnedFd;
use rustix::pipe::{PipeFlags, pipe_with};
use scene::Scene;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::rc::Rc;
use stories::{STORIES, Story};
use sys::{End, Memory};

/// A process that is still there after that has found no end.
const DEADLINE_S: u32 = 60;
/// The name of a story, where one alone is to be played.
const STORY: &str = "SHUNT_STORY";
/// Where a part of a story's points alone is to be tried: `2/5` is the second of five.
const PIECE: &str = "SHUNT_PIECE";
/// Few of the points are tried.
const TRIES_FEW: &str = "SHUNT_FEW_CRASHES";
/// Of how many things that the engine is asked for points are tried, and how many of each: all, and where there is little time.
const EVERY: [usize; 2] = [usize::MAX; 2];
const FEW: [usize; 2] = [48, 8];
/// The same of points at which an engine leaves what another one begins to take up, and at how many points of that this one ends.
const RESUMING: [usize; 3] = [60, 4, 12];
const FEW_RESUMING: [usize; 3] = [8, 2, 3];

/// Where an engine ends: in which of the things that it is asked for, counted from 0, and at which point of that. Where the one that goes on
/// ends while it takes up what is there, so that a third one does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Point {
    /// In which story.
    story: &'static str,
    act: usize,
    point: usize,
    resuming: Option<usize>,
}

/// What became of a scene.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Outcome {
    /// The last engine that was to end did so at its point, and all went on as it should.
    WentOn,
    /// It did what it had to do, and passed so many points; then it ended, and all went on.
    Whole(usize),
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

fn story(name: &str) -> &'static Story {
    let mut all = STORIES.iter();
    all.find(|one| one.name == name).expect("a story")
}

/// Plays the scene with an engine that ends at a point.
fn play(at: Point) -> Outcome {
    let (end, said) = apart(|writer| {
        let story = story(at.story);
        let (mut scene, keeper) = Scene::new(story.cores);
        let mut acts = 0;
        let has_ended = Rc::clone(&scene.has_ended);
        let writer = rustix::io::dup(writer).unwrap();
        scene.wired.stand_in = Some(Box::new(move |cores, side, now, act: Act| {
            acts += 1;
            if acts - 1 == at.act {
                has_ended.set(true);
                let memory = |is_made_there| Memory {
                    find: kept_memory,
                    is_made_there,
                };
                let is_made_there = act != Act::Poll;
                let first = (at.point, memory(is_made_there));
                let mut passed = keeper.end(cores, first, |cores| {
                    act.perform(&mut cores[side], now);
                });
                if let Some(point) = at.resuming {
                    passed = keeper.end(cores, (point, memory(true)), |cores| {
                        keeper.take_over(cores, now);
                    });
                }
                let taken = keeper.take_over(cores, now);
                keeper.close_left(&taken);
                say(
                    &writer,
                    &passed.map_or("ended".to_owned(), |passed| passed.to_string()),
                );
            }
            keeper.perform(&mut cores[side], now, act)
        }));
        (story.play)(scene);
    });
    match (end, said.parse()) {
        (End::Exited(0), _) if said == "ended" => Outcome::WentOn,
        (End::Exited(0), Ok(passed)) => Outcome::Whole(passed),
        _ => Outcome::Wrong(format!("{end:?}: {said}")),
    }
}

/// Which of the things that the engine is asked for in a story change what is kept.
fn acts_that_change(story: &Story) -> Vec<usize> {
    let (end, said) = apart(|writer| {
        let (mut scene, keeper) = Scene::new(story.cores);
        let changing = Rc::<Cell<Vec<usize>>>::default();
        let (mut acts, seen) = (0, Rc::clone(&changing));
        let mut before = fingerprint();
        scene.wired.stand_in = Some(Box::new(move |cores, side, now, act| {
            let work = keeper.perform(&mut cores[side], now, act);
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
        (story.play)(scene);
        let text: Vec<_> = changing.take().iter().map(usize::to_string).collect();
        say(writer, &text.join(" "));
    });
    assert_eq!(end, End::Exited(0), "{}: {said}", story.name);
    said.split(' ')
        .map(|number| number.parse().unwrap())
        .collect()
}

/// So many of these at most, evenly spread.
fn some_of<T>(all: impl ExactSizeIterator<Item = T>, most: usize) -> impl Iterator<Item = T> {
    let step = all.len().div_ceil(most).max(1);
    all.step_by(step)
}

/// How many things the engine is asked for in a story.
fn acts(story: &Story) -> usize {
    let (end, said) = apart(|writer| {
        let (mut scene, keeper) = Scene::new(story.cores);
        let acts = Rc::<Cell<usize>>::default();
        let count = Rc::clone(&acts);
        scene.wired.stand_in = Some(Box::new(move |cores, side, now, act| {
            count.set(count.get() + 1);
            keeper.perform(&mut cores[side], now, act)
        }));
        (story.play)(scene);
        say(writer, &acts.get().to_string());
    });
    assert_eq!(end, End::Exited(0), "{}: {said}", story.name);
    said.parse().unwrap()
}

/// Points of a story: of how many acts at most, and how many of each.
fn points(story: &Story, [most_acts, most_points]: [usize; 2]) -> Vec<Point> {
    let acts = match most_acts {
        usize::MAX => acts_that_change(story),
        // To look which of them change something takes longer than to try a few that do not.
        _ => some_of(0..acts(story), most_acts).collect(),
    };
    let [first, pieces] = piece();
    let acts = acts.into_iter().skip(first).step_by(pieces);
    let all = acts.flat_map(|act| {
        let at = move |point| Point {
            story: story.name,
            act,
            point,
            resuming: None,
        };
        some_of(passed(at(usize::MAX)), most_points).map(at)
    });
    all.collect()
}

/// Which of the parts of a story's points is to be tried, counted from 0, and how many there are.
fn piece() -> [usize; 2] {
    let Ok(text) = std::env::var(PIECE) else {
        return [0, 1];
    };
    let (number, pieces) = text.split_once('/').expect("2/5, for example");
    let [number, pieces]: [usize; 2] = [number, pieces].map(|text| text.parse().unwrap());
    assert!((1..=pieces).contains(&number), "no such piece: {text}");
    [number - 1, pieces]
}

/// Points behind the last one of a scene.
fn passed(at: Point) -> core::ops::Range<usize> {
    match play(at) {
        Outcome::Whole(passed) => 0..passed,
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

/// Points at which a second engine ends while it takes up what the first has left at one of `points`: so many of each at most.
fn resuming(points: Vec<Point>, most: usize) -> impl Iterator<Item = Point> {
    points.into_iter().flat_map(move |at| {
        let at = move |point| Point {
            resuming: Some(point),
            ..at
        };
        some_of(passed(at(usize::MAX)), most).map(at)
    })
}

/// All of them, or the one that is asked for.
fn stories() -> impl Iterator<Item = &'static Story> {
    let name = std::env::var(STORY).ok();
    let is_wanted = move |story: &&Story| name.as_ref().is_none_or(|name| name == story.name);
    STORIES.iter().filter(is_wanted)
}

/// Whether few points are tried.
fn tries_few() -> bool {
    std::env::var_os(TRIES_FEW).is_some()
}

/// Runs one of the tests below with few of its points, in a process that has one thread: whoever is copied holds no lock.
fn run_few(test: &str) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "--nocapture", "--test-threads=1"])
        .arg(format!("tests::crashes::{test}"))
        .env(TRIES_FEW, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    for story in STORIES {
        let tried = format!("{}: ", story.name);
        assert!(said.contains(&tried), "{said}");
    }
}

#[test]
fn what_is_kept_is_whole_wherever_an_engine_ends() {
    run_few("what_is_kept_is_whole_at_every_store");
}

#[test]
fn what_is_kept_is_whole_where_the_engine_that_takes_it_up_ends_too() {
    run_few("what_is_kept_is_whole_at_stores_of_the_engine_that_takes_it_up");
}

#[test]
#[ignore = "many thousand stores, minutes: make long"]
fn what_is_kept_is_whole_at_every_store() {
    for story in stories() {
        let points = points(story, if tries_few() { FEW } else { EVERY });
        let all = points.len();
        let is_much = tries_few() || piece() != [0, 1] || all > story.points_min;
        assert!(is_much, "{} does little: {all}", story.name);
        let tried = try_all(points);
        eprintln!("{}: {tried} points were tried", story.name);
    }
}

#[test]
#[ignore = "some thousand stores: make long"]
fn what_is_kept_is_whole_at_stores_of_the_engine_that_takes_it_up() {
    let [acts, left, resumed] = if tries_few() { FEW_RESUMING } else { RESUMING };
    for story in stories() {
        let tried = try_all(resuming(points(story, [acts, left]), resumed));
        eprintln!("{}: {tried} points were tried", story.name);
    }
}
