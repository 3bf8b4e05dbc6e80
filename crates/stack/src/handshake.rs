//! A SYN for a listener, and the ACK that answers a SYN cookie (RFC 9293 §3.10.7.2, RFC 4987), with the
//! limits of Linux's `tcp_conn_request`.
//!
//! A SYN is dropped while the accept queue is full. While the queue of handshakes is full it is answered
//! with a cookie, which costs no memory: the connection is made when the cookie comes back.

use crate::config::SynCookies;
use crate::containers::demux::FourTuple;
use crate::containers::intrusive::at;
use crate::egress::{Egress, Payload};
use crate::fast_open::Verdict;
use crate::host::Host;
use crate::ip::arrival::Arrival;
use crate::link::interface::InterfaceId;
use crate::link::output::ip_header_len;
use crate::listener::{ends, halves};
use crate::stack::Stack;
use crate::tables::{ConnectionRecord, Flags, ListenerId};
use core::net::IpAddr;
use tcp::cookies::{self, COOKIE_LIFETIME, CookieTuple};
use tcp::{Events, Instant, SeqNumber};
use wire::ecn::Ecn;
use wire::tcp::Header;

/// A SYN and where it came from.
pub(crate) struct Syn<'a> {
    pub(crate) tuple: FourTuple,
    pub(crate) header: &'a Header,
    /// Set when it reopens a connection in TIME-WAIT.
    pub(crate) iss_at_least: Option<SeqNumber>,
    pub(crate) payload: &'a [u8],
}

impl Stack<'_> {
    /// A SYN for the listener in row `listener` (RFC 9293 §3.10.7.2).
    pub(crate) fn handle_syn(
        &mut self,
        now: Instant,
        listener: u32,
        arrival: &Arrival<'_>,
        syn: &Syn<'_>,
        host: &mut dyn Host,
        egress: &mut dyn Egress,
    ) {
        if self.is_accept_queue_full(self.listener_id(listener)) {
            self.ip.link.counters.listen_overflows += 1;
            self.ip.link.counters.listen_drops += 1;
            return;
        }
        match self.ip.link.config.syn_cookies {
            SynCookies::Always => return self.send_cookie(now, listener, arrival, syn, egress),
            _ if !self.is_half_open_full(listener) => {}
            SynCookies::WhenFull => {
                return self.send_cookie(now, listener, arrival, syn, egress);
            }
            SynCookies::Never => {
                self.ip.link.counters.listen_drops += 1;
                return;
            }
        }
        let verdict = self.judge_fast_open(now, listener, syn);
        let iss = self.initial_sequence_after(syn.iss_at_least, &syn.tuple, now);
        let opened = self.open_passive(now, listener, &syn.tuple, iss, host, |config| {
            let mut connection = tcp::Connection::accept(config, iss, now, syn.header);
            connection.note_handshake_mark(Ecn::from_tos(arrival.dscp_ecn));
            if matches!(verdict, Verdict::Grant | Verdict::Renew) {
                let asked = syn.header.options.fast_open;
                connection.tell_cookie(asked.is_some_and(|asked| asked.is_experimental()));
            }
            connection
        });
        let Some(index) = opened else { return };
        host.on_syn(self.record(index).owner, headers_of(arrival));
        let before = self.record(index).tcp.state();
        let events = match verdict {
            Verdict::Plain | Verdict::Grant => Events::TRANSMIT,
            Verdict::Serve | Verdict::Renew => self.serve_at_once(listener, index, syn, host),
        };
        self.apply(now, index, before, events, host);
    }

    /// RFC 7413 §4.2.2: the program gets the connection with the data of its SYN.
    fn serve_at_once(
        &mut self,
        listener: u32,
        index: u32,
        syn: &Syn<'_>,
        host: &mut dyn Host,
    ) -> Events {
        self.ip.link.counters.fast_open_passive += 1;
        self.listener_queues[at(listener)].fast_open.add();
        self.receive(index, host, |record, window| {
            record.set(Flags::FAST_OPEN, true);
            record.tcp.open_fast(syn.payload, window)
        })
    }

    /// Answers a SYN and remembers nothing of it (RFC 4987 §3.6).
    fn send_cookie(
        &mut self,
        now: Instant,
        listener: u32,
        arrival: &Arrival<'_>,
        syn: &Syn<'_>,
        egress: &mut dyn Egress,
    ) {
        let tuple = cookie_tuple(&syn.tuple);
        let iss = cookies::cookie(&self.ip.link.config.secret, &tuple, syn.header, now);
        let reply = cookies::cookie_syn_ack(
            iss,
            syn.header,
            self.receive_mss(syn.tuple.remote(), syn.tuple.zone()),
            self.ip.link.config.receive_buffer_max,
            self.timestamp_offset(&syn.tuple),
            false,
            now,
        );
        let row = &self.tables.listeners[at(listener)];
        self.listening.expect_cookies(row, now + COOKIE_LIFETIME);
        self.ip.link.counters.syn_queue_overflows += 1;
        // A busy interface loses it as a cable would.
        if self
            .ip
            .link
            .send_tcp(&arrival.reply(), &reply, Payload::None, 0, None, egress)
            .is_ok()
        {
            self.ip.link.counters.syn_cookies_sent += 1;
        }
    }

    /// Whether an ACK of no connection may answer a cookie (Linux `tcp_synq_no_recent_overflow`).
    pub(crate) fn expects_cookies(&self, now: Instant, listener: u32) -> bool {
        self.listening
            .expects_cookies(&self.tables.listeners[at(listener)], now)
    }

    /// An ACK that may answer a cookie makes the connection. `Err`: it does not, and is nobody's.
    pub(crate) fn handle_cookie(
        &mut self,
        now: Instant,
        listener: u32,
        tuple: FourTuple,
        ack: &Header,
        host: &mut dyn Host,
    ) -> Result<Option<u32>, NoCookie> {
        let offset = self.timestamp_offset(&tuple);
        let redeemed = cookies::redeem(
            &self.ip.link.config.secret,
            &cookie_tuple(&tuple),
            ack,
            offset,
            now,
        );
        let Some(syn) = redeemed else {
            self.ip.link.counters.syn_cookies_failed += 1;
            return Err(NoCookie);
        };
        self.ip.link.counters.syn_cookies_received += 1;
        if self.is_accept_queue_full(self.listener_id(listener)) {
            // The peer believes that it is connected; what it sends next brings the cookie again.
            self.ip.link.counters.listen_overflows += 1;
            self.ip.link.counters.listen_drops += 1;
            return Ok(None);
        }
        let iss = SeqNumber(ack.ack.wrapping_sub(1));
        Ok(
            self.open_passive(now, listener, &tuple, iss, host, |config| {
                tcp::Connection::accept_cookie(config, iss, now, &syn)
            }),
        )
    }

    /// Makes a half-open connection of the listener; `None`: there is no room, and it is counted.
    fn open_passive(
        &mut self,
        now: Instant,
        listener: u32,
        tuple: &FourTuple,
        iss: SeqNumber,
        host: &mut dyn Host,
        make: impl FnOnce(&tcp::Config) -> tcp::Connection,
    ) -> Option<u32> {
        let id = self.listener_id(listener);
        let listener_owner = self.tables.listeners[at(listener)].owner;
        let peer = self.remote_end(tuple);
        let incoming = if self.connections_left() == 0 {
            None
        } else {
            host.on_incoming(id, listener_owner, peer)
        };
        let Some(incoming) = incoming else {
            self.ip.link.counters.listen_drops += 1;
            return None;
        };
        let config = tcp::Config {
            receive_capacity: incoming.receive_capacity,
            send_capacity: incoming.send_capacity,
            options: incoming.options,
            ..self.connection_config(tuple)
        };
        let fill = |record: &mut ConnectionRecord| {
            record.owner = incoming.owner;
            record.queued_at = now;
            (record.listener_index, record.listener_generation) = (id.index, id.generation);
            [record.identification, _] = halves(iss.0);
            record.set_ip(incoming.ip);
            record.set(Flags::HALF_OPEN, true);
            record.tcp = make(&config);
        };
        let index = self
            .insert(*tuple, fill)
            .expect("invariant: a row was left");
        self.ip.link.counters.tcp_passive_opens += 1;
        let queues = &mut self.listener_queues[at(listener)];
        self.listener_links.push_back(&mut queues.half_open, index);
        Some(index)
    }

    /// What every connection between the ends of `tuple` begins with.
    pub(crate) fn connection_config(&self, tuple: &FourTuple) -> tcp::Config {
        let config = &self.ip.link.config;
        tcp::Config {
            mss: self.receive_mss(tuple.remote(), tuple.zone()),
            default_mss: default_mss(tuple.remote()),
            receive_offer: config.receive_offer.min(self.window_ceiling),
            receive_buffer_max: config.receive_buffer_max,
            timestamp_offset: self.timestamp_offset(tuple),
            ..tcp::Config::default()
        }
    }

    /// Largest payload that a packet of the interface towards `remote` carries.
    pub(crate) fn receive_mss(&self, remote: IpAddr, zone: Option<InterfaceId>) -> u16 {
        let interface = self
            .ip
            .hop_to(remote, zone)
            .map_or(InterfaceId(0), |hop| hop.interface);
        let headers = ip_header_len(remote) + 20;
        self.ip
            .link
            .interfaces
            .find(interface)
            .map_or(536, |interface| {
                interface.mtu_for(remote.is_ipv6()) - headers
            })
    }

    /// RFC 6528.
    pub(crate) fn initial_sequence(&self, tuple: &FourTuple, now: Instant) -> SeqNumber {
        let (local, remote) = ends(tuple);
        tcp::initial_sequence(&self.ip.link.config.secret, local, remote, now)
    }

    /// The same, and beyond what a connection of before has sent.
    pub(crate) fn initial_sequence_after(
        &self,
        iss_at_least: Option<SeqNumber>,
        tuple: &FourTuple,
        now: Instant,
    ) -> SeqNumber {
        let iss = self.initial_sequence(tuple, now);
        match iss_at_least {
            Some(least) if least.is_after(iss) => least,
            _ => iss,
        }
    }

    fn timestamp_offset(&self, tuple: &FourTuple) -> u32 {
        let (local, remote) = ends(tuple);
        tcp::isn::timestamp_offset(&self.ip.link.config.secret, local, remote)
    }

    /// Rows that a new connection could take.
    pub(crate) fn connections_left(&self) -> usize {
        self.tables.connections.len() - at(self.tables.header.connections_used)
            + self.free_connections.len()
    }

    fn listener_id(&self, listener: u32) -> ListenerId {
        ListenerId {
            index: listener,
            generation: self.tables.listeners[at(listener)].generation,
        }
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
    let (local, remote) = ends(tuple);
    CookieTuple { local, remote }
}

/// What a peer that names no MSS takes: the payload of the packets that every host of the family must
/// (RFC 9293 §3.7.1).
const fn default_mss(peer: IpAddr) -> u16 {
    match peer {
        IpAddr::V4(_) => 536,
        IpAddr::V6(_) => 1_220,
    }
}
