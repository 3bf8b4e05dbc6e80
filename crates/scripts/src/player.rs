//! Runs one script on a bench: lets segments arrive when their time has come, takes what leaves in the
//! order in which it leaves, and compares. Strict: what leaves and is not expected is a fault.

mod events;
mod expect;
mod receive;

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::bench::Run;
use crate::expression::Values;
use crate::flow::Flow;
use crate::frame::{IpFields, Received, Tcp};
use crate::script::{Event, Family, Script, Side, Span, When};

/// Bytes of a packet around the payload without options: IPv4 and TCP, IPv6 and TCP.
const HEADERS_IP4: u32 = 40;
const HEADERS_IP6: u32 = 60;
/// MTU of a cable unless the script says otherwise.
pub const USUAL_MTU: u32 = 1_500;

/// A runner that is late by more than this has no business judging others; nor where those who work for the host have waited
/// longer for a processor.
const DISTURBED: Duration = Duration::from_millis(10);

/// Why a script failed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Line of the script.
    pub line: usize,
    /// That line.
    pub text: String,
    /// What was wrong.
    pub problem: String,
    /// What happened so far, line by line with times.
    pub trace: Vec<String>,
    /// The machine was too busy for the runner itself: the run says nothing about the host.
    pub is_disturbed: bool,
}

/// A segment of the host that the script has not spoken of yet.
struct Captured {
    at_ns: i64,
    received: Received,
    tcp: Tcp,
}

/// A call that has not returned.
struct Pending {
    number: u64,
    name: String,
    socket: String,
}

/// Playing one script.
pub(crate) struct Player<'r, 'b> {
    run: &'r mut Run<'b>,
    side: Side,
    family: Family,
    values: Values,
    flows: HashMap<u16, Flow>,
    peer_isn: u32,
    captured: VecDeque<Captured>,
    pending: Vec<Pending>,
    /// When the script began, and when the last event was; ns since the epoch.
    start_ns: i64,
    last_ns: i64,
    /// Until when we looked whether a call blocks: what leaves at once may leave until then.
    watched_ns: i64,
    /// How late we were ourselves at worst, ns.
    late_ns: i64,
    /// Something has happened that the host may still have to take in.
    is_unsettled: bool,
    /// The number of the last echo request, and of the last reply.
    asked: u16,
    answered: u16,
    /// How long those who work for the host had waited for a processor when the script began.
    waited_before_ns: i64,
    trace: Vec<String>,
    buffer: Vec<u8>,
}

/// Nanoseconds since the epoch, the clock of the captured frames.
pub(crate) fn now_ns() -> i64 {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(now.as_nanos()).unwrap_or(i64::MAX)
}

pub(crate) fn ns(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

/// Plays the script to its end, or to the first fault.
///
/// # Errors
/// That fault.
pub fn play(
    script: &Script,
    side: Side,
    family: Family,
    run: &mut Run<'_>,
) -> Result<(), Box<Failure>> {
    let mtu = script.mtu.unwrap_or(USUAL_MTU);
    let headers = match family {
        Family::Ip4 => HEADERS_IP4,
        Family::Ip6 => HEADERS_IP6,
    };
    let waited_before_ns = run.waited_ns();
    let start_ns = now_ns();
    let mut player = Player {
        run,
        side,
        family,
        values: Values::new(i64::from(mtu.saturating_sub(headers))),
        flows: HashMap::new(),
        peer_isn: isn(&script.name),
        captured: VecDeque::new(),
        pending: Vec::new(),
        start_ns,
        last_ns: start_ns,
        watched_ns: start_ns,
        late_ns: 0,
        is_unsettled: true,
        asked: 0,
        answered: 0,
        waited_before_ns,
        trace: Vec::new(),
        buffer: vec![0; 65_536 + 64],
    };
    let result = player.play(&script.events);
    player.farewell();
    result.map_err(Box::new)
}

/// The peer's initial sequence number: another one for each script, always the same for one. One in eight
/// lies just before the wrap.
fn isn(name: &str) -> u32 {
    // FNV-1a; any spread will do.
    let hash = name.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    if hash.is_multiple_of(8) {
        u32::MAX - 1_500
    } else {
        hash
    }
}

impl Player<'_, '_> {
    fn play(&mut self, events: &[Event]) -> Result<(), Failure> {
        let mut last = None;
        let (side, family) = (self.side, self.family);
        for event in events
            .iter()
            .filter(|event| event.scope.covers(side, family))
        {
            let result = self.perform(event);
            result.map_err(|problem| self.failure(event, problem))?;
            last = Some(event);
        }
        // What the last line provoked leaves within moments.
        let result = self.collect_until(now_ns() + 3_000_000);
        let result = result
            .map_err(|error| error.to_string())
            .and_then(|()| self.nothing_is_left());
        match (result, last) {
            (Err(problem), Some(event)) => {
                Err(self.failure(event, format!("after the last line: {problem}")))
            }
            _ => Ok(()),
        }
    }

    fn failure(&mut self, event: &Event, problem: String) -> Failure {
        // What came meanwhile is part of the story.
        while let Some(captured) = self.captured.pop_front() {
            let line = self.describe(&captured);
            self.note(captured.at_ns, &format!("{line}   <- not spoken of yet"));
        }
        let waited_ns = self.run.waited_ns() - self.waited_before_ns;
        Failure {
            line: event.line,
            text: event.text.clone(),
            problem,
            trace: std::mem::take(&mut self.trace),
            is_disturbed: self.late_ns.max(waited_ns) > ns(DISTURBED),
        }
    }

    /// Adds a line to the story.
    fn note(&mut self, at_ns: i64, text: &str) {
        self.trace.push(format!("{:>9} {text}", self.clock(at_ns)));
    }

    /// Seconds since the start.
    fn clock(&self, at_ns: i64) -> String {
        let micros = (at_ns - self.start_ns) / 1_000;
        let sign = if micros < 0 { "-" } else { "" };
        let micros = micros.unsigned_abs();
        format!("{sign}{}.{:06}", micros / 1_000_000, micros % 1_000_000)
    }

    /// Base and span of an event's time.
    fn times(&self, when: When) -> (i64, Span) {
        match when {
            When::AtOnce => (self.last_ns.max(self.watched_ns), crate::parse::at_once()),
            When::After(span) => (self.last_ns, span),
            When::At(span) => (self.start_ns, span),
        }
    }

    /// Waits until something that we cause is to happen.
    fn wait(&mut self, when: When) -> Result<(), String> {
        let (base, span) = self.times(when);
        let at = match when {
            When::AtOnce => return Ok(()),
            _ => base + ns(span.nominal),
        };
        self.collect_until(at).map_err(|error| error.to_string())
    }

    fn flow(&mut self, number: u16) -> &mut Flow {
        let isn = self
            .peer_isn
            .wrapping_add(u32::from(number).wrapping_mul(0x0101_0101));
        let port = self.run.port;
        self.flows
            .entry(number)
            .or_insert_with(|| Flow::new(number, port, isn))
    }

    /// Ends what the script has left open.
    fn farewell(&mut self) {
        for flow in self.flows.values().filter(|flow| flow.host_isn.is_some()) {
            let frame = flow.farewell().frame(&self.run.link, IpFields::default());
            // The host may be gone: then there is nothing to end.
            let _ = self.run.inject(&frame);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequence_numbers_of_scripts_differ_and_stay() {
        assert_eq!(isn("close/active"), isn("close/active"));
        assert_ne!(isn("close/active"), isn("close/passive"));
    }
}
