//! The set against a naive model of epoll(7), and the corners that the model does not reach.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use proptest::prelude::*;

use super::kick::KICK;
use super::set::{EDGE, EXCLUSIVE, Interest, ONE_SHOT, Refused, Set, Watched, WatchedBy};
use super::wait::leave_plain;
use switch::readiness::{ERR, HUP, IN, OUT};

/// Something with settable events.
#[derive(Default)]
struct Source(AtomicU32);

impl Watched for Source {
    fn events(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }
}

/// A listener.
#[derive(Default)]
struct Listener(Source);

impl Watched for Listener {
    fn events(&self) -> u32 {
        self.0.events()
    }

    fn is_listener(&self) -> bool {
        true
    }
}

fn new_set() -> &'static Set {
    Box::leak(Box::default())
}

fn collect(set: &Set, room: usize) -> Vec<(u64, u32)> {
    let mut out = vec![libc::epoll_event { events: 0, u64: 0 }; room];
    let filled = set.collection().fill(&mut out, &mut |_| {});
    out[..filled]
        .iter()
        .map(|event| (event.u64, event.events))
        .collect()
}

fn add(set: &'static Set, source: &Arc<Source>, fd: i32, mask: u32) -> Arc<Interest> {
    let target: Arc<dyn Watched> = Arc::<Source>::clone(source);
    let interest = set
        .add(
            fd,
            target,
            (mask, fd.unsigned_abs().into()),
            WatchedBy::Engine,
        )
        .unwrap();
    interest.notify(u32::MAX);
    interest
}

#[derive(Clone, Debug)]
enum Step {
    /// The source's events become this, and what is new is announced.
    Change {
        source: usize,
        events: u32,
    },
    Modify {
        source: usize,
        mask: u32,
    },
    Remove {
        source: usize,
    },
    Add {
        source: usize,
        mask: u32,
    },
    Collect,
}

const SOURCES: usize = 4;

fn step() -> impl Strategy<Value = Step> {
    let source = 0..SOURCES;
    let events = prop_oneof![
        Just(0),
        Just(IN),
        Just(OUT),
        Just(IN | OUT),
        Just(IN | HUP),
        Just(ERR)
    ];
    let how = prop_oneof![Just(0), Just(EDGE), Just(ONE_SHOT), Just(EDGE | ONE_SHOT)];
    let what = prop_oneof![Just(IN), Just(OUT), Just(IN | OUT)];
    let mask = (how, what).prop_map(|(how, what)| how | what).boxed();
    prop_oneof![
        4 => (source.clone(), events).prop_map(|(source, events)| Step::Change { source, events }),
        1 => (source.clone(), mask.clone()).prop_map(|(source, mask)| Step::Modify { source, mask }),
        1 => source.clone().prop_map(|source| Step::Remove { source }),
        2 => (source, mask).prop_map(|(source, mask)| Step::Add { source, mask }),
        3 => Just(Step::Collect),
    ]
}

/// What the manual page says, without a ready list.
#[derive(Default)]
struct Model {
    /// Mask, whether something happened since the last report, whether a one-shot is spent.
    interests: BTreeMap<usize, (u32, bool, bool)>,
}

impl Model {
    fn changed(&mut self, source: usize, news: u32) {
        if let Some((mask, fresh, _)) = self.interests.get_mut(&source)
            && news & (*mask | ERR | HUP) != 0
        {
            *fresh = true;
        }
    }

    fn collect(&mut self, events: &[u32]) -> BTreeMap<usize, u32> {
        let mut reported = BTreeMap::new();
        for (source, (mask, fresh, spent)) in &mut self.interests {
            let due = events[*source] & (*mask | ERR | HUP) & !(EDGE | ONE_SHOT);
            let edge = *mask & EDGE != 0;
            if due != 0 && !*spent && (!edge || *fresh) {
                reported.insert(*source, due);
                *spent = *mask & ONE_SHOT != 0;
            }
            *fresh = false;
        }
        reported
    }
}

proptest! {
    #[test]
    fn collections_report_what_the_manual_page_says(steps in proptest::collection::vec(step(), 1..60)) {
        let set = new_set();
        let sources: Vec<Arc<Source>> = (0..SOURCES).map(|_| Arc::default()).collect();
        let mut interests: Vec<Option<Arc<Interest>>> = vec![None; SOURCES];
        let mut model = Model::default();
        for step in steps {
            match step {
                Step::Change { source, events } => {
                    // A source announces what it has got, as a socket does with each arrival.
                    sources[source].0.store(events, Ordering::SeqCst);
                    model.changed(source, events);
                    if let Some(interest) = &interests[source] {
                        interest.notify(events);
                    }
                }
                Step::Add { source, mask } => {
                    let fd = i32::try_from(source).unwrap();
                    if interests[source].is_none() {
                        interests[source] = Some(add(set, &sources[source], fd, mask));
                        model.interests.insert(source, (mask, true, false));
                    } else {
                        let target: Arc<dyn Watched> = Arc::<Source>::clone(&sources[source]);
                        let again = set.add(fd, target, (mask, 0), WatchedBy::Engine);
                        prop_assert_eq!(again.err(), Some(Refused::AlreadyThere));
                    }
                }
                Step::Modify { source, mask } => {
                    let target: Arc<dyn Watched> = Arc::<Source>::clone(&sources[source]);
                    let wish = (mask, source as u64);
                    let done = set.modify(i32::try_from(source).unwrap(), &target, wish);
                    prop_assert_eq!(done.is_ok(), interests[source].is_some());
                    if let Ok(interest) = done {
                        interest.notify(u32::MAX);
                        model.interests.insert(source, (mask, true, false));
                    }
                }
                Step::Remove { source } => {
                    let target: Arc<dyn Watched> = Arc::<Source>::clone(&sources[source]);
                    let done = set.remove(i32::try_from(source).unwrap(), &target);
                    prop_assert_eq!(done.is_ok(), interests[source].take().is_some());
                    model.interests.remove(&source);
                }
                Step::Collect => {
                    let events: Vec<u32> = sources.iter().map(|source| source.events()).collect();
                    let expected: BTreeMap<u64, u32> = model
                        .collect(&events)
                        .into_iter()
                        .map(|(source, events)| (source as u64, events))
                        .collect();
                    let found: BTreeMap<u64, u32> = collect(set, 16).into_iter().collect();
                    prop_assert_eq!(found, expected);
                }
            }
            prop_assert_eq!(set.served(), model.interests.len());
        }
    }
}

#[test]
fn a_collection_touches_ready_interests_only() {
    struct Counting(AtomicU32);
    impl Watched for Counting {
        fn events(&self) -> u32 {
            self.0.fetch_add(1, Ordering::SeqCst);
            0
        }
    }
    let set = new_set();
    let idle: Vec<Arc<Counting>> = (0..10_000)
        .map(|_| Arc::new(Counting(AtomicU32::new(0))))
        .collect();
    for (fd, source) in (0..).zip(&idle) {
        let target: Arc<dyn Watched> = Arc::<Counting>::clone(source);
        set.add(fd, target, (IN, 0), WatchedBy::Engine).unwrap();
    }
    let ready = Arc::new(Source(AtomicU32::new(IN)));
    add(set, &ready, 20_000, IN);
    for _ in 0..100 {
        assert_eq!(collect(set, 64), [(20_000, IN)]);
    }
    assert!(
        idle.iter()
            .all(|source| source.0.load(Ordering::SeqCst) == 0)
    );
}

#[test]
fn more_ready_interests_than_room_are_served_by_turns() {
    let set = new_set();
    let source = Arc::new(Source(AtomicU32::new(IN)));
    for fd in 0..5 {
        add(set, &source, fd, IN);
    }
    let order: Vec<u64> = (0..5)
        .flat_map(|_| collect(set, 2))
        .map(|(data, _)| data)
        .collect();
    assert_eq!(order, [0, 1, 2, 3, 4, 0, 1, 2, 3, 4]);
}

#[test]
fn a_collection_in_two_parts_reports_each_interest_once() {
    let set = new_set();
    let source = Arc::new(Source(AtomicU32::new(IN)));
    for fd in 0..3 {
        add(set, &source, fd, IN);
    }
    let mut out = [libc::epoll_event { events: 0, u64: 0 }; 8];
    let mut collection = set.collection();
    let parts = [0..2, 2..8].map(|part| collection.fill(&mut out[part], &mut |_| {}));
    assert_eq!(parts, [2, 1]);
    assert_eq!(out.map(|event| event.u64)[..3], [0, 1, 2]);
}

#[test]
fn an_event_that_nobody_wished_for_queues_nothing() {
    let set = new_set();
    let source = Arc::new(Source(AtomicU32::new(IN | OUT)));
    let interest = add(set, &source, 1, IN | OUT | EDGE);
    assert_eq!(collect(set, 4), [(1, IN | OUT)]);
    let reader = add(set, &source, 2, IN | EDGE);
    assert_eq!(collect(set, 4), [(2, IN)]);
    interest.notify(OUT);
    reader.notify(OUT);
    assert_eq!(collect(set, 4), [(1, IN | OUT)]);
    assert!(!set.has_ready());
}

#[test]
fn an_interest_that_the_kernel_watches_is_silent_until_it_moves() {
    let set = new_set();
    let source = Arc::new(Source(AtomicU32::new(IN)));
    let target: Arc<dyn Watched> = Arc::<Source>::clone(&source);
    let interest = set.add(3, target, (IN, 3), WatchedBy::Kernel).unwrap();
    interest.notify(u32::MAX);
    assert_eq!((collect(set, 4), set.served()), (vec![], 0));
    assert!(set.has_kernel_members());
    set.set_place(&interest, WatchedBy::Engine);
    interest.notify(u32::MAX);
    assert_eq!((collect(set, 4), set.served()), (vec![(3, IN)], 1));
    assert!(!set.has_kernel_members());
}

#[test]
fn a_listener_on_both_sides_is_found_by_its_data_and_spent_once() {
    let set = new_set();
    let source = Arc::new(Source(AtomicU32::new(IN)));
    let target: Arc<dyn Watched> = Arc::<Source>::clone(&source);
    let interest = set
        .add(4, target, (IN | ONE_SHOT, 44), WatchedBy::Both)
        .unwrap();
    assert!(set.kernel_reported(45).is_none());
    let found = set.kernel_reported(44).unwrap();
    set.spend(&found);
    interest.notify(u32::MAX);
    assert_eq!(collect(set, 4), []);
    assert!(set.has_kernel_members() && set.served() == 1);
}

#[test]
fn beside_a_listener_few_others_are_reported_each_in_its_turn() {
    const OTHERS: u64 = 20;
    let set = new_set();
    let sources: Vec<Arc<Source>> = (0..OTHERS).map(|_| Arc::default()).collect();
    for (fd, source) in (0..).zip(&sources) {
        source.0.store(IN, Ordering::SeqCst);
        add(set, source, fd, IN);
    }
    let listener = Arc::new(Listener::default());
    let target: Arc<dyn Watched> = Arc::<Listener>::clone(&listener);
    let wish = (IN, 99);
    let interest = set.add(99, target, wish, WatchedBy::Engine).unwrap();
    let set_waiting = |is_waiting: bool| {
        let events = if is_waiting { IN } else { 0 };
        listener.0.0.store(events, Ordering::SeqCst);
        interest.notify(u32::MAX);
    };
    let numbers = |room| -> Vec<u64> { collect(set, room).iter().map(|one| one.0).collect() };
    set_waiting(true);
    let mut seen: Vec<u64> = Vec::new();
    for _ in 0..10 {
        let found = numbers(64);
        assert_eq!((found[0], found.len()), (99, 5));
        seen.extend(&found[1..]);
        // More connections come.
        set_waiting(true);
    }
    let in_turn: Vec<u64> = (0..OTHERS).chain(0..OTHERS).collect();
    assert_eq!(seen, in_turn);
    set_waiting(false);
    assert_eq!(numbers(64).len(), sources.len());
}

#[test]
fn a_kicked_thread_takes_every_kick_away_and_keeps_the_order() {
    let set = new_set();
    let mut events =
        [KICK, 1, KICK, KICK, 2, KICK].map(|u64| libc::epoll_event { events: IN, u64 });
    assert_eq!(leave_plain(set, &mut events), Some(2));
    assert_eq!([events[0].u64, events[1].u64], [1, 2]);
    let mut kicks = [KICK; 2].map(|u64| libc::epoll_event { events: IN, u64 });
    assert_eq!(leave_plain(set, &mut kicks), None, "it was only kicked");
    assert_eq!(leave_plain(set, &mut []), Some(0), "its time was over");
}

#[test]
fn exclusive_interests_follow_the_rules_of_epoll_ctl() {
    let set = new_set();
    let source: Arc<dyn Watched> = Arc::new(Source::default());
    let refused = set.add(
        1,
        Arc::clone(&source),
        (IN | ONE_SHOT | EXCLUSIVE, 0),
        WatchedBy::Engine,
    );
    assert_eq!(refused.err(), Some(Refused::Invalid));
    set.add(
        1,
        Arc::clone(&source),
        (IN | EDGE | EXCLUSIVE, 0),
        WatchedBy::Engine,
    )
    .unwrap();
    assert_eq!(
        set.modify(1, &source, (IN, 0)).err(),
        Some(Refused::Invalid)
    );
}

#[test]
fn a_cleared_set_starts_a_new_life_empty() {
    let set = new_set();
    let source = Arc::new(Source(AtomicU32::new(IN)));
    let interest = add(set, &source, 1, IN);
    set.note_foreign(9, true);
    set.clear();
    interest.notify(u32::MAX);
    assert_eq!(
        (collect(set, 4), set.served(), set.has_kernel_members()),
        (vec![], 0, false)
    );
}

#[test]
fn a_number_whose_file_lives_on_does_not_collide_with_its_successor() {
    let set = new_set();
    let (first, second) = (
        Arc::new(Source::default()),
        Arc::new(Source(AtomicU32::new(OUT))),
    );
    add(set, &first, 5, IN);
    add(set, &second, 5, OUT);
    assert_eq!(collect(set, 4), [(5, OUT)]);
}
