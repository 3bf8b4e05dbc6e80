//! A SYN for a listener, and the ACK that answers a SYN cookie (RFC 9293 §3.10.7.2, RFC 4987), with the
//! limits of Linux's `tcp_conn_request`.
//!
//! A SYN waits (`deferred.rs`) or is dropped while the accept queue is full. While the queue of handshakes is full it is answered
//! with a cookie, which costs no memory: the connection is made when the cookie comes back.

use super::Tcp;
use super::deferred::{Deferred, LastAck, Opening};
use super::fast_open::Verdict;
use super::segment::Segment;
use crate::config::SynCookies;
use crate::containers::demux::FourTuple;
use crate::containers::intrusive::at;
use crate::egress::Egress;
use crate::host::Host;
use crate::ip::Ip;
use crate::ip::arrival::Arrival;
use crate::ip::path::Hop;
use crate::link::interface::InterfaceId;
use crate::link::output::ip_header_len;
use crate::tables::{ConnectionRecord, Flags, Touched};
use core::net::IpAddr;
use tcp::cookies::{self, COOKIE_LIFETIME, CookieTuple};
use tcp::isn::SecretNumbers;
use tcp::{Events, Instant, SeqNumber, SocketOptions};
use wire::ecn::Ecn;
use wire::tcp::{Flags as TcpFlags, Header};

/// A SYN and where it came from.
pub(crate) struct Syn<'a> {
    /// The row of the listener that it is for.
    pub(crate) listener: u32,
    pub(crate) tuple: FourTuple,
    pub(crate) header: &'a Header,
    /// Set when it reopens a connection in TIME-WAIT.
    pub(crate) iss_at_least: Option<SeqNumber>,
    pub(crate) payload: &'a [u8],
}

/// What a connection that a peer opens begins with.
struct Start<'a> {
    /// The row of its listener.
    listener: u32,
    tuple: &'a FourTuple,
    iss: SeqNumber,
    timestamp_offset: u32,
}

impl Tcp<'_> {
    /// A SYN for a listener (RFC 9293 §3.10.7.2).
    pub(crate) fn handle_syn(
        &mut self,
        ip: &mut Ip,
        now: Instant,
        arrival: &Arrival<'_>,
        syn: &Syn<'_>,
        host: &mut dyn Host,
        egress: &mut dyn Egress,
    ) {
        let id = self.listeners.id(syn.listener);
        if self.listeners.is_accept_queue_full(id) {
            ip.link.counters.listen_overflows += 1;
            // What reopens a connection in TIME-WAIT would find it gone.
            let is_deferred = syn.iss_at_least.is_none()
                && self.defer_opening(now, (syn.listener, &syn.tuple), syn.header.seq, arrival);
            ip.link.counters.listen_drops += u64::from(!is_deferred);
            return;
        }
        let is_full = self.listeners.is_half_open_full(syn.listener);
        match ip.link.config.syn_cookies {
            SynCookies::Always => return self.send_cookie(ip, now, arrival, syn, egress),
            _ if !is_full => {}
            SynCookies::WhenFull => return self.send_cookie(ip, now, arrival, syn, egress),
            SynCookies::Never => {
                ip.link.counters.listen_drops += 1;
                return;
            }
        }
        let verdict = self.judge_fast_open(ip, now, syn);
        let secrets = secret_numbers(ip, &syn.tuple);
        let iss = initial_sequence_after(&secrets, syn.iss_at_least, now);
        let start = Start {
            listener: syn.listener,
            tuple: &syn.tuple,
            iss,
            timestamp_offset: secrets.timestamp_offset,
        };
        let opened = self.open_passive(ip, now, &start, host, |config, connection| {
            connection.accept_in_place(config, iss, now, syn.header);
            connection.note_handshake_mark(Ecn::from_tos(arrival.dscp_ecn));
            if matches!(verdict, Verdict::Grant | Verdict::Renew) {
                let asked = syn.header.options.fast_open;
                connection.tell_cookie(asked.is_some_and(|asked| asked.is_experimental()));
            }
        });
        let Some(index) = opened else { return };
        host.on_syn(self.record(index).owner, headers_of(arrival));
        match verdict {
            // No timer runs yet, and nobody has to be told.
            Verdict::Plain | Verdict::Grant => ip.flows.queue(index),
            Verdict::Serve | Verdict::Renew => {
                let before = self.record(index).tcp.state();
                let events = self.serve_at_once(ip, index, syn, host);
                self.apply(ip, now, index, before, events, host);
            }
        }
        // The end of the handshake looks as its beginning did.
        self.expect_more(ip, arrival, index);
    }

    /// RFC 7413 §4.2.2: the program gets the connection with the data of its SYN.
    fn serve_at_once(
        &mut self,
        ip: &mut Ip,
        index: u32,
        syn: &Syn<'_>,
        host: &mut dyn Host,
    ) -> Events {
        ip.link.counters.fast_open_passive += 1;
        self.listeners.fast_open(syn.listener).add();
        self.at_work(index)
            .receive(Touched::Row, host, |record, window| {
                record.set(Flags::FAST_OPEN, true);
                record.tcp.open_fast(syn.payload, window)
            })
    }

    /// Answers a SYN and remembers nothing of it (RFC 4987 §3.6).
    fn send_cookie(
        &mut self,
        ip: &mut Ip,
        now: Instant,
        arrival: &Arrival<'_>,
        syn: &Syn<'_>,
        egress: &mut dyn Egress,
    ) {
        let tuple = cookie_tuple(&syn.tuple);
        let iss = cookies::cookie(&ip.link.config.secret, &tuple, syn.header, now);
        let reply = cookies::cookie_syn_ack(
            iss,
            syn.header,
            receive_mss(ip, syn.tuple.remote(), syn.tuple.zone()),
            ip.link.config.receive_buffer_max,
            secret_numbers(ip, &syn.tuple).timestamp_offset,
            false,
            now,
        );
        let row = &self.listeners.rows[at(syn.listener)];
        self.listeners
            .listening
            .expect_cookies(row, now + COOKIE_LIFETIME);
        ip.link.counters.syn_queue_overflows += 1;
        if ip.link.send_control(&arrival.reply(), &reply, egress) {
            ip.link.counters.syn_cookies_sent += 1;
        }
    }

    /// Whether an ACK of no connection may answer a cookie (Linux `tcp_synq_no_recent_overflow`).
    pub(crate) fn expects_cookies(&self, now: Instant, listener: u32) -> bool {
        self.listeners
            .listening
            .expects_cookies(&self.listeners.rows[at(listener)], now)
    }

    /// An ACK that may answer a cookie makes the connection. `Err`: it does not, and is nobody's.
    pub(crate) fn handle_cookie(
        &mut self,
        ip: &mut Ip,
        now: Instant,
        arrival: &Arrival<'_>,
        (listener, tuple): (u32, FourTuple),
        ack: &Header,
        host: &mut dyn Host,
    ) -> Result<Option<u32>, NoCookie> {
        let offset = secret_numbers(ip, &tuple).timestamp_offset;
        let redeemed = cookies::redeem(
            &ip.link.config.secret,
            &cookie_tuple(&tuple),
            ack,
            offset,
            now,
        );
        let Some(syn) = redeemed else {
            ip.link.counters.syn_cookies_failed += 1;
            return Err(NoCookie);
        };
        ip.link.counters.syn_cookies_received += 1;
        let id = self.listeners.id(listener);
        if self.listeners.is_accept_queue_full(id) {
            // The peer believes that it is connected; what it sends next brings the cookie again.
            ip.link.counters.listen_overflows += 1;
            let is_deferred = self.defer_opening(now, (listener, &tuple), ack.seq, arrival);
            ip.link.counters.listen_drops += u64::from(!is_deferred);
            return Ok(None);
        }
        let iss = SeqNumber(ack.ack.wrapping_sub(1));
        let start = Start {
            listener,
            tuple: &tuple,
            iss,
            timestamp_offset: offset,
        };
        Ok(
            self.open_passive(ip, now, &start, host, |config, connection| {
                connection.accept_cookie(config, iss, now, &syn)
            }),
        )
    }

    /// A segment that would open a connection waits until there is space for it; false: it is dropped.
    #[cold]
    #[inline(never)]
    fn defer_opening(
        &mut self,
        now: Instant,
        (listener, tuple): (u32, &FourTuple),
        seq: u32,
        arrival: &Arrival<'_>,
    ) -> bool {
        let deferred = &mut self.listeners.deferred;
        Opening::new(tuple, seq, arrival)
            .is_some_and(|opening| deferred.push(now, listener, Deferred::Opening(opening)))
    }

    /// The last ACK of half-open connection `index` waits until its connection may enter the accept queue; false: it is dropped.
    #[cold]
    #[inline(never)]
    pub(super) fn defer_last_ack(
        &mut self,
        now: Instant,
        index: u32,
        segment: &Segment<'_>,
    ) -> bool {
        let record = self.record(index);
        let (connection, listener) = (record.id(index), record.listener_index);
        let ack = LastAck {
            connection,
            header: Header {
                flags: TcpFlags::ACK,
                ..*segment.header
            },
            mark: segment.mark,
        };
        let deferred = &mut self.listeners.deferred;
        deferred.push(now, listener, Deferred::LastAck(ack))
    }

    /// Makes a half-open connection of the listener; `None`: there is no room, and it is counted.
    fn open_passive(
        &mut self,
        ip: &mut Ip,
        now: Instant,
        start: &Start<'_>,
        host: &mut dyn Host,
        make: impl FnOnce(&tcp::Config, &mut tcp::Connection),
    ) -> Option<u32> {
        let &Start {
            listener,
            tuple,
            iss,
            timestamp_offset,
        } = start;
        let id = self.listeners.id(listener);
        let listener_owner = self.listeners.rows[at(listener)].owner;
        let peer = ip.remote_end(tuple);
        let incoming = if self.connections_left() == 0 {
            None
        } else {
            host.on_incoming(id, listener_owner, peer)
        };
        let Some(incoming) = incoming else {
            ip.link.counters.listen_drops += 1;
            return None;
        };
        let remote = tuple.remote();
        let hop = ip.hop_to(remote, tuple.zone());
        let mss = mss_by(ip, hop.as_ref(), remote);
        let mut config = self.connection_config(ip, mss, timestamp_offset, &incoming.options);
        config.default_mss = default_mss(remote);
        config.receive_capacity = incoming.receive_capacity;
        config.send_capacity = incoming.send_capacity;
        let fill = |record: &mut ConnectionRecord| {
            record.owner = incoming.owner;
            record.queued_at = now;
            (record.listener_index, record.listener_generation) = (id.index, id.generation);
            [record.identification, _] = halves(iss.0);
            record.set_ip(incoming.ip);
            record.set(Flags::HALF_OPEN, true);
            make(&config, &mut record.tcp);
        };
        let index = self
            .insert(ip, *tuple, fill)
            .expect("invariant: a row was left");
        if let Some(hop) = hop {
            // The SYN-ACK goes the same way.
            ip.take_path(now, at(index), &hop);
        }
        ip.link.counters.tcp_passive_opens += 1;
        self.listeners.push(listener, Flags::HALF_OPEN, index);
        Some(index)
    }

    /// What every connection begins with.
    pub(crate) fn connection_config(
        &self,
        ip: &Ip,
        mss: u16,
        timestamp_offset: u32,
        options: &SocketOptions,
    ) -> tcp::Config {
        let config = &ip.link.config;
        tcp::Config {
            mss,
            receive_offer: config.receive_offer.min(self.window_ceiling),
            receive_buffer_max: config.receive_buffer_max,
            timestamp_offset,
            options: *options,
            ..tcp::Config::default()
        }
    }

    /// Rows that a new connection could take.
    pub(crate) fn connections_left(&self) -> usize {
        self.connections.len() - at(*self.connections_used) + self.free_connections.len()
    }
}

/// Largest payload that a packet of the interface towards `remote` carries.
pub(crate) fn receive_mss(ip: &Ip, remote: IpAddr, zone: Option<InterfaceId>) -> u16 {
    mss_by(ip, ip.hop_to(remote, zone).as_ref(), remote)
}

/// [`receive_mss`] of who is found by this hop.
fn mss_by(ip: &Ip, hop: Option<&Hop>, remote: IpAddr) -> u16 {
    let interface = hop.map_or(InterfaceId(0), |hop| hop.interface);
    let headers = ip_header_len(remote) + 20;
    ip.link.interfaces.find(interface).map_or(536, |interface| {
        interface.mtu_for(remote.is_ipv6()) - headers
    })
}

/// What nobody can guess of a connection between these ends.
pub(crate) fn secret_numbers(ip: &Ip, tuple: &FourTuple) -> SecretNumbers {
    let local = (tuple.local(), tuple.local_port());
    let remote = (tuple.remote(), tuple.remote_port());
    SecretNumbers::new(&ip.link.config.secret, local, remote)
}

/// The initial sequence number (RFC 6528), beyond what a connection of before has sent.
pub(crate) fn initial_sequence_after(
    secrets: &SecretNumbers,
    iss_at_least: Option<SeqNumber>,
    now: Instant,
) -> SeqNumber {
    let iss = secrets.initial_sequence(now);
    match iss_at_least {
        Some(least) if least.is_after(iss) => least,
        _ => iss,
    }
}

/// IP and TCP headers of a segment; its TCP header has been parsed.
fn headers_of<'a>(arrival: &Arrival<'a>) -> &'a [u8] {
    let ip_len = arrival.packet.len() - arrival.payload.len();
    let tcp_len = arrival
        .payload
        .get(12)
        .map_or(0, |offset| usize::from(offset >> 4) * 4);
    let packet: &'a [u8] = arrival.packet;
    &packet[..(ip_len + tcp_len).min(packet.len())]
}

/// The ACK carries no cookie of ours.
pub(crate) struct NoCookie;

fn cookie_tuple(tuple: &FourTuple) -> CookieTuple {
    let (local, remote) = tuple.ends();
    CookieTuple { local, remote }
}

/// What a peer that names no MSS takes: the payload of the packets that every host of the family must
/// (RFC 9293 §3.7.1).
pub(crate) const fn default_mss(peer: IpAddr) -> u16 {
    match peer {
        IpAddr::V4(_) => 536,
        IpAddr::V6(_) => 1_220,
    }
}

/// The two halves of a 32-bit number, the low one first.
pub(crate) fn halves(number: u32) -> [u16; 2] {
    let [a, b, c, d] = number.to_le_bytes();
    [u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d])]
}
