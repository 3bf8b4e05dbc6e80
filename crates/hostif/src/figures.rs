//! A connection's figures as an answer to a query: what `TCP_INFO` is made of (tcp(7), linux/tcp.h).
//!
//! Plain numbers in RFC units; the layout of the C structure is `client/src/tcp_info.rs`.

pub mod congestion;

/// Declares the figures with their places.
macro_rules! figures {
    ($($(#[doc = $doc:literal])* $name:ident,)*) => {
        /// Figures of one connection.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct Figures {
            $($(#[doc = $doc])* pub $name: u64,)*
        }

        impl Figures {
            /// Words that they take.
            pub const WORDS: usize = [$(stringify!($name)),*].len();

            /// As words of an answer.
            #[must_use]
            pub fn to_words(&self) -> [u64; Self::WORDS] {
                [$(self.$name),*]
            }

            /// Reads them back; what an older engine did not answer is 0.
            #[must_use]
            pub fn from_words(words: &[u64]) -> Figures {
                let mut words = words.iter().copied();
                Figures {
                    $($name: words.next().unwrap_or(0),)*
                }
            }
        }
    };
}

figures! {
    /// State, with the numbers of Linux (`net/tcp_states.h`).
    state,
    /// Congestion state: 0 open, 1 disorder, 2 CWR, 3 recovery, 4 loss.
    recovery,
    /// Retransmission timeouts in a row.
    retransmits,
    /// Probes in a row without an answer.
    probes,
    /// Exponent of the back-off.
    backoff,
    /// Bits of `tcpi_options`.
    options,
    /// Shift of the peer's windows.
    snd_wscale,
    /// Shift of ours.
    rcv_wscale,
    /// Retransmission timeout, microseconds.
    rto_us,
    /// Delayed-ACK timeout, microseconds.
    ato_us,
    /// Payload of a full segment that we send, bytes.
    snd_mss,
    /// Payload of a full segment that we receive, bytes.
    rcv_mss,
    /// MSS that we announced, bytes.
    advmss,
    /// Path MTU, bytes.
    pmtu,
    /// Segments sent and not acknowledged.
    unacked,
    /// Of these, selectively acknowledged.
    sacked,
    /// Of these, believed lost.
    lost,
    /// Of these, sent again.
    retrans,
    /// Milliseconds since data was sent last.
    last_data_sent_ms,
    /// Milliseconds since data arrived last.
    last_data_recv_ms,
    /// Milliseconds since an ACK arrived last.
    last_ack_recv_ms,
    /// Smoothed round-trip time, microseconds.
    rtt_us,
    /// Its variation, microseconds.
    rttvar_us,
    /// Smallest round-trip time seen, microseconds.
    min_rtt_us,
    /// Slow-start threshold, segments.
    snd_ssthresh,
    /// Congestion window, segments.
    snd_cwnd,
    /// Receive window that is announced at most, bytes.
    rcv_ssthresh,
    /// Round-trip time seen by the receiver, microseconds.
    rcv_rtt_us,
    /// What the program copies in one such round trip, bytes.
    rcv_space,
    /// Reordering that is tolerated, segments.
    reordering,
    /// Retransmissions in all, segments.
    total_retrans,
    /// Pacing rate, bytes per second; the largest number: none.
    pacing_rate,
    /// Bytes that the peer has acknowledged.
    bytes_acked,
    /// Bytes received in order.
    bytes_received,
    /// Segments sent.
    segs_out,
    /// Segments received.
    segs_in,
    /// Segments with data sent.
    data_segs_out,
    /// Segments with data received.
    data_segs_in,
    /// Bytes written and not sent yet.
    notsent_bytes,
    /// Delivery rate, bytes per second.
    delivery_rate,
    /// Segments delivered.
    delivered,
    /// Segments delivered with a congestion mark.
    delivered_ce,
    /// Bytes sent, retransmissions included.
    bytes_sent,
    /// Bytes sent again.
    bytes_retrans,
    /// Duplicates that the peer reported.
    dsack_dups,
    /// Times that reordering was seen.
    reord_seen,
    /// Segments received out of order.
    rcv_ooopack,
    /// The peer's window, bytes.
    snd_wnd,
    /// Our window as the peer knows it, bytes.
    rcv_wnd,
    /// The program was the limit of the delivery rate.
    app_limited,
    /// Time with something to send or on its way, microseconds.
    busy_time_us,
    /// Of that, held up by the peer's window.
    rwnd_limited_us,
    /// Limit of the pacing rate, bytes per second; the largest number: none.
    max_pacing_rate,
    /// Retransmission timeouts.
    total_rto,
    /// Rows of such timeouts.
    total_rto_recoveries,
    /// How long these rows have lasted, milliseconds.
    total_rto_time_ms,
    /// Bytes written and not acknowledged, our FIN with them.
    unacknowledged,
}

const _: () = assert!(Figures::WORDS <= crate::layout::ANSWER_WORDS);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_come_back_from_their_words() {
        let mut words = [0; Figures::WORDS];
        for (at, word) in words.iter_mut().enumerate() {
            *word = at as u64 + 1;
        }
        assert_eq!(Figures::from_words(&words).to_words(), words);
        assert_eq!(Figures::from_words(&words[..3]).snd_wnd, 0);
    }
}
