//! A datagram leaves: way, source, headers, and what is done about the path MTU.
//!
//! The UDP checksum is left to the driver unless the datagram is fragmented, when nobody but us sees it
//! whole. A payload to be cut (`UDP_SEGMENT`) leaves as one frame per datagram.

use super::Udp;
use super::{Outgoing, SendError, UdpId, UdpOptions};
use crate::address::{group_hardware, same_family};
use crate::containers::demux::FourTuple;
use crate::containers::intrusive::at;
use crate::egress::{Egress, Frame, PartialChecksum, Payload};
use crate::error::Error;
use crate::ip::Ip;
use crate::link::Link;
use crate::link::interface::InterfaceId;
use crate::link::output::{Envelope, ip_header_len};
use crate::udp::fields::{HeaderFields, put_checksum};
use crate::udp::path_mtu::link_mtu;
use crate::udp::prepared::Prepared;
use crate::udp::recent::{Course, Known, Like};
use crate::udp::record::Ends;
use core::net::{IpAddr, SocketAddr};
use tcp::Instant;
use wire::ethernet;
use wire::ipv4::Protocol;
use wire::ipv6::{self, extension::Fragment};
use wire::udp;

/// Datagrams that one payload may be cut into (Linux `UDP_MAX_SEGMENTS`).
const SEGMENTS_MAX: usize = 128;
const IP_START: usize = ethernet::Header::LEN;
/// Everything before a payload: the longest is that of an IPv6 fragment.
const HEADERS_MAX: usize = IP_START + ipv6::Header::LEN + Fragment::LEN + udp::Header::LEN;

/// Where a datagram goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    pub(super) interface: InterfaceId,
    /// The link of the addresses; other than the interface where the packet stays on this host.
    pub(super) link: InterfaceId,
    /// The neighbour to hand it to; `None`: everybody on the link, or this host.
    next_hop: Option<IpAddr>,
    /// The link-layer destination where there is no neighbour to ask.
    hardware: ethernet::Address,
    pub(super) source: Option<IpAddr>,
    /// It leaves this host.
    leaves: bool,
    /// Sockets of this host get a copy (RFC 1112 §6.1; broadcasts as in Linux).
    loops: bool,
}

/// How the first hop is reached.
#[derive(Clone, Copy, Debug)]
enum Delivery {
    Now(ethernet::Address),
    Held(u32),
}

impl Udp<'_> {
    /// Sends one datagram, or the next of those that the payload is cut into: returns how many bytes of
    /// it have been sent or are held for a neighbour. What is left is to be offered again.
    pub(crate) fn send(
        &mut self,
        ip: &mut Ip,
        now: Instant,
        id: UdpId,
        outgoing: &Outgoing,
        payload: &[u8],
        egress: &mut dyn Egress,
    ) -> Result<usize, SendError> {
        let index = self.check(id).map_err(SendError::Refused)?;
        let remote = || self.rows[at(index)].ends.remote();
        let destination = outgoing.destination.or_else(remote);
        let destination = destination.ok_or(SendError::Refused(Error::DestinationRequired))?;
        let generation = self.generation(&ip.link.interfaces);
        let like = Like::new((ip, generation), id, outgoing, destination);
        let (mut course, known) = match self.recent.find(&like) {
            Some(known) => {
                let neighbours = &mut ip.link.neighbours;
                let hardware = neighbours.known(now, known.neighbour, known.neighbour_generation);
                if let (Some(hardware), Some(prepared)) = (hardware, &known.prepared)
                    && outgoing.segment_bytes == 0
                    && self.fits_one(now, &known.course, destination, payload.len())
                {
                    let interface = known.course.way.interface;
                    return prepared.send(&mut ip.link, interface, hardware, payload, egress);
                }
                (known.course, hardware)
            }
            None => {
                let course = self.course(ip, index, outgoing, destination);
                (course.map_err(SendError::Refused)?, None)
            }
        };
        let mtu = self.believed_mtu(
            now,
            (course.link_mtu, course.believes_path),
            destination.ip(),
        );
        let step = usize::from(outgoing.segment_bytes);
        let fits = fits(destination, payload.len(), step, (mtu, course.may_fragment));
        let fits = fits.map_err(SendError::Refused)?;
        let delivery = match known {
            Some(hardware) => Delivery::Now(hardware),
            None => {
                let delivery = self.delivery(ip, now, like, &course);
                delivery.map_err(SendError::Refused)?
            }
        };
        if let Delivery::Now(hardware) = delivery {
            course.fields.envelope.hardware = hardware;
        }
        let Course { way, fields, .. } = course;
        let pieces = if step == 0 {
            payload.len().max(1)
        } else {
            step
        };
        let mut sent = 0;
        loop {
            let piece = &payload[sent..payload.len().min(sent + pieces)];
            let result = if fits {
                send_whole(&mut ip.link, &way, delivery, &fields, piece, egress)
            } else {
                send_fragments(&mut ip.link, &way, delivery, &fields, piece, mtu, egress)
            };
            match result {
                Ok(()) => sent += piece.len(),
                Err(_) if sent > 0 => return Ok(sent),
                Err(busy) => return Err(busy),
            }
            ip.link.counters.udp_out_datagrams += 1;
            if sent == payload.len() {
                return Ok(sent);
            }
        }
    }

    /// Whether a payload leaves in one piece.
    #[inline]
    fn fits_one(
        &self,
        now: Instant,
        course: &Course,
        destination: SocketAddr,
        payload_len: usize,
    ) -> bool {
        let believed = (course.link_mtu, course.believes_path);
        let mtu = self.believed_mtu(now, believed, destination.ip());
        fits(destination, payload_len, 0, (mtu, false)).is_ok()
    }

    /// The way, the addresses and fields of a datagram of the socket `index`.
    fn course(
        &mut self,
        ip: &mut Ip,
        index: u32,
        outgoing: &Outgoing,
        destination: SocketAddr,
    ) -> Result<Course, Error> {
        let record = &self.rows[at(index)];
        let (ends, all) = (record.ends, record.options());
        let (way, fields) = self.address(ip, &ends, &all, outgoing, destination)?;
        let target = destination.ip();
        let link_mtu = link_mtu(ip, &way, target);
        Ok(Course::new(way, fields, link_mtu, all.of(target)))
    }

    /// The addresses and fields of a datagram of the socket at `ends`.
    fn address(
        &mut self,
        ip: &mut Ip,
        ends: &Ends,
        all: &UdpOptions,
        outgoing: &Outgoing,
        destination: SocketAddr,
    ) -> Result<(Way, HeaderFields), Error> {
        let options = all.of(destination.ip());
        let (local, target) = (ends.local(), destination.ip());
        if destination.port() == 0 || target.is_unspecified() {
            return Err(Error::InvalidArgument);
        }
        if ip.link.interfaces.is_broadcast(target) && !all.broadcast {
            return Err(Error::AccessDenied);
        }
        let multicast = target.is_multicast();
        let interface = outgoing
            .interface
            .or(self.zone_of(ip, destination))
            .or(ends.zone())
            .or(options.multicast_interface.filter(|_| multicast));
        let mut way = self.way(ip, target, interface)?;
        let bound = Some(local.ip()).filter(|own| ip.link.interfaces.owns(*own));
        let source = outgoing.source.or(bound).or(way.source);
        let source = source.ok_or(Error::AddressNotAvailable)?;
        if !ip.link.interfaces.owns(source) {
            return Err(Error::InvalidArgument);
        }
        if !same_family(source, target) {
            return Err(Error::NetworkUnreachable);
        }
        let ttl = if multicast {
            options.multicast_ttl
        } else {
            options.ip.ttl
        };
        let ttl = outgoing.ttl.unwrap_or(ttl);
        if multicast {
            way.loops = options.multicast_loop && ip.listens_to_group(way.link, target);
            // RFC 1112 §6.1: a time to live of 0 keeps it on this host; RFC 4291 §2.7: so does the scope
            // of the node.
            way.leaves = ttl > 0 && !is_within_node(target);
        }
        let flow = FourTuple::new(source, local.port(), target, destination.port());
        let fields = HeaderFields {
            envelope: Envelope {
                interface: way.interface,
                hardware: way.hardware,
                source,
                destination: target,
                ttl,
                tos: outgoing.tos.unwrap_or(options.ip.tos),
                identification: 0,
                flow_label: ip.flow_label(&flow),
            },
            source_port: local.port(),
            destination_port: destination.port(),
            dont_fragment: options.mtu_discovery.forbids_fragments(),
        };
        Ok((way, fields))
    }

    /// The way to an address: of a host, of everybody on a link, or of a group.
    pub(super) fn way(
        &self,
        ip: &Ip,
        destination: IpAddr,
        interface: Option<InterfaceId>,
    ) -> Result<Way, Error> {
        let everybody = if destination.is_multicast() {
            Some(group_hardware(destination))
        } else {
            ip.link
                .interfaces
                .is_broadcast(destination)
                .then_some(ethernet::Address::BROADCAST)
        };
        if let Some(hardware) = everybody {
            let (interface, source) = ip
                .link
                .interfaces
                .speaking_to_many(destination, interface)
                .ok_or(Error::NetworkUnreachable)?;
            return Ok(Way {
                interface,
                link: interface,
                next_hop: None,
                hardware,
                source: Some(source),
                leaves: true,
                loops: !destination.is_multicast(),
            });
        }
        let hop = ip
            .hop_and_source(destination, interface)
            .ok_or(Error::NetworkUnreachable)?;
        let own = hop.next_hop.is_none().then_some(destination);
        let link = interface.or(own.and_then(|own| ip.link.interfaces.owner_of(own)));
        Ok(Way {
            interface: hop.interface,
            link: link.unwrap_or(hop.interface),
            next_hop: hop.next_hop,
            hardware: ethernet::Address([0; 6]),
            source: hop.source,
            leaves: true,
            loops: false,
        })
    }

    /// How the first hop is reached by now. A course by a neighbour who answers is kept for the next datagram like it.
    fn delivery(
        &mut self,
        ip: &mut Ip,
        now: Instant,
        like: Like,
        course: &Course,
    ) -> Result<Delivery, Error> {
        let Way {
            interface,
            next_hop,
            hardware,
            ..
        } = course.way;
        let Some(next_hop) = next_hop else {
            return Ok(Delivery::Now(hardware));
        };
        let n = ip.want_neighbour(now, interface, next_hop);
        let n = n.ok_or(Error::NoMemory)?;
        let Some(hardware) = ip.resolve(now, n) else {
            return Ok(Delivery::Held(n));
        };
        let goes_alone = course.way.leaves && !course.way.loops;
        let prepare = || Prepared::new(&course.fields, ip.link.hardware_of(interface));
        let known = Known {
            course: *course,
            prepared: goes_alone.then(prepare).flatten(),
            neighbour: n,
            neighbour_generation: ip.link.neighbours.entry(n).generation,
        };
        self.recent.learn(like, known);
        Ok(Delivery::Now(hardware))
    }
}

/// Whether a payload, or what it is cut into, leaves in one piece each; an error: it may not leave otherwise, or never could.
fn fits(
    destination: SocketAddr,
    payload_len: usize,
    step: usize,
    (mtu, may_fragment): (usize, bool),
) -> Result<bool, Error> {
    let headers_len = usize::from(ip_header_len(destination.ip())) + udp::Header::LEN;
    if step > 0 && (headers_len + step.min(payload_len) > mtu || payload_len > step * SEGMENTS_MAX)
    {
        return Err(Error::InvalidArgument);
    }
    let fits = step > 0 || headers_len + payload_len <= mtu;
    // Both length fields count the UDP header; that of IPv4 its own header too.
    let longest = match destination {
        SocketAddr::V4(_) => 65_535,
        SocketAddr::V6(_) => 65_535 + ipv6::Header::LEN,
    };
    if (!fits && !may_fragment) || headers_len + payload_len > longest {
        return Err(Error::MessageTooLong);
    }
    Ok(fits)
}

fn send_whole(
    link: &mut Link,
    way: &Way,
    delivery: Delivery,
    fields: &HeaderFields,
    payload: &[u8],
    egress: &mut dyn Egress,
) -> Result<(), SendError> {
    let ip_len = ip_header_len(fields.envelope.destination);
    let start = IP_START + usize::from(ip_len);
    let datagram_len = udp::Header::LEN + payload.len();
    let headers = link.scratch.bytes();
    fields.emit_udp(payload.len(), &mut headers[start..]);
    let partial = fields.pseudo_header(datagram_len).fold();
    put_checksum(&mut headers[start..], partial);
    let (envelope, hardware) = (&fields.envelope, link.hardware_of(way.interface));
    let headers = link.scratch.bytes();
    // RFC 6864 §4: with DF set nobody looks at the identification. A whole packet of IPv6 has none (RFC 8200 §3).
    if fields.dont_fragment || envelope.destination.is_ipv6() {
        envelope.emit(hardware, Protocol::UDP, datagram_len, headers);
    } else {
        let identification = link.identifications.next(envelope.destination);
        envelope.emit_unmarked(
            hardware,
            Protocol::UDP,
            identification,
            datagram_len,
            headers,
        );
    }
    let checksum = PartialChecksum {
        start: 14 + ip_len,
        offset: udp::CHECKSUM_OFFSET,
    };
    let headers_len = start + udp::Header::LEN;
    dispatch(
        link,
        way,
        delivery,
        headers_len,
        payload,
        Some(checksum),
        egress,
    )
}

/// RFC 791 §3.2, RFC 8200 §4.5: pieces of a multiple of eight bytes, under one identification.
fn send_fragments(
    link: &mut Link,
    way: &Way,
    delivery: Delivery,
    fields: &HeaderFields,
    payload: &[u8],
    mtu: usize,
    egress: &mut dyn Egress,
) -> Result<(), SendError> {
    let (envelope, hardware) = (&fields.envelope, link.hardware_of(way.interface));
    let identification = link.identifications.next(envelope.destination);
    let datagram_len = udp::Header::LEN + payload.len();
    let start = envelope.fragment_headers_len();
    let step = (mtu + IP_START - start) & !7;
    let mut header = [0; udp::Header::LEN];
    fields.emit_udp(payload.len(), &mut header);
    let sum = fields.pseudo_header(datagram_len).add(&header).add(payload);
    put_checksum(&mut header, wire::virtio::finish_partial(sum));
    let mut at = 0;
    while at < datagram_len {
        let end = datagram_len.min(at + step);
        let part = Fragment {
            next_header: Protocol::UDP,
            offset: u16::try_from(at).expect("invariant: a datagram fits 16 bits"),
            more: end < datagram_len,
            identification,
        };
        let headers = link.scratch.bytes();
        envelope.emit_fragment(hardware, &part, end - at, headers);
        // The UDP header stands in the first fragment only.
        let first = at == 0;
        let headers_len = if first {
            headers[start..start + udp::Header::LEN].copy_from_slice(&header);
            start + udp::Header::LEN
        } else {
            start
        };
        let from = at.max(udp::Header::LEN) - udp::Header::LEN;
        let piece = &payload[from..end - udp::Header::LEN];
        match dispatch(link, way, delivery, headers_len, piece, None, egress) {
            Ok(()) => {}
            Err(busy) if first => return Err(busy),
            // The first are gone; the rest is lost, as on a full device queue.
            Err(_) => {
                link.counters.ip_out_discards += 1;
                return Ok(());
            }
        }
        at = end;
    }
    Ok(())
}

/// Sends or holds what is in the scratch, up to `headers_len`, with `payload`.
fn dispatch(
    link: &mut Link,
    way: &Way,
    delivery: Delivery,
    headers_len: usize,
    payload: &[u8],
    checksum: Option<PartialChecksum>,
    egress: &mut dyn Egress,
) -> Result<(), SendError> {
    let mut headers = [0; HEADERS_MAX];
    headers.copy_from_slice(&link.scratch.bytes()[..HEADERS_MAX]);
    let frame = Frame {
        interface: way.interface,
        headers: &headers[..headers_len],
        payload: Payload::Bytes(payload),
        checksum,
        segment_size: None,
    };
    match delivery {
        Delivery::Now(_) => {
            if way.leaves {
                egress.transmit(&frame).map_err(|_| SendError::Busy)?;
                link.counters.ip_out_requests += 1;
            }
            if let Some(interface) = link.interfaces.loopback().filter(|_| way.loops) {
                // Lost where there is no room, as on a full queue of the device.
                let _ = egress.transmit(&Frame { interface, ..frame });
            }
        }
        Delivery::Held(n) => link.hold(&frame, n),
    }
    Ok(())
}

fn is_within_node(group: IpAddr) -> bool {
    matches!(group, IpAddr::V6(group) if group.octets()[1] & 0xf <= 1)
}
