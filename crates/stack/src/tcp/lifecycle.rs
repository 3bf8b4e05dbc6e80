//! What happens to a connection's row between birth and release: events, queues, orphans, TIME-WAIT.
//!
//! A row is *owned* while a program holds the connection, *detached* once no segment can find it
//! (closed, or its TIME-WAIT record has taken over), and released when it is detached, has sent its
//! last segments, and is neither owned nor waits to be accepted: a program is told of a connection that
//! was reset in the queue by its first call on it, as in Linux.

use super::Tcp;
use crate::containers::demux::FourTuple;
use crate::containers::intrusive::{at, slot};
use crate::containers::timers::Timer;
use crate::host::Host;
use crate::ip::Ip;
use crate::tables::{ConnectionRecord, Flags, Row as _, Touched};
use tcp::{ConnectionError, Events, Instant, State};

/// What says that events of a row may mean more than that bytes came or were acknowledged.
pub(super) const UNUSUAL: Flags = Flags::HALF_OPEN
    .union(Flags::FAST_OPEN)
    .union(Flags::DETACHED);

impl Tcp<'_> {
    /// Takes a row for a connection, if there is one, and lets it be found.
    pub(crate) fn insert(
        &mut self,
        ip: &mut Ip,
        tuple: FourTuple,
        fill: impl FnOnce(&mut ConnectionRecord),
    ) -> Option<u32> {
        let index = self.free_connections.pop().or_else(|| {
            let used = &mut *self.connections_used;
            let index = *used;
            (at(index) < self.connections.len()).then(|| {
                *used += 1;
                index
            })
        })?;
        let flow_label = ip.flow_label(&tuple);
        self.change_touched(index, Touched::Use, |record| {
            record.tuple = tuple;
            record.path_mtu = 0;
            record.flow_label = flow_label;
            record.set(Flags::all(), false);
            record.set(Flags::USED, true);
            fill(record);
        });
        self.demux.insert(&tuple, index);
        self.ports.add_user(tuple.local_port());
        Some(index)
    }

    /// Lets the TCP connection of a row do something and acts on what comes of it.
    pub(crate) fn run(
        &mut self,
        ip: &mut Ip,
        now: Instant,
        index: u32,
        host: &mut dyn Host,
        act: impl FnOnce(&mut tcp::Connection) -> Events,
    ) {
        let before = self.record(index).tcp.state();
        let events = self.change(index, |record| act(&mut record.tcp));
        self.apply(ip, now, index, before, events, host);
    }

    /// Acts on the events of connection `index`, whose state was `before`.
    #[inline]
    pub(crate) fn apply(
        &mut self,
        ip: &mut Ip,
        now: Instant,
        index: u32,
        before: State,
        events: Events,
        host: &mut dyn Host,
    ) {
        let record = self.record(index);
        if events.contains(Events::TRANSMIT) && record.tcp.may_transmit() {
            ip.flows.queue(index);
        }
        let usual = Events::READABLE | Events::WRITABLE | Events::TRANSMIT;
        if !usual.contains(events) || record.flags().intersects(UNUSUAL) {
            return self.apply_unusual(ip, now, index, before, events, host);
        }
        if events.intersects(Events::READABLE | Events::WRITABLE) {
            host.on_events(record.id(index), record.owner, events, &record.tcp);
        }
        self.arm(ip, index);
    }

    /// What [`Self::apply`] does where more has happened than that bytes came or were acknowledged.
    fn apply_unusual(
        &mut self,
        ip: &mut Ip,
        now: Instant,
        index: u32,
        before: State,
        events: Events,
        host: &mut dyn Host,
    ) {
        if events.contains(Events::ESTABLISHED) && self.record(index).has(Flags::HALF_OPEN) {
            self.enter_accept_queue(now, index, host);
        }
        if !(events - Events::TRANSMIT).is_empty() {
            let record = self.record(index);
            host.on_events(record.id(index), record.owner, events, &record.tcp);
            if self.record(index).has(Flags::FAST_OPEN) {
                self.settle_fast_open(now, index);
            }
        }
        if self.record(index).has(Flags::DETACHED) {
            return;
        }
        if events.contains(Events::TIME_WAIT) {
            self.enter_time_wait(ip, now, index);
            self.detach(ip, index);
        } else if events.contains(Events::CLOSED) {
            self.count_end(ip, index, before);
            self.demux.remove(index);
            let tuple = self.record(index).tuple;
            self.ports.remove_user(tuple.local_port());
            self.note_end(ip, tuple);
            self.detach(ip, index);
        } else {
            self.arm(ip, index);
        }
    }

    /// Tells connections what has failed since the last call. While connecting it is fatal, later it is
    /// a loss from which retransmission may recover (RFC 1122 §4.2.3.9).
    pub(crate) fn tell_failed(&mut self, ip: &mut Ip, now: Instant, host: &mut dyn Host) {
        while let Some(index) = ip.flows.failed.pop() {
            if !self.record(index).has(Flags::USED) {
                continue;
            }
            if self.record(index).has(Flags::INTERRUPTED) {
                self.run(ip, now, index, host, |tcp| {
                    tcp.handle_unreachable(ConnectionError::Reset, true)
                });
                continue;
            }
            self.mark(index, Flags::LOSE, true);
            ip.flows.senders.push(index);
            self.run(ip, now, index, host, |tcp| {
                tcp.handle_unreachable(ConnectionError::HostUnreachable, false)
            });
        }
    }

    fn count_end(&mut self, ip: &mut Ip, index: u32, before: State) {
        match before {
            State::SynSent | State::SynReceived => ip.link.counters.tcp_attempt_fails += 1,
            State::Established | State::CloseWait
                if matches!(
                    self.record(index).tcp.error(),
                    Some(ConnectionError::Reset | ConnectionError::BrokenPipe)
                ) || self.record(index).tcp.is_orphan() =>
            {
                ip.link.counters.tcp_estab_resets += 1;
            }
            _ => {}
        }
    }

    /// No segment finds the row any more; its last segments still leave.
    fn detach(&mut self, ip: &mut Ip, index: u32) {
        let flags = self.record(index).flags();
        if flags.contains(Flags::HALF_OPEN) {
            self.leave_queue(index, Flags::HALF_OPEN);
        } else if !flags.intersects(Flags::OWNED | Flags::READY) {
            self.orphans -= 1;
        }
        ip.link.timers.set(Timer::Connection(index), None);
        let held = Flags::OWNED | Flags::READY;
        if flags.intersects(held) && !self.record(index).tcp.may_transmit() {
            self.mark(index, Flags::DETACHED, true);
            return ip.forget_path(at(index));
        }
        self.mark(index, Flags::DETACHED | Flags::DRAINING, true);
        if ip.flows.is_waiting(at(index)) {
            ip.forget_path(at(index));
        }
        ip.flows.senders.push(index);
    }

    /// Gives the row back.
    pub(crate) fn release(&mut self, ip: &mut Ip, index: u32, host: &mut dyn Host) {
        ip.forget_path(at(index));
        self.take_blocks(index);
        ip.link.counters.tcp_retrans_segs += self.record(index).tcp.retransmissions();
        let (id, owner) = (self.record(index).id(index), self.record(index).owner);
        self.change_touched(index, Touched::Use, |record| {
            record.set(Flags::all(), false);
            record.generation = record.generation.wrapping_add(1);
        });
        self.free_connections.push(index);
        host.on_released(id, owner);
    }

    /// The program has let go of connection `index`. Returns whether it lives on without one.
    pub(crate) fn disown(&mut self, ip: &mut Ip, index: u32, host: &mut dyn Host) -> bool {
        self.mark(index, Flags::OWNED, false);
        let flags = self.record(index).flags();
        if !flags.contains(Flags::DETACHED) {
            self.orphans += 1;
            return true;
        }
        if !flags.contains(Flags::DRAINING) {
            self.release(ip, index, host);
        }
        false
    }

    /// Puts the deadline of connection `index` into the wheel.
    ///
    /// A deadline that moved away, or is none any more, stays where it is: most timers are pushed back or stopped with
    /// every packet, and one early look is cheaper than moving each time.
    #[inline(always)]
    pub(crate) fn arm(&self, ip: &mut Ip, index: u32) {
        let record = self.record(index);
        if record.flags() & (Flags::USED | Flags::DETACHED) == Flags::USED {
            hasten(ip, index, record.tcp.next_deadline());
        }
    }

    pub(crate) fn handle_connection_timer(
        &mut self,
        ip: &mut Ip,
        now: Instant,
        index: u32,
        host: &mut dyn Host,
    ) {
        let record = self.record(index);
        if !record.has(Flags::USED) || record.has(Flags::DETACHED) {
            return;
        }
        if record
            .tcp
            .deadline()
            .is_some_and(|deadline| deadline <= now)
        {
            let before = record.tcp.state();
            let events = self.fly(index, |record, blocks| {
                record.tcp.handle_timeout(now, blocks)
            });
            self.apply(ip, now, index, before, events, host);
            self.watch_fast_open(ip, now, index);
        } else {
            self.arm(ip, index);
        }
    }

    /// Moves what must be remembered of connection `index` to the TIME-WAIT table.
    fn enter_time_wait(&mut self, ip: &mut Ip, now: Instant, index: u32) {
        ip.link.counters.time_waits += 1;
        let time_wait = self.change(index, |record| record.tcp.time_wait(now));
        let record = self.record(index);
        let (tuple, ttl, tos) = (record.tuple, record.ttl, record.tos);
        let flow_label = record.flow_label;
        self.demux.remove(index);
        let Some(w) = self.take_time_wait_row(ip) else {
            self.ports.remove_user(tuple.local_port());
            self.note_end(ip, tuple);
            return;
        };
        self.time_waits.rows[at(w)].change(|row| {
            row.tuple = tuple;
            (row.ttl, row.tos, row.flow_label) = (ttl, tos, flow_label);
            row.since = now;
            row.tcp = time_wait;
            row.used = 1;
        });
        self.link_time_wait(ip, w);
    }

    /// Makes TIME-WAIT row `w` findable, timed and evictable; its port is counted already.
    pub(crate) fn link_time_wait(&mut self, ip: &mut Ip, w: u32) {
        let row = &self.time_waits.rows[at(w)];
        let (tuple, deadline) = (row.tuple, row.tcp.deadline());
        self.demux.insert(&tuple, slot(self.connections.len()) + w);
        self.time_waits
            .links
            .push_back(&mut self.time_waits.order, w);
        ip.link.timers.set(Timer::TimeWait(w), Some(deadline));
    }
}

/// Lets the wheel look at connection `index` at `wanted`, unless it will earlier.
#[inline(always)]
pub(super) fn hasten(ip: &mut Ip, index: u32, wanted: Instant) {
    let timer = Timer::Connection(index);
    if wanted < ip.link.timers.deadline(timer) {
        ip.link.timers.move_to(timer, wanted);
    }
}
