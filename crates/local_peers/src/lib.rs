//! Other engines of this host, besides a device: a program with an engine inside and an address on the same interface
//! is reached through shared memory instead, which both set up by themselves.
//!
//! A driver around another one. It takes the stack's question for a hardware address (ARP, neighbour
//! discovery), and asks on this host first: `handshake.rs`. An engine that answers becomes a *neighbour*: frames for its
//! addresses go through a wire (`nic::wire`) from then on, uncut and without checksum, and the stack need not ask.
//! When it ends, however that happens, its socket says so, and the stack gives up its connections. What a
//! neighbour writes into the memory is checked by the wire; one that writes nonsense is a neighbour no longer. Besides
//! frames engines exchange notes (`notes.rs`); what they are about is the engine's business (`engine/src/byte_channels/`). Why and what not: docs/decisions/0023-neighbours-on-one-host.md.

mod destination;
mod driver;
mod handshake;
mod notes;

use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use hostif::host_hooks;
use nic::wire::{Config, WireEnd};
use nic::{ControlMessage, Counters, Driver, LocalPeerChange, RxFrame, TxFrame};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd, RawFd};
use rustix::io::Errno;

use destination::Destination;
use handshake::PendingPeer;

/// Neighbours at one time; who is not among them is looked for on the link, where nobody answers.
pub const NEIGHBOURS_MAX: usize = 32;
/// Who has come and said nothing yet, at one time: the first of them has to go.
const STRANGERS_MAX: usize = 8;
/// Who is let in at one look and address; the rest at the next.
const STRANGERS_PER_LOOK: usize = 8;
/// Bytes of frames on their way to a neighbour.
const RING_BYTES: usize = 4 * 1024 * 1024;
/// What neighbours have said and nobody has asked for; while there is so much nothing more is heard.
const NOTES_MAX: usize = 256;
/// A busy engine looks at its sockets once in so many bursts.
const BURSTS_PER_LOOK: u32 = 1024;
/// How long frames for a neighbour whose memory is full hold up all others; then they are lost, as on a line whose queue is full.
const FULL_PATIENCE: Duration = Duration::from_millis(20);
/// How soon a full neighbour is tried again.
const FULL_RETRY_US: u64 = 1_000;

const TAG_DEVICE: u64 = 0;
const TAG_LISTENERS: u64 = 1;
/// From here on neighbours and strangers.
const TAG_FIRST: u64 = 2;

/// An engine on this host.
struct Neighbour {
    tag: u64,
    wire: WireEnd,
    addresses: Vec<IpAddr>,
    /// Since when its memory is full.
    full_since: Option<Instant>,
    /// It has ended, or is no longer believed: no more than what it has sent is taken.
    is_gone: bool,
    /// Nothing more was there at the last look.
    is_drained: bool,
    /// Memory for the bytes of connections, until somebody asks for it; whether we have made it.
    memory: Option<(OwnedFd, bool)>,
}

/// A device, and the engines of this host that are reached without it.
pub struct LocalPeerDriver<D> {
    device: D,
    /// What the names of engines on this interface begin with.
    prefix: String,
    own: Vec<IpAddr>,
    listeners: Vec<OwnedFd>,
    epoll: OwnedFd,
    /// The device's descriptor in `epoll`, if it is there.
    watched: Option<RawFd>,
    neighbours: Vec<Neighbour>,
    strangers: VecDeque<(u64, OwnedFd)>,
    news: VecDeque<LocalPeerChange>,
    /// What neighbours have said.
    heard: VecDeque<(u64, ControlMessage)>,
    next_tag: u64,
    /// The caller may have slept, and something may have woken it.
    slept: bool,
    bursts: u32,
    /// The neighbour that the next burst is received from first.
    turn: usize,
    /// What passed to and from neighbours that are gone, and what was lost because their memory was full.
    past: Counters,
}

impl<D: Driver> LocalPeerDriver<D> {
    /// `device`, on which the addresses `own` are ours, and the engines of this host that know the same `prefix`: it
    /// names the interface.
    ///
    /// # Errors
    /// The device cannot be waited for, or a descriptor is missing.
    pub fn new(device: D, prefix: &str, own: Vec<IpAddr>) -> Result<Self, Errno> {
        let epoll = host_hooks::relocate_fd(epoll::create(CreateFlags::CLOEXEC)?);
        let waited = device.wait_fd().ok_or(Errno::OPNOTSUPP)?;
        let watch = |fd: BorrowedFd<'_>, tag| {
            epoll::add(&epoll, fd, EventData::new_u64(tag), EventFlags::IN)
        };
        watch(waited, TAG_DEVICE)?;
        let watched = Some(waited.as_raw_fd());
        let listeners: Vec<OwnedFd> = own
            .iter()
            .take(handshake::ADDRESSES_MAX)
            .filter_map(|address| handshake::listen(prefix, *address))
            .collect();
        for listener in &listeners {
            watch(listener.as_fd(), TAG_LISTENERS)?;
        }
        Ok(Self {
            device,
            prefix: prefix.to_owned(),
            own,
            listeners,
            epoll,
            watched,
            neighbours: Vec::new(),
            strangers: VecDeque::new(),
            news: VecDeque::new(),
            heard: VecDeque::new(),
            next_tag: TAG_FIRST,
            slept: false,
            bursts: 0,
            turn: 0,
            past: Counters::default(),
        })
    }

    /// How many engines are reached without the device.
    #[must_use]
    pub fn neighbours(&self) -> usize {
        self.neighbours.len()
    }

    /// Who has an address; whoever has come last.
    fn place(&self, address: IpAddr) -> Option<usize> {
        self.neighbours
            .iter()
            .rposition(|one| !one.is_gone && one.addresses.contains(&address))
    }

    /// Looks at the sockets: who is gone, who has greeted, who has come. In this order: an engine that was started
    /// anew has ended before, and what was its predecessor's must be over when it is heard.
    fn look(&mut self) -> io::Result<()> {
        let mut events = [epoll::Event {
            flags: EventFlags::empty(),
            data: EventData::new_u64(0),
        }; 64];
        let at_once = rustix::fs::Timespec::default();
        let count = match epoll::wait(&self.epoll, &mut events[..], Some(&at_once)) {
            Ok(count) => count,
            Err(Errno::INTR) => 0,
            Err(errno) => return Err(errno.into()),
        };
        let ready = |tag: u64| events[..count].iter().any(|event| event.data.u64() == tag);
        for one in &mut self.neighbours {
            if ready(one.tag) && !one.is_gone {
                one.is_gone = !one.wire.hear().unwrap_or(false);
                if one.is_gone {
                    // It would be readable for ever.
                    let _ = one.wire.wait_fd().map(|fd| epoll::delete(&self.epoll, fd));
                }
            }
        }
        for _ in 0..self.strangers.len() {
            let Some((tag, stranger)) = self.strangers.pop_front() else {
                break;
            };
            if ready(tag) {
                self.admit(tag, stranger);
            } else {
                self.strangers.push_back((tag, stranger));
            }
        }
        if ready(TAG_LISTENERS) {
            self.accept();
        }
        Ok(())
    }

    fn accept(&mut self) {
        for at in 0..self.listeners.len() {
            for _ in 0..STRANGERS_PER_LOOK {
                let Some(stranger) = handshake::accept(self.listeners[at].as_fd()) else {
                    break;
                };
                let tag = self.next_tag;
                let data = EventData::new_u64(tag);
                if epoll::add(&self.epoll, &stranger, data, EventFlags::IN).is_err() {
                    continue;
                }
                self.next_tag += 1;
                // Most have greeted before they are heard.
                self.admit(tag, stranger);
                if self.strangers.len() > STRANGERS_MAX
                    && let Some((_, silent)) = self.strangers.pop_front()
                {
                    let _ = epoll::delete(&self.epoll, &silent);
                }
            }
        }
    }

    /// Hears a stranger that is watched.
    fn admit(&mut self, tag: u64, stranger: OwnedFd) {
        // A descriptor that is closed here may be open in a forked child: taking it out of the watch comes first.
        let _ = epoll::delete(&self.epoll, &stranger);
        match handshake::hear(stranger) {
            PendingPeer::Silent(stranger) => {
                let data = EventData::new_u64(tag);
                if epoll::add(&self.epoll, &stranger, data, EventFlags::IN).is_ok() {
                    self.strangers.push_back((tag, stranger));
                }
            }
            PendingPeer::Neighbour(wire, memory, addresses) => {
                let is_well = !addresses.iter().any(|address| self.own.contains(address));
                if is_well {
                    self.add(*wire, (memory, false), addresses);
                }
            }
            PendingPeer::Nobody => {}
        }
    }

    /// Takes in a neighbour; false: there are [`NEIGHBOURS_MAX`] already.
    fn add(&mut self, wire: WireEnd, memory: (OwnedFd, bool), addresses: Vec<IpAddr>) -> bool {
        if self.neighbours.len() >= NEIGHBOURS_MAX {
            return false;
        }
        let Some(fd) = wire.wait_fd() else {
            return false;
        };
        let tag = self.next_tag;
        if epoll::add(&self.epoll, fd, EventData::new_u64(tag), EventFlags::IN).is_err() {
            return false;
        }
        self.next_tag += 1;
        for address in &addresses {
            self.news.push_back(LocalPeerChange::Here(*address));
        }
        self.neighbours.push(Neighbour {
            tag,
            wire,
            addresses,
            full_since: None,
            is_gone: false,
            is_drained: false,
            memory: Some(memory),
        });
        true
    }

    /// Forgets a neighbour that is gone.
    fn remove(&mut self, at: usize) {
        let gone = self.neighbours.remove(at);
        if let Some(fd) = gone.wire.wait_fd() {
            // Not watched any more where its socket has told.
            let _ = epoll::delete(&self.epoll, fd);
        }
        self.past += gone.wire.counters();
        for address in gone.addresses {
            // Two engines that have looked for each other at once have two wires, which end together.
            let has_another = |one: &Neighbour| one.addresses.contains(&address);
            if !self.neighbours.iter().any(has_another) {
                self.news.push_back(LocalPeerChange::Gone(address));
            }
        }
    }

    /// Whether who has this address is a neighbour, or has become one by our asking.
    fn ask(&mut self, address: IpAddr) -> bool {
        if self.own.contains(&address) || address.is_unspecified() {
            return false;
        }
        if self.place(address).is_some() {
            let change = LocalPeerChange::Here(address);
            if !self.news.contains(&change) {
                self.news.push_back(change);
            }
            return true;
        }
        if self.neighbours.len() >= NEIGHBOURS_MAX {
            return false;
        }
        let caps = self.device.caps();
        let config = Config {
            mtu: caps.mtu,
            ring_bytes: RING_BYTES,
            hardware_addresses: Some([caps.hardware_address; 2]),
        };
        handshake::seek(&self.prefix, address, &self.own, &config)
            .is_some_and(|(wire, memory)| self.add(wire, (memory, true), vec![address]))
    }

    /// Sends a frame; false: it has to be offered again.
    fn send(&mut self, frame: &TxFrame<'_>) -> io::Result<bool> {
        let at = match destination::of(frame.headers) {
            Destination::Question(address) if self.ask(address) => return Ok(true),
            Destination::Packet(address) if !self.neighbours.is_empty() => self.place(address),
            _ => None,
        };
        let Some(at) = at else {
            return Ok(self.device.tx_burst(std::slice::from_ref(frame))? > 0);
        };
        let one = &mut self.neighbours[at];
        match one.wire.tx_burst(std::slice::from_ref(frame)) {
            Ok(0) => {
                let since = *one.full_since.get_or_insert_with(Instant::now);
                if since.elapsed() < FULL_PATIENCE {
                    return Ok(false);
                }
                self.past.tx_dropped += 1;
            }
            Ok(_) => one.full_since = None,
            // What it wrote makes no sense.
            Err(_) => one.is_gone = true,
        }
        Ok(true)
    }

    /// Takes what neighbours have sent, and forgets those that are gone and have sent no more.
    fn receive(&mut self, budget: usize, sink: &mut dyn FnMut(RxFrame<'_>)) -> usize {
        let count = self.neighbours.len();
        let mut received = 0;
        for step in 0..count {
            let one = &mut self.neighbours[(self.turn + step) % count];
            let (left, tag) = (budget - received, one.tag);
            let heard = &mut self.heard;
            let burst = one
                .wire
                .rx_burst(left, &mut |frame| match notes::read(frame.bytes) {
                    Some(note) => heard.push_back((tag, note)),
                    None => sink(frame),
                });
            match burst {
                Ok(frames) => {
                    received += frames;
                    one.is_drained = frames < left;
                }
                Err(_) => {
                    one.is_gone = true;
                    one.is_drained = true;
                }
            }
        }
        self.turn = (self.turn + 1) % count;
        let over = |one: &Neighbour| one.is_gone && one.is_drained;
        while let Some(at) = self.neighbours.iter().position(over) {
            self.remove(at);
        }
        received
    }
}

#[cfg(test)]
mod tests;
