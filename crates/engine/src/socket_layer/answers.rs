//! Answers to what programs ask about their sockets: longer than a completion, so they lie in the
//! program's region, where the program reads them after the completion.

use super::SocketLayer;
use crate::sockets::rows::{Kind, Marks};
use hostif::{CongestionFigures, Figures, Query};
use rustix::io::Errno;
use tcp::{CongestionInfo, Info, Instant, Repair, State};

/// `tcpi_options` (linux/tcp.h).
const OPTION_TIMESTAMPS: u64 = 1;
const OPTION_SACK: u64 = 2;
const OPTION_WINDOW_SCALE: u64 = 4;
const OPTION_SYN_DATA: u64 = 32;
const OPTION_ECN: u64 = 8;
const OPTION_ECN_SEEN: u64 = 16;
const OPTION_TFO_CHILD: u64 = 128;
/// What timestamps take of each segment.
const TIMESTAMPS_LEN: u64 = 12;
/// Segments that a connection begins with (RFC 6928), and of reordering that it tolerates.
const FIRST_WINDOW: u64 = 10;
const REORDERING: u64 = 3;
/// Of reordering that is ever tolerated (Linux `tcp_max_reordering`).
const MAX_REORDERING: u64 = 300;
/// TCP_LISTEN (net/tcp_states.h).
const LISTEN: u64 = 10;

impl SocketLayer {
    /// Places the answer in the region of the program that asks; returns its length in bytes.
    pub(crate) fn answer_query(
        &mut self,
        now: Instant,
        region: u32,
        row: u32,
        what: Query,
    ) -> Result<u64, Errno> {
        match what {
            Query::Figures => {
                let figures = self.figures(now, row)?;
                self.place(region, &figures.to_words())
            }
            Query::Congestion => {
                let figures = self.congestion_figures(row)?;
                self.place(region, &figures.to_words())
            }
            Query::Stamp => match self.stamps.take(&self.sockets, row) {
                Some(told) => self.place(region, &told.to_words()),
                None => Ok(0),
            },
            Query::Holders => {
                let elsewhere = self.sockets.has(row, Marks::SHARED);
                Ok(self.sockets.holders(row).len() as u64 + u64::from(elsewhere))
            }
            Query::SavedSyn => {
                let Some(saved) = &self.sockets.companion(row).saved_syn else {
                    return Ok(0);
                };
                let words: Vec<u64> = saved.chunks(8).map(word).collect();
                let len = saved.len() as u64;
                self.place(region, &words)?;
                Ok(len)
            }
        }
    }

    fn place(&self, region: u32, words: &[u64]) -> Result<u64, Errno> {
        let region = self.sockets.regions.find(region).ok_or(Errno::BADF)?;
        region.engine_set_answer(words);
        Ok(words.len() as u64 * 8)
    }

    /// What is not connected has an algorithm that has not begun.
    fn congestion_figures(&self, row: u32) -> Result<CongestionFigures, Errno> {
        let record = self.sockets.row(row);
        let Some(connection) = record.connection() else {
            let name = record.options.congestion.name();
            return Ok(CongestionFigures::unstarted(name));
        };
        let info = self.stack.congestion_info(connection);
        Ok(of_congestion(info.map_err(crate::errno::of_stack)?))
    }

    fn figures(&self, now: Instant, row: u32) -> Result<Figures, Errno> {
        let record = self.sockets.row(row);
        match record.kind {
            Kind::Listener => {
                let waiting = record
                    .listener()
                    .and_then(|listener| self.stack.accept_ready(listener).ok());
                let backlog = record
                    .listener()
                    .and_then(|listener| self.stack.backlog(listener).ok());
                // As Linux: the queue and its limit stand where segments are counted otherwise.
                Ok(Figures {
                    state: LISTEN,
                    unacked: waiting.map_or(0, |waiting| waiting.count.into()),
                    sacked: u64::from(backlog.unwrap_or(0)),
                    snd_cwnd: FIRST_WINDOW,
                    reordering: REORDERING,
                    pacing_rate: u64::MAX,
                    max_pacing_rate: u64::MAX,
                    ..Figures::default()
                })
            }
            Kind::Connection => {
                let connection = record.connection().ok_or(Errno::BADF)?;
                let info = self
                    .stack
                    .info(connection)
                    .map_err(crate::errno::of_stack)?;
                let mut figures = of_connection(&info, now);
                let [sent, received] = self.byte_channels.bytes(&self.sockets, row);
                figures.bytes_sent += sent;
                figures.bytes_acked += sent;
                figures.bytes_received += received;
                figures.pmtu = self.stack.path_mtu_of(now, connection).map_or(0, u64::from);
                Ok(figures)
            }
            Kind::Datagram => {
                let socket = record.datagram().ok_or(Errno::BADF)?;
                let mtu = self.stack.udp_mtu(now, socket);
                Ok(Figures {
                    pmtu: mtu.map_or(0, u64::from),
                    ..Figures::default()
                })
            }
            _ => Ok(Figures {
                state: state_number(State::Closed),
                ..Figures::default()
            }),
        }
    }
}

fn of_congestion(info: CongestionInfo) -> CongestionFigures {
    match info {
        CongestionInfo::Nothing => CongestionFigures::Nothing,
        CongestionInfo::Bbr {
            bandwidth,
            min_rtt_us,
            pacing_gain,
            cwnd_gain,
        } => CongestionFigures::Bbr {
            bandwidth,
            // As Linux has what it does not know yet.
            min_rtt_us: min_rtt_us.unwrap_or(u32::MAX).into(),
            pacing_gain: pacing_gain.into(),
            cwnd_gain: cwnd_gain.into(),
        },
        CongestionInfo::Dctcp {
            alpha,
            marked,
            acked,
            is_enabled,
            is_receiving_marks,
        } => CongestionFigures::Dctcp {
            enabled: is_enabled.into(),
            ce_state: is_receiving_marks.into(),
            alpha: alpha.into(),
            marked,
            acked,
        },
    }
}

fn word(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

/// The numbers of net/tcp_states.h. As in Linux a socket hears of CLOSED as soon as the connection needs it no more,
/// in TIME-WAIT.
fn state_number(state: State) -> u64 {
    match state {
        State::Established => 1,
        State::SynSent => 2,
        State::SynReceived => 3,
        State::FinWait1 => 4,
        State::FinWait2 => 5,
        State::CloseWait => 8,
        State::LastAck => 9,
        State::Closing => 11,
        _ => 7,
    }
}

/// Segments that have arrived at the peer: all that were sent for the first time but those on their way, and the SYN.
fn delivered(info: &Info, in_flight: u64) -> u64 {
    let never_stood = info.state == State::Closed && info.srtt_us == 0;
    if never_stood || matches!(info.state, State::SynSent | State::SynReceived) {
        return 0;
    }
    let first_time =
        u64::from(info.counters.data_segments_out).saturating_sub(info.retransmissions);
    1 + first_time.saturating_sub(in_flight)
}

/// The rate that Linux would pace with, paced or not (`tcp_update_pacing_rate`): twice the window in a round trip while it
/// grows fast, and 1.2 of it then.
fn pacing_rate(info: &Info) -> u64 {
    let limit = match info.max_pacing_rate {
        0 => u64::MAX,
        limit => limit,
    };
    let percent = if info.cwnd < info.ssthresh / 2 {
        200
    } else {
        120
    };
    let in_flight = u64::from(info.cwnd).max(info.flight);
    let rate = match info.srtt_us {
        0 => u64::MAX,
        srtt_us => in_flight * percent * 10_000 / srtt_us,
    };
    info.pacing_rate.unwrap_or(rate).min(limit)
}

fn of_connection(info: &Info, now: Instant) -> Figures {
    let mss = u64::from(info.snd_mss.max(1));
    let segments = |bytes: u64| bytes.div_ceil(mss);
    let flag = |on: bool, bit: u64| if on { bit } else { 0 };
    let (snd_wscale, rcv_wscale) = info.window_shifts;
    let ago_ms = |at: Instant| now.since(at).as_us() / 1_000;
    Figures {
        state: state_number(info.state),
        recovery: match info.repair {
            Repair::Open => 0,
            Repair::Disorder => 1,
            Repair::Recovery => 3,
            Repair::Loss => 4,
        },
        retransmits: if info.persisting {
            0
        } else {
            u64::from(info.backoff)
        },
        probes: u64::from(info.probes),
        backoff: u64::from(info.backoff),
        options: flag(info.timestamps, OPTION_TIMESTAMPS)
            | flag(info.sack, OPTION_SACK)
            | flag(snd_wscale | rcv_wscale != 0, OPTION_WINDOW_SCALE)
            | flag(info.ecn.0, OPTION_ECN)
            | flag(info.ecn.1, OPTION_ECN_SEEN)
            | flag(info.syn_data, OPTION_SYN_DATA)
            | flag(info.passive.1, OPTION_TFO_CHILD),
        snd_wscale: u64::from(snd_wscale),
        rcv_wscale: u64::from(rcv_wscale),
        rto_us: info.rto_us,
        ato_us: if info.counters.data_segments_in > 0 {
            40_000
        } else {
            0
        },
        snd_mss: u64::from(info.snd_mss),
        rcv_mss: u64::from(info.rcv_mss),
        advmss: u64::from(info.advertised_mss).saturating_sub(if info.timestamps {
            TIMESTAMPS_LEN
        } else {
            0
        }),
        unacked: segments(info.flight),
        sacked: segments(info.sacked),
        // As Linux: what was sent again is lost until something answers it.
        lost: segments(info.lost + info.resent),
        retrans: segments(info.resent),
        last_data_sent_ms: ago_ms(info.last_sent),
        last_data_recv_ms: match info.counters.last_data_in {
            // As Linux counts then: from the handshake.
            Instant::ZERO => ago_ms(info.last_sent.min(info.last_received)),
            at => ago_ms(at),
        },
        last_ack_recv_ms: ago_ms(info.last_received),
        rtt_us: info.srtt_us,
        rttvar_us: info.rttvar_us,
        // As Linux before the first sample.
        min_rtt_us: info.min_rtt_us.unwrap_or(u64::from(u32::MAX)),
        delivery_rate: info.delivery_rate,
        delivered: delivered(info, segments(info.flight)),
        dsack_dups: u64::from(info.counters.duplicates_reported),
        snd_cwnd: (u64::from(info.cwnd) / mss).max(1),
        snd_ssthresh: if info.ssthresh == u32::MAX {
            0x7fff_ffff
        } else {
            u64::from(info.ssthresh).div_ceil(mss)
        },
        ..counted(info, now)
    }
}

/// What was counted, and the windows.
fn counted(info: &Info, now: Instant) -> Figures {
    Figures {
        rcv_ssthresh: info.rcv_wnd,
        rcv_space: match info.receive_space {
            0 => info
                .rcv_wnd
                .min(FIRST_WINDOW * u64::from(info.advertised_mss)),
            measured => measured,
        },
        reordering: u64::from(info.reordering.1)
            .div_ceil(info.snd_mss.max(1).into())
            .clamp(REORDERING, MAX_REORDERING),
        reord_seen: info.reordering.0.into(),
        total_retrans: info.retransmissions,
        pacing_rate: pacing_rate(info),
        max_pacing_rate: match info.max_pacing_rate {
            0 => u64::MAX,
            limit => limit,
        },
        bytes_acked: info.bytes_acked,
        bytes_received: info.bytes_received,
        // Of a passive open the SYN counts, and the SYN-ACK is the listener's.
        segs_out: u64::from(info.counters.segments_out).saturating_sub(u64::from(info.passive.0)),
        segs_in: u64::from(info.counters.segments_in) + u64::from(info.passive.0),
        data_segs_out: u64::from(info.counters.data_segments_out),
        data_segs_in: u64::from(info.counters.data_segments_in),
        notsent_bytes: info.unsent,
        unacknowledged: info.unacknowledged,
        bytes_sent: info.counters.bytes_out,
        bytes_retrans: info.counters.bytes_out.saturating_sub(info.bytes_sent_once),
        rcv_ooopack: u64::from(info.counters.out_of_order_in),
        snd_wnd: info.snd_wnd,
        rcv_wnd: info.rcv_wnd,
        app_limited: u64::from(info.app_limited),
        busy_time_us: info.chrono.busy(now).as_us(),
        rwnd_limited_us: info.chrono.window_limited(now).as_us(),
        total_rto: u64::from(info.counters.timeouts),
        total_rto_recoveries: u64::from(info.counters.timeout_rows),
        total_rto_time_ms: u64::from(info.counters.timeouts_ms),
        ..Figures::default()
    }
}
