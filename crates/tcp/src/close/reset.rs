//! Resets: answering segments that belong to nothing (RFC 9293 §3.10.7.1), and believing only those
//! resets and SYNs that a blind attacker could not have sent (RFC 5961).

use crate::{
    connection::Connection,
    events::{ConnectionError, Events},
    state::State,
    time::{Duration, Instant},
};
use wire::tcp::{Flags, Header};

/// RFC 5961 §7: challenge ACKs at most in one interval, per connection.
const CHALLENGE_ACKS: u8 = 10;
const CHALLENGE_INTERVAL: Duration = Duration::from_secs(5);

/// The reset that answers a segment for which there is no connection; `None` for a reset.
///
/// Ports are swapped; the rest is as RFC 9293 §3.10.7.1 has it.
pub fn reset_reply(header: &Header, payload_len: usize) -> Option<Header> {
    if header.flags.contains(Flags::RST) {
        return None;
    }
    let mut reply = Header {
        source_port: header.destination_port,
        destination_port: header.source_port,
        flags: Flags::RST,
        ..Header::default()
    };
    if header.flags.contains(Flags::ACK) {
        reply.seq = header.ack;
    } else {
        let numbers = u32::from(header.flags.contains(Flags::SYN))
            + u32::from(header.flags.contains(Flags::FIN));
        let length = u32::try_from(payload_len)
            .unwrap_or(0)
            .wrapping_add(numbers);
        reply.flags |= Flags::ACK;
        reply.ack = header.seq.wrapping_add(length);
    }
    Some(reply)
}

impl Connection {
    /// RFC 5961 §3.2: only a reset at exactly RCV.NXT is believed.
    pub(crate) fn handle_reset(&mut self, now: Instant, seq: u64) -> Events {
        if seq != self.rcv.nxt {
            return self.owe_challenge_ack(now);
        }
        self.be_reset()
    }

    /// The peer is gone with all it knew, and whoever knows it is to be believed: as if it had reset the
    /// connection. One that is still connecting goes on asking.
    pub fn handle_peer_gone(&mut self) -> Events {
        match self.state {
            State::Closed | State::SynSent => Events::empty(),
            _ => self.be_reset(),
        }
    }

    fn be_reset(&mut self) -> Events {
        match self.state {
            // RFC 9293 §3.10.7.4: a passive open goes back to LISTEN, that is, away.
            State::SynReceived if self.passive => self.fail(ConnectionError::Reset),
            State::SynReceived => self.fail(ConnectionError::Refused),
            State::Closing | State::LastAck | State::TimeWait => {
                self.enter_closed();
                Events::CLOSED
            }
            // As Linux: the stream has been read to its end, and reading goes on to say so.
            State::CloseWait => self.fail(ConnectionError::BrokenPipe),
            _ => self.fail(ConnectionError::Reset),
        }
    }

    /// Whether the peer's SYN comes once more, its handshake being not over.
    pub(crate) fn repeats_syn(&self, header: &Header) -> bool {
        let kind = header.flags & (Flags::SYN | Flags::ACK | Flags::RST);
        self.state == State::SynReceived
            && kind == Flags::SYN
            && self.rcv.space.wire(0) == header.seq
    }

    /// RFC 5961 §4.2: a SYN in a synchronized state is challenged, whatever its number.
    pub(crate) fn handle_unexpected_syn(&mut self, now: Instant, header: &Header) -> Events {
        let repeats_handshake =
            self.state == State::SynReceived && self.rcv.space.wire(0) == header.seq;
        if repeats_handshake {
            if header.flags.contains(Flags::ACK) {
                // Simultaneous open: the peer's SYN-ACK acknowledges our SYN (RFC 9293 §3.5).
                let acknowledged = self.snd.space.position(header.ack, self.snd.una) == Some(1);
                if acknowledged && self.snd.max >= 1 {
                    self.snd.una = 1;
                    self.snd.nxt = self.snd.nxt.max(1);
                    self.rcv.ack_now = true;
                    return self.become_established(now);
                }
                return Events::empty();
            }
            // Our SYN-ACK was lost: send it again without touching the timer's count.
            self.snd.nxt = self.snd.una;
            return Events::TRANSMIT;
        }
        self.owe_challenge_ack(now)
    }

    /// An ACK that tells a confused or hostile peer where we stand, at a limited rate (RFC 5961 §7).
    pub(crate) fn owe_challenge_ack(&mut self, now: Instant) -> Events {
        if now.since(self.rcv.challenge_since) >= CHALLENGE_INTERVAL {
            self.rcv.challenge_since = now;
            self.rcv.challenge_acks = 0;
        }
        if self.rcv.challenge_acks >= CHALLENGE_ACKS {
            return Events::empty();
        }
        self.rcv.challenge_acks += 1;
        self.rcv.ack_now = true;
        Events::TRANSMIT
    }
}
