//! What the kernel's tracepoints tell. Of its TCP: `tcp_probe`, when a segment of an established connection comes to it, and
//! `sk_data_ready`, when its bytes can be read (kernel 6.3). Of a packet that an engine sends: `net_dev_start_xmit`, when it
//! goes to the device, and past the queueing discipline, where a packet socket goes, `netif_rx`, when a virtual device hands it to
//! its other end. Read first: bpf-helpers(7).

use bpf::{
    Assembler, Condition, Error, Helper, Instruction, Link, Map, MapKind, Operation, Program,
    ProgramKind,
    Register::{R0, R1, R2, R3, R6, R10},
    Width,
};
use hostif::stages::Mark;

/// Events that wait to be taken at most; later ones are lost.
const EVENTS_MAX: u32 = 1 << 19;
/// include/net/sock.h, struct sock_common: the peer's port in the network's order and the own port in this machine's follow
/// the addresses and the hash. It has stood there since kernel 3.9.
const PORTS_OFFSET: i32 = 12;
/// A time, and a word: the mark, whose it is, and the number of a process.
const EVENT_BYTES: usize = 16;
const OF_ASK: u64 = 1;
const OF_ANSWER: u64 = 2;
/// A machine that sends without end is not followed for ever.
const EVENTS_TAKEN_MAX: usize = 2 << 19;

/// Tracepoints that are watched until this is dropped.
#[derive(Debug)]
pub struct Watch {
    events: Map,
    _links: Vec<Link>,
}

/// Something that was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// Time of CLOCK_MONOTONIC in nanoseconds.
    pub at_ns: u64,
    /// What happened.
    pub mark: Mark,
    /// To whom.
    pub whom: Whom,
}

/// Whose event it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whom {
    /// Of the connection's end that asks.
    Ask,
    /// Of its end that listens on the port.
    Answer,
    /// Of a process, by its number.
    Process(u32),
}

impl Watch {
    /// Watches the kernel's TCP connections to this port, in all network namespaces.
    ///
    /// # Errors
    /// The privilege is missing, or the kernel has no such tracepoints.
    pub fn of_connections(port: u16) -> Result<Self, Error> {
        Self::begin(&[
            (c"tcp_probe", Mark::Received, Some(port)),
            (c"sk_data_ready", Mark::Readable, Some(port)),
        ])
    }

    /// Watches what processes send, in all network namespaces.
    ///
    /// # Errors
    /// As of [`Watch::of_connections`].
    pub fn of_devices() -> Result<Self, Error> {
        Self::begin(&[
            (c"net_dev_start_xmit", Mark::Left, None),
            (c"netif_rx", Mark::Left, None),
        ])
    }

    fn begin(points: &[(&std::ffi::CStr, Mark, Option<u16>)]) -> Result<Self, Error> {
        let bytes = u32::try_from(EVENT_BYTES).expect("invariant: a small number");
        let events = Map::create(MapKind::Queue, "shunt_stages", 0, bytes, EVENTS_MAX)?;
        let link = |(name, mark, port): &(&std::ffi::CStr, Mark, Option<u16>)| {
            let program = match port {
                Some(port) => of_socket(&events, *port, *mark),
                None => of_process(&events, *mark),
            };
            let program = Program::load(ProgramKind::RawTracepoint, "shunt_stages", &program)?;
            Link::raw_tracepoint(&program, name)
        };
        let links = points.iter().map(link).collect::<Result<_, _>>()?;
        Ok(Self {
            events,
            _links: links,
        })
    }

    /// Takes what was seen since the last time.
    pub fn take(&self) -> Vec<Event> {
        let mut seen = Vec::new();
        let mut event = [0; EVENT_BYTES];
        while seen.len() < EVENTS_TAKEN_MAX && self.events.pop(&mut event).unwrap_or(false) {
            let [at_ns, what] = [&event[..8], &event[8..]]
                .map(|half| u64::from_ne_bytes(half.try_into().expect("invariant: eight bytes")));
            let mark = Mark::ALL
                .into_iter()
                .find(|mark| *mark as u64 == what & 0xff);
            let whom = match (what >> 8 & 0xff, what >> 32) {
                (OF_ASK, _) => Whom::Ask,
                (OF_ANSWER, _) => Whom::Answer,
                (_, process) => Whom::Process(u32::try_from(process).unwrap_or(0)),
            };
            seen.extend(mark.map(|mark| Event { at_ns, mark, whom }));
        }
        seen
    }
}

/// At a tracepoint whose first argument is a socket: notes the time where one of its ports is `port`.
fn of_socket(events: &Map, port: u16, mark: Mark) -> Vec<Instruction> {
    let what = |whom: u64| i32::from(mark as u8) | i32::try_from(whom << 8).unwrap_or(0);
    let mut program = Assembler::new();
    let (answers, note, end) = (program.label(), program.label(), program.label());
    program
        .load(Width::Double, R3, R1, 0)
        .alu(Operation::Add, R3, PORTS_OFFSET)
        .alu(Operation::Move, R1, R10)
        .alu(Operation::Add, R1, -8)
        .alu(Operation::Move, R2, 4)
        .call(Helper::ReadKernel)
        .jump_if(Condition::NotEqual, R0, 0, end)
        .load(Width::Half, R6, R10, -6)
        .jump_if(Condition::Equal, R6, i32::from(port), answers)
        .load(Width::Half, R6, R10, -8)
        .jump_if(Condition::NotEqual, R6, i32::from(port.to_be()), end)
        .alu(Operation::Move, R6, what(OF_ASK))
        .jump(note)
        .place(answers)
        .alu(Operation::Move, R6, what(OF_ANSWER))
        .place(note);
    push(&mut program, events);
    program.place(end).exit_with(0);
    program.finish().expect("invariant: all labels are placed")
}

/// Notes the time and the process that runs.
fn of_process(events: &Map, mark: Mark) -> Vec<Instruction> {
    let mut program = Assembler::new();
    program
        .call(Helper::ProcessAndThread)
        .alu(Operation::ShiftRight, R0, 32)
        .alu(Operation::ShiftLeft, R0, 32)
        .alu(Operation::Or, R0, i32::from(mark as u8))
        .alu(Operation::Move, R6, R0);
    push(&mut program, events);
    program.exit_with(0);
    program.finish().expect("invariant: all labels are placed")
}

/// Puts the time and what R6 says into the queue.
fn push(program: &mut Assembler, events: &Map) {
    program
        .call(Helper::MonotonicTime)
        .store(Width::Double, R10, -24, R0)
        .store(Width::Double, R10, -16, R6)
        .load_map(R1, events)
        .alu(Operation::Move, R2, R10)
        .alu(Operation::Add, R2, -24)
        .alu(Operation::Move, R3, 0)
        .call(Helper::Push);
}
