//! TCP_INFO as the bytes of Linux's `struct tcp_info` (linux/tcp.h), filled with the engine's figures.
//!
//! The structure has grown with every few kernels: how long this kernel's own is, the caller asks through
//! the backing socket. What the engine does not know is zero, as Linux has it.

use hostif::Figures;

/// Longer than the structure of any kernel yet.
pub const LEN_MAX: usize = 512;

/// Offsets in the structure.
mod at {
    pub const STATE: usize = 0;
    pub const CA_STATE: usize = 1;
    pub const RETRANSMITS: usize = 2;
    pub const PROBES: usize = 3;
    pub const BACKOFF: usize = 4;
    pub const OPTIONS: usize = 5;
    pub const WINDOW_SCALES: usize = 6;
    /// The first of the 32-bit numbers, `tcpi_rto`; they follow each other up to `tcpi_total_retrans`.
    pub const WORDS: usize = 8;
    pub const PACING_RATE: usize = 104;
    pub const SEGS_OUT: usize = 136;
    pub const DELIVERY_RATE: usize = 160;
    pub const DELIVERED: usize = 192;
    pub const BYTES_SENT: usize = 200;
    pub const DSACK_DUPS: usize = 216;
    /// `tcpi_rcv_wnd`, behind what the C library's headers know.
    pub const RCV_WND: usize = 232;
    /// `tcpi_total_rto` and `tcpi_total_rto_recoveries`, of two bytes each, and `tcpi_total_rto_time`.
    pub const TOTAL_RTO: usize = 240;
}

/// The first `len` bytes of the structure for one connection.
#[must_use]
pub fn emit(figures: &Figures, len: usize) -> Vec<u8> {
    let mut bytes = [0; LEN_MAX];
    fill(&mut bytes, figures);
    bytes[..len.min(LEN_MAX)].to_vec()
}

fn fill(bytes: &mut [u8; LEN_MAX], figures: &Figures) {
    let byte = |value: u64| u8::try_from(value).unwrap_or(u8::MAX);
    bytes[at::STATE] = byte(figures.state);
    bytes[at::CA_STATE] = byte(figures.recovery);
    bytes[at::RETRANSMITS] = byte(figures.retransmits);
    bytes[at::PROBES] = byte(figures.probes);
    bytes[at::BACKOFF] = byte(figures.backoff);
    bytes[at::OPTIONS] = byte(figures.options);
    // Two bit fields of four bits: the first one is the low one on little-endian machines.
    bytes[at::WINDOW_SCALES] = byte(figures.snd_wscale & 15) | byte(figures.rcv_wscale & 15) << 4;
    // `tcpi_delivery_rate_app_limited`, one bit.
    bytes[at::WINDOW_SCALES + 1] = byte(figures.app_limited);
    let words = [
        figures.rto_us,
        figures.ato_us,
        figures.snd_mss,
        figures.rcv_mss,
        figures.unacked,
        figures.sacked,
        figures.lost,
        figures.retrans,
        0,
        figures.last_data_sent_ms,
        0,
        figures.last_data_recv_ms,
        figures.last_ack_recv_ms,
        figures.pmtu,
        figures.rcv_ssthresh,
        figures.rtt_us,
        figures.rttvar_us,
        figures.snd_ssthresh,
        figures.snd_cwnd,
        figures.advmss,
        figures.reordering,
        figures.rcv_rtt_us,
        figures.rcv_space,
        figures.total_retrans,
    ];
    put_words(bytes, at::WORDS, &words);
    fill_rest(bytes, figures);
}

/// What kernels have added.
fn fill_rest(bytes: &mut [u8; LEN_MAX], figures: &Figures) {
    let rates = [
        figures.pacing_rate,
        figures.max_pacing_rate,
        figures.bytes_acked,
        figures.bytes_received,
    ];
    put_longs(bytes, at::PACING_RATE, &rates);
    let segments = [
        figures.segs_out,
        figures.segs_in,
        figures.notsent_bytes,
        figures.min_rtt_us,
        figures.data_segs_in,
        figures.data_segs_out,
    ];
    put_words(bytes, at::SEGS_OUT, &segments);
    let rates = [
        figures.delivery_rate,
        figures.busy_time_us,
        figures.rwnd_limited_us,
    ];
    put_longs(bytes, at::DELIVERY_RATE, &rates);
    put_words(
        bytes,
        at::DELIVERED,
        &[figures.delivered, figures.delivered_ce],
    );
    put_longs(
        bytes,
        at::BYTES_SENT,
        &[figures.bytes_sent, figures.bytes_retrans],
    );
    let last = [
        figures.dsack_dups,
        figures.reord_seen,
        figures.rcv_ooopack,
        figures.snd_wnd,
    ];
    put_words(bytes, at::DSACK_DUPS, &last);
    put_words(bytes, at::RCV_WND, &[figures.rcv_wnd]);
    let half = |value: u64| value.min(u64::from(u16::MAX));
    let timeouts = half(figures.total_rto) | half(figures.total_rto_recoveries) << 16;
    put_words(bytes, at::TOTAL_RTO, &[timeouts, figures.total_rto_time_ms]);
}

fn put_words(bytes: &mut [u8; LEN_MAX], at: usize, values: &[u64]) {
    for (place, value) in bytes[at..].chunks_exact_mut(4).zip(values) {
        let value = u32::try_from(*value).unwrap_or(u32::MAX);
        place.copy_from_slice(&value.to_ne_bytes());
    }
}

fn put_longs(bytes: &mut [u8; LEN_MAX], at: usize, values: &[u64]) {
    for (place, value) in bytes[at..].chunks_exact_mut(8).zip(values) {
        place.copy_from_slice(&value.to_ne_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    #[test]
    fn offsets_are_those_of_the_c_structure() {
        assert_eq!(at::WORDS, offset_of!(libc::tcp_info, tcpi_rto));
        assert_eq!(
            at::WORDS + 4 * 23,
            offset_of!(libc::tcp_info, tcpi_total_retrans)
        );
        assert_eq!(
            at::PACING_RATE,
            offset_of!(libc::tcp_info, tcpi_pacing_rate)
        );
        assert_eq!(at::SEGS_OUT, offset_of!(libc::tcp_info, tcpi_segs_out));
        assert_eq!(
            at::DELIVERY_RATE,
            offset_of!(libc::tcp_info, tcpi_delivery_rate)
        );
        assert_eq!(at::DELIVERED, offset_of!(libc::tcp_info, tcpi_delivered));
        assert_eq!(at::BYTES_SENT, offset_of!(libc::tcp_info, tcpi_bytes_sent));
        assert_eq!(at::DSACK_DUPS, offset_of!(libc::tcp_info, tcpi_dsack_dups));
    }

    #[test]
    fn numbers_too_large_for_their_place_become_the_largest_that_fits() {
        let figures = Figures {
            state: 1,
            snd_wscale: 7,
            rcv_wscale: 9,
            rtt_us: u64::MAX,
            snd_cwnd: 10,
            bytes_acked: 77,
            snd_wnd: 5,
            ..Figures::default()
        };
        let mut bytes = [0; LEN_MAX];
        fill(&mut bytes, &figures);
        let word = |at: usize| u32::from_ne_bytes(*bytes[at..].first_chunk().unwrap());
        assert_eq!((bytes[0], bytes[6]), (1, 0x97));
        assert_eq!(word(offset_of!(libc::tcp_info, tcpi_rtt)), u32::MAX);
        assert_eq!(word(offset_of!(libc::tcp_info, tcpi_snd_cwnd)), 10);
        assert_eq!(word(offset_of!(libc::tcp_info, tcpi_bytes_acked)), 77);
        assert_eq!(word(at::DSACK_DUPS + 12), 5);
    }
}
