//! What waited for space in an accept queue (`tcp/deferred.rs`) is taken in.

use crate::egress::Egress;
use crate::host::Host;
use crate::stack::Stack;
use crate::tables::{Flags, ListenerId};
use crate::tcp::deferred::{Deferred, LastAck, Opening};
use crate::tcp::segment::Segment;
use core::net::IpAddr;
use tcp::Instant;

impl Stack<'_> {
    /// A program has accepted a connection of this listener: takes in what has waited for that. To be called behind each
    /// [`Stack::accept`].
    #[inline]
    pub fn take_deferred(
        &mut self,
        now: Instant,
        listener: ListenerId,
        host: &mut dyn Host,
        egress: &mut dyn Egress,
    ) {
        if !self.tcp.listeners.deferred.is_empty() {
            self.take_deferred_of(now, listener, host, egress);
        }
    }

    #[cold]
    #[inline(never)]
    fn take_deferred_of(
        &mut self,
        now: Instant,
        listener: ListenerId,
        host: &mut dyn Host,
        egress: &mut dyn Egress,
    ) {
        let listeners = &mut self.tcp.listeners;
        if listeners.check(listener).is_err() {
            return;
        }
        let is_left = listeners.queues(listener.index).ready.len() > 0;
        listeners.deferred.admit(listener.index, is_left);
        while let Some(next) = self.tcp.listeners.deferred.take(now, listener.index) {
            match next {
                Deferred::Opening(opening) => self.take_opening(now, &opening, host, egress),
                Deferred::LastAck(ack) => self.take_last_ack(now, &ack, host),
            }
        }
    }

    fn take_opening(
        &mut self,
        now: Instant,
        opening: &Opening,
        host: &mut dyn Host,
        egress: &mut dyn Egress,
    ) {
        let arrival = opening.arrival();
        // It was counted when it came.
        let counters = &mut self.ip.link.counters;
        counters.tcp_in_segs -= 1;
        match arrival.source {
            IpAddr::V4(_) => counters.ip_in_delivers -= 1,
            IpAddr::V6(_) => counters.ip6_in_delivers -= 1,
        }
        self.deliver(now, &arrival, host, egress);
    }

    fn take_last_ack(&mut self, now: Instant, ack: &LastAck, host: &mut dyn Host) {
        let id = ack.connection;
        let record = self.tcp.record(id.index);
        if record.generation == id.generation && record.has(Flags::HALF_OPEN) {
            let segment = Segment {
                header: &ack.header,
                payload: &[],
                mark: ack.mark,
            };
            self.tcp
                .handle_in_connection(&mut self.ip, now, id.index, &segment, host);
        }
    }
}
