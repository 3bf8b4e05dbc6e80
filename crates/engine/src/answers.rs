//! Answers to what programs ask about their sockets: longer than a completion, so they lie in the
//! program's region, where the program reads them after the completion.

use crate::core::EngineCore;
use crate::rows::Kind;
use hostif::{Figures, Query};
use rustix::io::Errno;
use tcp::{Info, Instant, Repair, State};

/// `tcpi_options` (linux/tcp.h).
const OPTION_TIMESTAMPS: u64 = 1;
const OPTION_SACK: u64 = 2;
const OPTION_WINDOW_SCALE: u64 = 4;
const OPTION_SYN_DATA: u64 = 32;
/// TCP_LISTEN (net/tcp_states.h).
const LISTEN: u64 = 10;

impl EngineCore {
    /// Places the answer in the session's region; returns its length in bytes.
    pub(crate) fn answer_query(
        &mut self,
        now: Instant,
        slot: usize,
        row: u32,
        what: Query,
    ) -> Result<u64, Errno> {
        match what {
            Query::Figures => {
                let figures = self.figures(now, row)?;
                self.place(slot, &figures.to_words())
            }
            Query::SavedSyn => {
                let Some(saved) = &self.sockets.companion(row).saved_syn else {
                    return Ok(0);
                };
                let words: Vec<u64> = saved.chunks(8).map(word).collect();
                let len = saved.len() as u64;
                self.place(slot, &words)?;
                Ok(len)
            }
        }
    }

    fn place(&mut self, slot: usize, words: &[u64]) -> Result<u64, Errno> {
        let number = self.rings_of(slot).ok_or(Errno::BADF)?.region;
        let region = self.sockets.regions.find(number).ok_or(Errno::BADF)?;
        region.engine_set_answer(words);
        Ok(words.len() as u64 * 8)
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
                    unacked: u64::from(waiting.unwrap_or(0)),
                    sacked: u64::from(backlog.unwrap_or(0)),
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
                let [sent, received] = self.lane_bytes(row);
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
    if matches!(
        info.state,
        State::Closed | State::SynSent | State::SynReceived
    ) {
        return 0;
    }
    let first_time = u64::from(info.tally.data_segments_out).saturating_sub(info.retransmissions);
    1 + first_time.saturating_sub(in_flight)
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
        retransmits: u64::from(info.backoff),
        probes: u64::from(info.probes),
        backoff: u64::from(info.backoff),
        options: flag(info.timestamps, OPTION_TIMESTAMPS)
            | flag(info.sack, OPTION_SACK)
            | flag(snd_wscale | rcv_wscale != 0, OPTION_WINDOW_SCALE)
            | flag(info.syn_data, OPTION_SYN_DATA),
        snd_wscale: u64::from(snd_wscale),
        rcv_wscale: u64::from(rcv_wscale),
        rto_us: info.rto_us,
        ato_us: 40_000,
        snd_mss: u64::from(info.snd_mss),
        rcv_mss: u64::from(info.rcv_mss),
        advmss: u64::from(info.advertised_mss),
        unacked: segments(info.flight),
        sacked: segments(info.sacked),
        lost: segments(info.lost),
        last_data_sent_ms: ago_ms(info.last_sent),
        last_data_recv_ms: ago_ms(info.last_received),
        last_ack_recv_ms: ago_ms(info.last_received),
        rtt_us: info.srtt_us,
        rttvar_us: info.rttvar_us,
        // As Linux before the first sample.
        min_rtt_us: info.min_rtt_us.unwrap_or(u64::from(u32::MAX)),
        delivery_rate: info.delivery_rate,
        delivered: delivered(info, segments(info.flight)),
        dsack_dups: u64::from(info.tally.duplicates_reported),
        snd_cwnd: u64::from(info.cwnd).div_ceil(mss),
        snd_ssthresh: if info.ssthresh == u32::MAX {
            0x7fff_ffff
        } else {
            u64::from(info.ssthresh).div_ceil(mss)
        },
        rcv_ssthresh: info.rcv_wnd,
        rcv_space: info.receive_space,
        reordering: 3,
        reord_seen: u64::from(info.reordering_seen),
        total_retrans: info.retransmissions,
        pacing_rate: info.pacing_rate.unwrap_or(u64::MAX),
        bytes_acked: info.bytes_acked,
        bytes_received: info.bytes_received,
        segs_out: u64::from(info.tally.segments_out),
        segs_in: u64::from(info.tally.segments_in),
        data_segs_out: u64::from(info.tally.data_segments_out),
        data_segs_in: u64::from(info.tally.data_segments_in),
        notsent_bytes: info.unsent,
        bytes_sent: info.tally.bytes_out,
        bytes_retrans: info.tally.bytes_out.saturating_sub(info.bytes_sent_once),
        rcv_ooopack: u64::from(info.tally.out_of_order_in),
        snd_wnd: info.snd_wnd,
        ..Figures::default()
    }
}
