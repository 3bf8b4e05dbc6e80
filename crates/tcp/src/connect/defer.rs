//! `TCP_DEFER_ACCEPT` (tcp(7)): a passive open is complete with the first data, not with the ACK of the
//! SYN-ACK. After the deferring time one more SYN-ACK gives the peer a last chance, as in Linux.

use crate::{
    connection::Connection,
    receive::Arrival,
    state::{FastOpen, State},
};

impl Connection {
    /// Whether the ACK of our SYN-ACK is to be forgotten because it brings nothing.
    pub(crate) fn defers_open(&mut self, arrival: &Arrival) -> bool {
        let defers = self.passive
            && self.fast_open != FastOpen::Serving
            && arrival.end == arrival.seq
            && self.timers.retries < self.options.defer_accept;
        self.deferred |= defers;
        defers
    }

    /// Whether the SYN-ACK need not be sent again: the peer has it and is only silent.
    pub(crate) fn is_waiting_for_first_data(&self) -> bool {
        self.state == State::SynReceived
            && self.deferred
            && self.timers.retries < self.options.defer_accept
    }
}
