//! A fragment arrives, or one never does: what its headers must say, the whole packet's way on, and what
//! the sender is told (RFC 791 §3.2, RFC 1122 §3.3.2, RFC 8200 §4.5, RFC 7112 §5).
//!
//! The table is `reassembly.rs`.

use super::Ip;
use super::arrival::Arrival;
use super::reassembly::{Partial, Piece};
use crate::containers::demux::FourTuple;
use crate::containers::timers::Timer;
use crate::egress::{Egress, RxChecksum};
use core::net::IpAddr;
use tcp::Instant;
use wire::checksum::Sum;
use wire::ecn::Ecn;
use wire::icmpv6::{parameter_problem, time_exceeded};
use wire::ipv4::{self, Protocol};
use wire::ipv6::extension::{self, Chain, Fragment, FragmentPart, Problem, Start};
use wire::{icmpv4, icmpv6, ipv6};

/// RFC 792: code of time exceeded, for fragments.
const REASSEMBLY: u8 = 1;
/// As much of a packet as an error quotes (RFC 1812 §4.3.2.3, RFC 4443 §2.4 (c)).
const QUOTE_MAX: usize = 1_280;

impl Ip {
    /// Takes in a fragment of IPv4. Returns the packet when all of it is there, for [`Ip::assemble`].
    pub(crate) fn handle_fragment_v4(
        &mut self,
        now: Instant,
        arrival: &Arrival<'_>,
        ip: &ipv4::Header,
    ) -> Option<Partial> {
        self.link.counters.ip_reasm_reqds += 1;
        // RFC 791 §3.2: all but the last end where another can begin.
        if arrival.payload.is_empty()
            || (ip.more_fragments && !arrival.payload.len().is_multiple_of(8))
        {
            self.link.counters.ip_reasm_fails += 1;
            return None;
        }
        let (local, remote) = (arrival.destination, arrival.source);
        let piece = Piece {
            key: FourTuple::new(local, ip.protocol.0.into(), remote, ip.identification)
                .on_link(arrival.interface),
            headers: &arrival.packet[..ip.header_len],
            named_at: 0,
            offset: ip.fragment_offset,
            more: ip.more_fragments,
            bytes: arrival.payload,
            ecn: Ecn::from_tos(ip.dscp_ecn),
            interface: arrival.interface,
            station: arrival.station,
        };
        self.take_piece(now, &piece)
    }

    /// Takes in a fragment of IPv6, as [`Ip::handle_fragment_v4`].
    pub(crate) fn handle_fragment_v6(
        &mut self,
        now: Instant,
        arrival: &Arrival<'_>,
        chain: &Chain<'_>,
        part: &FragmentPart,
        egress: &mut dyn Egress,
    ) -> Option<Partial> {
        self.link.counters.ip6_reasm_reqds += 1;
        if let Err(problem) = check_part(chain, part) {
            self.link.counters.ip6_reasm_fails += 1;
            self.report_problem(now, arrival, problem, egress);
            return None;
        }
        let (local, remote) = (arrival.destination, arrival.source);
        let [a, b, c, d] = part.header.identification.to_be_bytes();
        let (high, low) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        let piece = Piece {
            key: FourTuple::new(local, high, remote, low).on_link(arrival.interface),
            headers: &arrival.packet[..chain.payload_at],
            named_at: part.named_at,
            offset: part.header.offset,
            more: part.header.more,
            bytes: chain.payload,
            ecn: Ecn::from_tos(arrival.dscp_ecn),
            interface: arrival.interface,
            station: arrival.station,
        };
        self.take_piece(now, &piece)
    }

    fn take_piece(&mut self, now: Instant, piece: &Piece<'_>) -> Option<Partial> {
        let whole = self.reassembly.take(now, piece, &mut self.link.counters);
        if whole.is_none() {
            self.schedule_fragments();
        }
        whole
    }

    /// Puts a packet together in `buffer`; `last` is the fragment that came last. `None`: it is not one to deliver.
    pub(crate) fn assemble<'b>(
        &mut self,
        now: Instant,
        last: &Arrival<'b>,
        whole: Partial,
        buffer: &'b mut [u8],
        egress: &mut dyn Egress,
    ) -> Option<Arrival<'b>> {
        let is_v4 = last.source.is_ipv4();
        let arrival = self
            .reassembly
            .assemble(whole, buffer)
            .and_then(|assembled| {
                let packet = buffer.get_mut(..assembled.len)?;
                if is_v4 {
                    restore_ipv4(packet, assembled.headers_len, assembled.ecn)
                } else {
                    restore_ipv6(
                        packet,
                        assembled.headers_len,
                        assembled.named_at,
                        assembled.ecn,
                    )
                }
            });
        self.schedule_fragments();
        let Some(restored) = arrival else {
            self.count_failed(is_v4);
            return None;
        };
        let buffer: &'b [u8] = buffer;
        let packet = &buffer[restored.start..restored.end];
        let mut arrival = Arrival {
            packet,
            payload: &packet[restored.headers_len..],
            protocol: restored.protocol,
            next_header_at: restored.next_header_at,
            dscp_ecn: restored.tos,
            hop_limit: restored.ttl,
            ttl: restored.ttl,
            checksum: RxChecksum::Unknown,
            segment_bytes: None,
            is_detour: true,
            is_marked_fragment: true,
            frame: &[],
            ..*last
        };
        if is_v4 {
            self.link.counters.ip_reasm_oks += 1;
            return Some(arrival);
        }
        let start = Start {
            protocol: restored.protocol,
            next_header_at: restored.next_header_at,
            at: restored.headers_len,
        };
        match extension::walk(packet, start) {
            // Fragments in fragments are nobody's honest packet.
            Ok(Chain {
                fragment: Some(_), ..
            }) => self.count_failed(false),
            Ok(chain) => {
                self.link.counters.ip6_reasm_oks += 1;
                arrival.protocol = chain.protocol;
                arrival.next_header_at = chain.next_header_at;
                arrival.payload = chain.payload;
                return Some(arrival);
            }
            Err(problem) => {
                self.link.counters.ip6_in_hdr_errors += 1;
                self.report_problem(now, &arrival, problem, egress);
            }
        }
        None
    }

    fn count_failed(&mut self, is_v4: bool) {
        if is_v4 {
            self.link.counters.ip_reasm_fails += 1;
        } else {
            self.link.counters.ip6_reasm_fails += 1;
        }
    }

    /// Sets the timer for the packet that is given up next.
    pub(crate) fn schedule_fragments(&mut self) {
        let deadline = self.reassembly.next_deadline();
        self.link.timers.set(Timer::Fragments, deadline);
    }

    /// The time of a packet may be over. Its sender is told with what is sent next.
    pub(crate) fn handle_fragment_timer(&mut self, now: Instant) {
        self.has_late_fragments = self.reassembly.expired(now).is_some();
        if !self.has_late_fragments {
            self.schedule_fragments();
        }
    }

    /// Gives up the packets whose time is over, and says so where the first fragment came
    /// (RFC 792, RFC 1122 §3.3.2, RFC 8200 §4.5).
    pub(super) fn give_up_fragments(&mut self, now: Instant, egress: &mut dyn Egress) {
        if !core::mem::take(&mut self.has_late_fragments) {
            return;
        }
        while let Some(late) = self.reassembly.expired(now) {
            let (tuple, interface, station) = self.reassembly.came_by(late);
            let mut quote = [0; QUOTE_MAX];
            let quoted = self.reassembly.quote(late, &mut quote);
            if self.reassembly.give_up(late) {
                continue; // It was given up long ago.
            }
            self.count_timeout(tuple.remote());
            let Some(resolution) = self.link.interfaces.find(interface) else {
                continue;
            };
            let arrival = Arrival {
                interface,
                resolution: resolution.config.resolution,
                station,
                source: tuple.remote(),
                destination: tuple.local(),
                packet: &quote[..quoted],
                ..Arrival::NOTHING
            };
            if quoted > 0 {
                self.tell_time_exceeded(now, &arrival, egress);
            }
        }
        self.schedule_fragments();
    }

    fn count_timeout(&mut self, peer: IpAddr) {
        if peer.is_ipv4() {
            self.link.counters.ip_reasm_timeout += 1;
            self.link.counters.ip_reasm_fails += 1;
        } else {
            self.link.counters.ip6_reasm_timeout += 1;
            self.link.counters.ip6_reasm_fails += 1;
        }
    }

    fn tell_time_exceeded(&mut self, now: Instant, arrival: &Arrival<'_>, egress: &mut dyn Egress) {
        if arrival.source.is_ipv6() {
            let message = |quoted| icmpv6::Message::TimeExceeded {
                code: time_exceeded::REASSEMBLY,
                quoted,
            };
            self.send_error_v6(now, arrival, false, message, egress);
            return;
        }
        let code = REASSEMBLY;
        let message = |quoted| icmpv4::Message::TimeExceeded { code, quoted };
        if self.send_error_v4(now, arrival, message, egress) {
            self.link.counters.icmp_out_time_excds += 1;
        }
    }
}

/// A packet as it was before it was cut.
struct Restored {
    /// Where it starts and ends in the buffer.
    start: usize,
    end: usize,
    headers_len: usize,
    protocol: Protocol,
    next_header_at: usize,
    tos: u8,
    ttl: u8,
}

/// Makes the header of the first fragment that of the whole packet; `None`: it would be too long.
fn restore_ipv4(packet: &mut [u8], headers_len: usize, ecn: Ecn) -> Option<Restored> {
    let total_len = u16::try_from(packet.len()).ok()?;
    let header = packet.get_mut(..headers_len)?;
    header[1] = ecn.in_tos(header[1]);
    header[2..4].copy_from_slice(&total_len.to_be_bytes());
    header[6..8].fill(0);
    header[10..12].fill(0);
    let checksum = Sum::new().add(header).finish();
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
    let (tos, ttl, protocol) = (header[1], header[8], Protocol(header[9]));
    Some(Restored {
        start: 0,
        end: packet.len(),
        headers_len,
        protocol,
        next_header_at: 9,
        tos,
        ttl,
    })
}

/// RFC 8200 §4.5: the unfragmentable part of the first fragment, without its fragment header.
fn restore_ipv6(
    packet: &mut [u8],
    headers_len: usize,
    named_at: usize,
    ecn: Ecn,
) -> Option<Restored> {
    let unfragmentable = headers_len.checked_sub(Fragment::LEN)?;
    let payload_len = packet.len() - Fragment::LEN - ipv6::Header::LEN;
    let payload_len = u16::try_from(payload_len).ok()?;
    let protocol = Protocol(*packet.get(unfragmentable)?);
    *packet.get_mut(named_at)? = protocol.0;
    packet[4..6].copy_from_slice(&payload_len.to_be_bytes());
    let tos = packet[0] << 4 | packet[1] >> 4;
    packet[1] = packet[1] & 0xcf | (ecn as u8) << 4;
    let ttl = packet[7];
    // The headers move up to the data; those are fewer bytes than the data.
    packet.copy_within(..unfragmentable, Fragment::LEN);
    Some(Restored {
        start: Fragment::LEN,
        end: packet.len(),
        headers_len: unfragmentable,
        protocol,
        next_header_at: named_at,
        tos: ecn.in_tos(tos),
        ttl,
    })
}

/// What RFC 8200 §4.5 asks of a fragment.
fn check_part(chain: &Chain<'_>, part: &FragmentPart) -> Result<(), Problem> {
    const PAYLOAD_LENGTH_AT: usize = 4;
    const OFFSET_IN_HEADER: usize = 2;
    let field = |pointer| Problem::Report {
        code: parameter_problem::FIELD,
        pointer,
        even_for_groups: false,
    };
    let header = &part.header;
    let len = chain.payload.len();
    if header.more && !len.is_multiple_of(8) {
        return Err(field(PAYLOAD_LENGTH_AT));
    }
    let unfragmentable = part.at - ipv6::Header::LEN;
    if unfragmentable + usize::from(header.offset) + len > ipv6::Header::MAX_PAYLOAD_LEN {
        return Err(field(part.at + OFFSET_IN_HEADER));
    }
    if len == 0 {
        return Err(Problem::Discard);
    }
    if header.offset == 0 && !holds_all_headers(chain) {
        return Err(Problem::Report {
            code: parameter_problem::INCOMPLETE_CHAIN,
            pointer: 0,
            even_for_groups: false,
        });
    }
    Ok(())
}

/// RFC 7112 §5: the first fragment holds all headers, the upper layer's included (as Linux's
/// `ipv6frag_thdr_truncated`).
fn holds_all_headers(chain: &Chain<'_>) -> bool {
    let (mut protocol, mut rest) = (chain.protocol, chain.payload);
    for _ in 0..extension::HEADERS_MAX {
        let needed = match protocol {
            Protocol::TCP => 20,
            Protocol::UDP | Protocol::ICMPV6 | Protocol::FRAGMENT => 8,
            Protocol::NO_NEXT_HEADER => 0,
            _ => 1,
        };
        if !protocol.is_extension() || protocol == Protocol::FRAGMENT {
            return rest.len() >= needed;
        }
        let [next, words, ..] = *rest else {
            return false;
        };
        let Some(behind) = rest.get(8 + usize::from(words) * 8..) else {
            return false;
        };
        (protocol, rest) = (Protocol(next), behind);
    }
    true
}
