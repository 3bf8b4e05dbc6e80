//! From marks to stages: which mark belongs to which message, and how long each part of its way took.
//!
//! One message is on its way at a time, so a mark belongs to the message in whose round trip it falls; what came before on the
//! way comes before in time. What a stack does not note is not guessed: the stages around it are told as one.

use hostif::stages::Mark;

/// Folders in which the end that measures and the other one note, in that of a measurement.
pub const ASK: &str = "ask";
/// See [`ASK`].
pub const ANSWER: &str = "answer";

/// Points on the way of a message from one program to the other.
const WAY: [(Mark, End); 12] = [
    (Mark::Call, End::Sender),
    (Mark::Pushed, End::Sender),
    (Mark::Taken, End::Sender),
    (Mark::Accepted, End::Sender),
    (Mark::Transmit, End::Sender),
    (Mark::Left, End::Sender),
    (Mark::Arrived, End::Receiver),
    (Mark::Received, End::Receiver),
    (Mark::Placed, End::Receiver),
    (Mark::Readable, End::Receiver),
    (Mark::Seen, End::Receiver),
    (Mark::Returned, End::Receiver),
];

/// Stages between the points of [`WAY`], in order; the last one lies between its end and the next way's beginning.
pub const STAGES: [Stage; 12] = [
    Stage::new("call", Group::Processing),
    Stage::new("ring", Group::Processing),
    Stage::new("pick-up", Group::Processing),
    Stage::new("TCP/IP, sending", Group::Processing),
    Stage::new("driver transmit", Group::Transmission),
    Stage::new("wire", Group::Propagation),
    Stage::new("driver receive", Group::Transmission),
    Stage::new("TCP/IP, receiving", Group::Processing),
    Stage::new("placement", Group::Processing),
    Stage::new("wake-up", Group::Processing),
    Stage::new("return", Group::Processing),
    Stage::new("application", Group::Processing),
];

/// Points of a round trip: the way there and the way back.
pub const POINTS: usize = 2 * WAY.len();

/// The three kinds of latency of the `trading-nic` paper.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// Software on a host.
    Processing,
    /// From a host's software to the wire and back.
    Transmission,
    /// On the wire.
    Propagation,
}

/// A part of the way.
#[derive(Debug, Clone, Copy)]
pub struct Stage {
    /// Its name, here and in `shunt path`.
    pub name: &'static str,
    /// What kind of latency it is.
    pub group: Group,
}

impl Stage {
    const fn new(name: &'static str, group: Group) -> Self {
        Self { name, group }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Sender,
    Receiver,
}

/// Marks of both ends, each in the order of time.
#[derive(Debug, Default)]
pub struct Marks {
    /// Of the end that measures.
    pub ask: Vec<(u64, Mark)>,
    /// Of the end that sends back.
    pub answer: Vec<(u64, Mark)>,
}

/// One message, there and back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoundTrip {
    /// When it came to each point, in nanoseconds; `None`: not noted.
    pub points: [Option<u64>; POINTS],
    /// From before it was sent until its bytes were acknowledged.
    pub acknowledged_ns: Option<u64>,
}

impl RoundTrip {
    /// Whether it is known when the message left the host that measures.
    pub fn has_left(&self) -> bool {
        let left = WAY.iter().position(|(mark, _)| *mark == Mark::Left);
        left.is_some_and(|at| self.points[at].is_some())
    }
}

/// The messages that were sent and came back.
pub fn round_trips(marks: &Marks) -> Vec<RoundTrip> {
    let mut found = Vec::new();
    let [mut ask, mut answer] = [&marks.ask[..], &marks.answer[..]];
    loop {
        let Some(call) = first(ask, Mark::Call, 0, u64::MAX) else {
            return found;
        };
        let Some(end) = first(ask, Mark::Returned, call, u64::MAX) else {
            return found;
        };
        (ask, answer) = (from(ask, call), from(answer, call));
        found.push(round_trip(until(ask, end), until(answer, end), call, end));
        ask = from(ask, end + 1);
    }
}

fn round_trip(ask: &[(u64, Mark)], answer: &[(u64, Mark)], call: u64, end: u64) -> RoundTrip {
    let mut points = [None; POINTS];
    points[0] = Some(call);
    points[POINTS - 1] = Some(end);
    let turned = first(answer, Mark::Returned, call, end);
    let answered = first(answer, Mark::Call, turned.unwrap_or(call), end);
    points[WAY.len() - 1] = turned;
    points[WAY.len()] = answered;
    // Without a word of the other end: what this end sends is before what comes back.
    let halfway = turned.unwrap_or(end);
    let (there, back) = points.split_at_mut(WAY.len());
    fill(there, [ask, answer], call, halfway);
    fill(back, [answer, ask], answered.unwrap_or(call), end);
    let acknowledged = first(ask, Mark::Acknowledged, call, end);
    RoundTrip {
        points,
        acknowledged_ns: acknowledged.map(|at| at - call),
    }
}

/// Finds the points between the first and the last one of a way.
fn fill(points: &mut [Option<u64>], [sender, receiver]: [&[(u64, Mark)]; 2], begin: u64, end: u64) {
    let mut now = points[0].unwrap_or(begin);
    for at in 1..WAY.len() - 1 {
        let (mark, side) = WAY[at];
        let marks = if side == End::Sender {
            sender
        } else {
            receiver
        };
        points[at] = match mark {
            // A virtual device receives within the call that hands the packet over: its stamp of the arrival may come before
            // word of the leaving.
            Mark::Left => {
                let left = first(marks, mark, now, end);
                let arrival = arrived(receiver, now, end).unwrap_or(u64::MAX);
                left.map(|left| left.min(arrival))
            }
            Mark::Received => received(marks, now, end),
            Mark::Arrived => arrived(marks, now, end),
            _ => first(marks, mark, now, end),
        };
        now = points[at].unwrap_or(now);
    }
}

/// Frames without payload are received as well: the last one before the payload was placed, or could be read, is the one.
fn received(marks: &[(u64, Mark)], now: u64, end: u64) -> Option<u64> {
    let ends = [Mark::Placed, Mark::Readable];
    let next = ends
        .into_iter()
        .find_map(|next| first(marks, next, now, end))?;
    last(marks, Mark::Received, now, next)
}

/// A frame was there before it was received: the last one that was is the one. Of the kernel's stack only frames with payload
/// are told.
fn arrived(marks: &[(u64, Mark)], now: u64, end: u64) -> Option<u64> {
    let end = received(marks, now, end).unwrap_or(end);
    last(marks, Mark::Arrived, now, end)
}

fn from(marks: &[(u64, Mark)], at: u64) -> &[(u64, Mark)] {
    &marks[marks.partition_point(|(time, _)| *time < at)..]
}

fn until(marks: &[(u64, Mark)], end: u64) -> &[(u64, Mark)] {
    &marks[..marks.partition_point(|(time, _)| *time <= end)]
}

fn first(marks: &[(u64, Mark)], mark: Mark, begin: u64, end: u64) -> Option<u64> {
    let mut within = from(marks, begin).iter().take_while(|(at, _)| *at <= end);
    within.find(|(_, one)| *one == mark).map(|(at, _)| *at)
}

fn last(marks: &[(u64, Mark)], mark: Mark, begin: u64, end: u64) -> Option<u64> {
    let within = until(from(marks, begin), end).iter().rev();
    let mut of = within.filter(|(_, one)| *one == mark);
    of.next().map(|(at, _)| *at)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Marks of one message that is at each point ten nanoseconds after the one before, from `begin` on.
    fn message(begin: u64) -> Marks {
        let mut marks = Marks::default();
        for (index, (mark, side)) in WAY.into_iter().chain(WAY).enumerate() {
            let is_back = index >= WAY.len();
            let at = begin + 10 * index as u64;
            if (side == End::Sender) == is_back {
                marks.answer.push((at, mark));
            } else {
                marks.ask.push((at, mark));
            }
        }
        marks
    }

    #[test]
    fn marks_belong_to_the_message_in_whose_round_trip_they_fall() {
        let mut marks = message(1000);
        let next = message(5000);
        marks.ask.extend(next.ask);
        marks.answer.extend(next.answer);
        // A frame without payload comes to the end that answers, and what was sent is acknowledged.
        marks.answer.push((1063, Mark::Received));
        marks.ask.push((1155, Mark::Acknowledged));
        marks.ask.sort_unstable();
        marks.answer.sort_unstable();
        let found = round_trips(&marks);
        assert_eq!(found.len(), 2);
        let times = |begin: u64| std::array::from_fn(|at| Some(begin + 10 * at as u64));
        assert_eq!(found[0].points, times(1000));
        assert!(found[0].has_left());
        assert_eq!(found[0].acknowledged_ns, Some(155));
        assert_eq!(found[1].points, times(5000));
    }

    #[test]
    fn a_virtual_wire_takes_no_time() {
        let mut marks = message(1000);
        for (at, mark) in marks.ask.iter_mut().chain(&mut marks.answer) {
            if *mark == Mark::Left {
                *at += 15;
            }
        }
        let found = round_trips(&marks);
        assert_eq!(found[0].points[5], Some(1060));
        assert_eq!(found[0].points[6], Some(1060));
        assert_eq!(found[0].points[7], Some(1070));
    }

    #[test]
    fn what_is_not_noted_is_missing_and_nothing_else() {
        let mut marks = message(100);
        marks.ask.retain(|(_, mark)| *mark != Mark::Taken);
        let found = round_trips(&marks);
        assert_eq!(found[0].points[2], None);
        assert_eq!(found[0].points.iter().filter(|at| at.is_none()).count(), 1);
        // Nothing of the other end is known.
        marks.answer.clear();
        let found = round_trips(&marks);
        assert!(found[0].points[6..18].iter().all(Option::is_none));
        assert_eq!(found[0].points[5], Some(150));
        assert_eq!(found[0].points[18], Some(280));
    }
}
