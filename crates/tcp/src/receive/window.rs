//! The window we advertise (RFC 9293 §3.8.6, RFC 7323 §2).

use crate::connection::Connection;

impl Connection {
    #[inline]
    pub(crate) fn receive_capacity(&self) -> u64 {
        // What the program has set is not tuned.
        let offered = match self.options.receive_limit {
            0 => self.rcv.tuning.offered,
            limit => limit,
        };
        // Where 0 is no limit, it is the highest number of those that are one less.
        let less_one = |limit: u32| limit.wrapping_sub(1);
        let limit = less_one(offered).min(less_one(self.options.window_clamp));
        let capacity = limit.saturating_add(1).min(self.rcv.capacity);
        // RFC 7323 §2.2: sixteen bits and the shift express no more.
        u64::from(capacity).min(u64::from(u16::MAX) << self.rcv.window_shift)
    }

    /// Right edge that the space allows, moved only in worthwhile steps and never back
    /// (RFC 9293 §3.8.6.2.2: silly window avoidance).
    #[inline]
    fn next_edge(&self, capacity: u64) -> u64 {
        let target = self.rcv.consumed + capacity;
        let step = (capacity / 2).min(u64::from(self.rcv.segment_payload));
        if target >= self.rcv.advertised_edge + step {
            target
        } else {
            self.rcv.advertised_edge
        }
    }

    /// The window field of the next segment; remembers what it promises. RFC 7323 §2.4: a window that is no multiple of the
    /// field's unit would shrink, to zero if it is small. Up to one unit more is offered instead where the memory is there
    /// (Linux `__tcp_select_window`).
    #[inline]
    pub(crate) fn take_window_field(&mut self) -> u16 {
        let capacity = self.receive_capacity();
        let edge = self.next_edge(capacity);
        let rcv = &mut self.rcv;
        let window = edge.saturating_sub(rcv.nxt);
        let unit = 1 << rcv.window_shift;
        let whole = (window + unit - 1) >> rcv.window_shift << rcv.window_shift;
        let most = rcv.consumed + u64::from(rcv.capacity).min(capacity + unit - 1);
        let window = if rcv.nxt + whole <= most {
            whole
        } else {
            window
        };
        let field = u16::try_from(window >> rcv.window_shift).unwrap_or(u16::MAX);
        let promised = rcv.nxt + (u64::from(field) << rcv.window_shift);
        rcv.advertised_edge = rcv.advertised_edge.max(promised);
        field
    }

    /// The window field of a SYN or SYN-ACK: not scaled (RFC 7323 §2.2), and of full segments as Linux' is.
    pub(crate) fn syn_window_field(&self) -> u16 {
        let capacity = self.receive_capacity();
        // Only who answers knows what options the segments will have.
        let has_timestamps = self.passive && self.rcv.timestamps;
        let options_len = if has_timestamps { 12 } else { 0 };
        let segment = u64::from(self.rcv.advertised_mss.saturating_sub(options_len)).max(1);
        let whole = if capacity > segment {
            capacity - capacity % segment
        } else {
            capacity
        };
        u16::try_from(whole).unwrap_or(u16::MAX)
    }

    /// Whether consuming has opened the window so far that the peer should hear of it now.
    #[inline]
    pub(crate) fn window_update_due(&mut self) -> bool {
        if !self.state.can_receive() || self.rcv.nxt == 0 {
            return false;
        }
        let left = self.rcv.advertised_edge.saturating_sub(self.rcv.nxt);
        let capacity = self.receive_capacity();
        if 2 * left > capacity {
            return false;
        }
        // At most half is left and it would at least double.
        let due = self.next_edge(capacity).saturating_sub(self.rcv.nxt) >= (2 * left).max(1);
        self.rcv.ack_now |= due;
        due
    }

    /// Whether the program has read all of a message that it does not seem to answer: whoever sends small messages
    /// (RFC 9293 §3.7.4, Nagle) waits for the ACK then (Linux `tcp_cleanup_rbuf`).
    #[inline]
    pub(crate) fn ack_due_when_drained(&mut self) -> bool {
        let due = self.ack_waits_for_reader() && self.is_drained();
        self.rcv.ack_now |= due;
        due
    }

    /// Whether an ACK leaves when the program has consumed all there is.
    #[must_use]
    pub fn ack_waits_for_reader(&self) -> bool {
        let is_alone = self.rcv.pushed > 1 || self.rcv.pushed == 1 && !self.rcv.answers;
        is_alone && self.timers.delayed_ack.is_set()
    }
}
