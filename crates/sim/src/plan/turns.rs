//! Clients that wait for an answer before they ask again, and whoever serves them, turn by turn: a program that
//! comes back from waiting takes everything that has come meanwhile. So what a wake-up costs is shared by more
//! requests the busier everybody is, and a cost per request alone would be too high under load or too low without.
//!
//! An event list of its own and not `machine`: the machine knows arrivals from outside and a NIC, this knows who
//! waits for whom and who shares processors. Nothing is random but a little jitter and pauses, from a fixed seed.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
};

use crate::{
    rng::Rng,
    statistics::histogram::Histogram,
    time::{Ns, round},
};

/// One program, engine or NIC processor; times are in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Station {
    /// The processors that it may run on, by their number; where parties want more than there are, they take turns.
    pub pool: usize,
    /// Each time it comes back from waiting.
    pub turn_ns: f64,
    /// Each message that it takes, with what it computes for it.
    pub receive_ns: f64,
    /// Each message that it passes on.
    pub send_ns: f64,
    /// More for a turn before which it slept.
    pub sleep_ns: f64,
    /// What it costs whoever wakes it.
    pub rouse_ns: f64,
    /// How long it takes to wake, in which nobody works.
    pub latency_ns: f64,
    /// It passes on what it took at the end of its turn, and not one by one.
    pub together: bool,
    /// Time that a message rests before it begins again, where it begins from here: exponential with this mean.
    pub pause_ns: f64,
}

/// What one party did per exchange.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Each {
    /// Times that it came back from waiting.
    pub turns: f64,
    /// Times that it had slept.
    pub sleeps: f64,
    /// Time that it worked.
    pub work_ns: f64,
}

/// Mean and percentiles of a time, in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Time {
    /// The mean.
    pub mean_ns: f64,
    /// The median.
    pub p50_ns: Ns,
    /// The 99th percentile.
    pub p99_ns: Ns,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Circulation {
    /// Exchanges per second.
    pub per_s: f64,
    /// Time from the beginning of an exchange to its end.
    pub time: Time,
    /// By party.
    pub each: Vec<Each>,
}

/// Exchanges that are counted, and those before them that are not.
const EXCHANGES: usize = 20_000;
const WARM_UP: usize = 4_000;
/// Messages that one turn takes at most: what epoll_wait(2) is commonly given room for.
const TURN: usize = 255;
/// Work is this much shorter or longer, evenly spread: without it parties would march in step.
const JITTER: f64 = 0.1;
const SEED: u64 = 1;

/// Lets messages circulate: each has a route of its own, of parties by number; a message that has come to the
/// end begins again, and that is an exchange. `pools` says how many processors each pool has.
pub fn circulate(parties: &[Station], pools: &[usize], routes: &[Vec<usize>]) -> Circulation {
    let mut course = Course::new(parties, pools, routes);
    for message in 0..routes.len() {
        course.ask(message);
    }
    let mut from = (0.0, vec![Each::default(); parties.len()]);
    while course.exchanges < WARM_UP + EXCHANGES {
        let before = course.exchanges;
        if !course.step() {
            break;
        }
        if before < WARM_UP && course.exchanges >= WARM_UP {
            from = (course.now_ns, course.done.clone());
            course.times = Histogram::default();
        }
    }
    let (from_ns, before) = from;
    let counted = (course.exchanges - WARM_UP.min(course.exchanges)).max(1) as f64;
    let each = course.done.iter().zip(&before).map(|(done, before)| Each {
        turns: (done.turns - before.turns) / counted,
        sleeps: (done.sleeps - before.sleeps) / counted,
        work_ns: (done.work_ns - before.work_ns) / counted,
    });
    Circulation {
        per_s: counted * 1e9 / (course.now_ns - from_ns).max(1e-9),
        time: Time {
            mean_ns: course.times.mean(),
            p50_ns: course.times.quantile(0.5),
            p99_ns: course.times.quantile(0.99),
        },
        each: each.collect(),
    }
}

/// What happens next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A message has rested and begins.
    Ask(usize),
    /// A party has woken and wants a processor.
    Awake(usize),
    /// A party has finished a message, or what comes before the first.
    Step(usize),
}

/// A party as it goes.
#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<usize>,
    taken: VecDeque<usize>,
    owed: VecDeque<usize>,
    /// The message under work, and whether its receiving is what was worked at.
    under_work: Option<(usize, bool)>,
    /// It wants a processor, has one, or is on its way there; otherwise it sleeps.
    up: bool,
    /// It has slept before the turn that it wants.
    slept: bool,
}

struct Course<'a> {
    parties: &'a [Station],
    routes: &'a [Vec<usize>],
    /// How far each message has come on its route, and when it began.
    places: Vec<usize>,
    began_ns: Vec<f64>,
    times: Histogram,
    states: Vec<State>,
    /// Processors of each pool that nobody has, and who wants one.
    free: Vec<usize>,
    wants: Vec<VecDeque<usize>>,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    inserted: u64,
    now_ns: f64,
    exchanges: usize,
    done: Vec<Each>,
    rng: Rng,
}

impl<'a> Course<'a> {
    fn new(parties: &'a [Station], pools: &[usize], routes: &'a [Vec<usize>]) -> Self {
        Self {
            parties,
            routes,
            places: vec![0; routes.len()],
            began_ns: vec![0.0; routes.len()],
            times: Histogram::default(),
            states: parties.iter().map(|_| State::default()).collect(),
            free: pools.to_vec(),
            wants: vec![VecDeque::new(); pools.len()],
            events: BinaryHeap::new(),
            inserted: 0,
            now_ns: 0.0,
            exchanges: 0,
            done: vec![Each::default(); parties.len()],
            rng: Rng::new(SEED),
        }
    }

    /// The next event; false where there is none.
    fn step(&mut self) -> bool {
        let Some(Reverse((at, _, event))) = self.events.pop() else {
            return false;
        };
        self.now_ns = f64::from_bits(at);
        match event {
            Event::Ask(message) => {
                self.ask(message);
            }
            Event::Awake(party) => self.want(party),
            Event::Step(party) => self.go_on(party),
        }
        true
    }

    fn schedule(&mut self, at_ns: f64, event: Event) {
        self.inserted += 1;
        // The bits of numbers that are not negative are in the order of the numbers.
        let key = (at_ns.max(0.0).to_bits(), self.inserted, event);
        self.events.push(Reverse(key));
    }

    /// A message begins: its exchange is timed from here.
    fn ask(&mut self, message: usize) -> f64 {
        self.began_ns[message] = self.now_ns;
        self.deliver(message)
    }

    /// Hands a message to the party at its place; what that costs the one who hands it over.
    fn deliver(&mut self, message: usize) -> f64 {
        let party = self.routes[message][self.places[message]];
        let state = &mut self.states[party];
        state.waiting.push_back(message);
        if state.up {
            return 0.0;
        }
        state.up = true;
        state.slept = true;
        let Station {
            rouse_ns,
            latency_ns,
            ..
        } = self.parties[party];
        let at_ns = self.now_ns + rouse_ns + latency_ns;
        self.schedule(at_ns, Event::Awake(party));
        rouse_ns
    }

    fn want(&mut self, party: usize) {
        let pool = self.parties[party].pool;
        self.wants[pool].push_back(party);
        self.let_run(pool);
    }

    /// Gives a free processor to who has waited longest: a turn begins.
    fn let_run(&mut self, pool: usize) {
        if self.free[pool] == 0 {
            return;
        }
        let Some(party) = self.wants[pool].pop_front() else {
            return;
        };
        self.free[pool] -= 1;
        let state = &mut self.states[party];
        let count = state.waiting.len().min(TURN);
        state.taken.extend(state.waiting.drain(..count));
        let slept = std::mem::take(&mut state.slept);
        let Station {
            turn_ns, sleep_ns, ..
        } = self.parties[party];
        let done = &mut self.done[party];
        done.turns += 1.0;
        done.sleeps += f64::from(u8::from(slept));
        let cost_ns = turn_ns + if slept { sleep_ns } else { 0.0 };
        self.next(party, cost_ns);
    }

    /// A party has finished what it worked at; then the next, until its turn is over.
    fn go_on(&mut self, party: usize) {
        let mut rousing_ns = 0.0;
        let together = self.parties[party].together;
        match self.states[party].under_work.take() {
            Some((message, true)) if together => self.states[party].owed.push_back(message),
            Some((message, _)) => rousing_ns = self.pass_on(message),
            None => {}
        }
        self.next(party, rousing_ns);
    }

    fn next(&mut self, party: usize, before_ns: f64) {
        let Station {
            receive_ns,
            send_ns,
            together,
            pool,
            ..
        } = self.parties[party];
        let state = &mut self.states[party];
        let (under_work, work_ns) = if let Some(message) = state.taken.pop_front() {
            let send_ns = if together { 0.0 } else { send_ns };
            (Some((message, true)), receive_ns + send_ns)
        } else if let Some(message) = state.owed.pop_front() {
            (Some((message, false)), send_ns)
        } else {
            (None, 0.0)
        };
        let jitter = 1.0 + JITTER * (2.0 * self.rng.unit() - 1.0);
        let work_ns = before_ns + work_ns * jitter;
        self.done[party].work_ns += work_ns;
        // To wake somebody with the last message of a turn takes time too.
        if under_work.is_some() || work_ns > 0.0 {
            self.states[party].under_work = under_work;
            self.schedule(self.now_ns + work_ns, Event::Step(party));
            return;
        }
        self.free[pool] += 1;
        let state = &mut self.states[party];
        if state.waiting.is_empty() {
            state.up = false;
        } else {
            self.wants[pool].push_back(party);
        }
        self.let_run(pool);
    }

    /// The message goes to the next on its route; what that costs who passes it on.
    fn pass_on(&mut self, message: usize) -> f64 {
        let place = self.places[message] + 1;
        if place < self.routes[message].len() {
            self.places[message] = place;
            return self.deliver(message);
        }
        let last = self.routes[message][self.places[message]];
        self.places[message] = 0;
        self.exchanges += 1;
        let took_ns = self.now_ns - self.began_ns[message];
        self.times.add(round(took_ns));
        let pause_ns = self.parties[last].pause_ns;
        if pause_ns <= 0.0 {
            return self.ask(message);
        }
        let at_ns = self.now_ns + self.rng.exponential(pause_ns);
        self.schedule(at_ns, Event::Ask(message));
        0.0
    }
}

#[cfg(test)]
mod tests;
