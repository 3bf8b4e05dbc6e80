//! A datagram arrives (RFC 768, RFC 1122 §4.1.3).

use super::Datagram;
use super::Udp;
use super::table::Entry;
use crate::address::{same_family, socket_address};
use crate::containers::intrusive::at;
use crate::egress::Egress;
use crate::host::Host;
use crate::ip::Ip;
use crate::ip::arrival::Arrival;
use crate::ip::refuse::Refusal;
use crate::link::interface::{InterfaceId, Interfaces};
use core::net::{IpAddr, SocketAddr};
use tcp::Instant;

impl Udp<'_> {
    /// Gives a datagram to its socket; answers with port unreachable where there is none
    /// (RFC 1122 §4.1.3.1).
    pub(crate) fn handle_datagram(
        &mut self,
        ip: &mut Ip,
        now: Instant,
        arrival: &Arrival<'_>,
        host: &mut dyn Host,
        egress: &mut dyn Egress,
    ) {
        let is_ours = ip.link.interfaces.owns(arrival.destination);
        let packet = UdpPacket {
            link: if is_ours {
                arrival.own_link_of(&ip.link.interfaces)
            } else {
                arrival.link_of_many(&ip.link.interfaces)
            },
            ends: (arrival.source, arrival.destination),
            tos: arrival.dscp_ecn,
            ttl: arrival.ttl,
            bytes: arrival.payload,
            must_verify: arrival.must_verify(),
            segment_bytes: arrival.segment_bytes,
        };
        let Some(datagram) = packet.open(ip) else {
            return;
        };
        if is_ours {
            if self.deliver_to_one(ip, arrival, &datagram, host) {
                return;
            }
            ip.link.counters.udp_no_ports += 1;
            ip.refuse(now, arrival, Refusal::Port, egress);
        } else {
            // RFC 1122 §3.2.2: no error message answers a broadcast or multicast.
            self.deliver_to_all(ip, &datagram, host);
        }
    }

    /// Whether there was a socket for it.
    fn deliver_to_one(
        &mut self,
        ip: &mut Ip,
        arrival: &Arrival<'_>,
        datagram: &Datagram<'_>,
        host: &mut dyn Host,
    ) -> bool {
        let (source, destination) = (datagram.source, datagram.destination);
        let found = self.table.find(source, destination, datagram.interface);
        let Some(index) = found else {
            return false;
        };
        if datagram.interface == arrival.interface {
            let generation = self.generation(&ip.link.interfaces);
            self.predictions
                .learn(arrival.interface, arrival.frame, generation, index);
        }
        self.give(ip, index, datagram, host);
        true
    }

    /// The socket of a frame, if one like it came before.
    #[inline]
    pub(crate) fn predicted(
        &mut self,
        interfaces: &Interfaces,
        interface: InterfaceId,
        frame: &[u8],
    ) -> Option<u32> {
        let generation = self.generation(interfaces);
        self.predictions.find(interface, frame, generation)
    }

    /// Takes in a datagram for socket `index`, of which nothing but its addresses and its socket is known.
    pub(crate) fn handle_predicted(
        &mut self,
        ip: &mut Ip,
        index: u32,
        packet: &UdpPacket<'_>,
        host: &mut dyn Host,
    ) {
        if let Some(datagram) = packet.open(ip) {
            self.give(ip, index, &datagram, host);
        }
    }

    /// Every matching socket of the port gets a copy.
    fn deliver_to_all(&mut self, ip: &mut Ip, datagram: &Datagram<'_>, host: &mut dyn Host) {
        let port = datagram.destination.port();
        let mut anybody = false;
        for place in 0..self.table.on_port(port).len() {
            let entry = self.table.on_port(port)[place];
            let (group, source) = (datagram.destination.ip(), datagram.source.ip());
            let member = ip
                .multicast
                .takes(entry.index, datagram.interface, group, source);
            let hears = member.unwrap_or_else(|| {
                let options = self.rows[at(entry.index)].options();
                // One that has not joined hears what others of this host have joined for.
                let hears_others = !group.is_multicast() || options.of(group).multicast_all;
                hears_others && !options.addressed_only
            });
            if hears && takes(&entry, datagram) {
                self.give(ip, entry.index, datagram, host);
                anybody = true;
            }
        }
        if !anybody {
            ip.link.counters.udp_no_ports += 1;
        }
    }

    fn give(&mut self, ip: &mut Ip, index: u32, datagram: &Datagram<'_>, host: &mut dyn Host) {
        let record = &self.rows[at(index)];
        let (owner, merged) = (record.owner, record.options().merged);
        if datagram.segment_bytes == 0 || merged {
            self.count(ip, host.on_datagram(owner, datagram));
            return;
        }
        for payload in datagram.payload.chunks(datagram.segment_bytes.into()) {
            let one = Datagram {
                payload,
                segment_bytes: 0,
                ..*datagram
            };
            self.count(ip, host.on_datagram(owner, &one));
        }
    }

    fn count(&mut self, ip: &mut Ip, was_taken: bool) {
        if was_taken {
            ip.link.counters.udp_in_datagrams += 1;
        } else {
            ip.link.counters.udp_rcvbuf_errors += 1;
            ip.link.counters.udp_in_errors += 1;
        }
    }
}

/// A datagram as IP brings it.
pub(crate) struct UdpPacket<'p> {
    /// The link of its addresses.
    pub(crate) link: InterfaceId,
    /// The peer and this host, or the group.
    pub(crate) ends: (IpAddr, IpAddr),
    pub(crate) tos: u8,
    pub(crate) ttl: u8,
    /// Header and payload.
    pub(crate) bytes: &'p [u8],
    pub(crate) must_verify: bool,
    /// Of a run of datagrams that a device or a local sender has merged (`UDP_SEGMENT`), how long each is.
    pub(crate) segment_bytes: Option<u16>,
}

impl<'p> UdpPacket<'p> {
    /// What it says; `None`: it is damaged, which was counted.
    fn open(&self, ip: &mut Ip) -> Option<Datagram<'p>> {
        let (source, destination) = self.ends;
        let Ok((header, payload)) = wire::udp::Header::parse(self.bytes) else {
            ip.link.counters.udp_in_errors += 1;
            return None;
        };
        let bytes = &self.bytes[..wire::udp::Header::LEN + payload.len()];
        // RFC 1122 §4.1.3.4: a datagram with a wrong checksum is dropped silently.
        if self.must_verify && !wire::checksum::verify_udp(source, destination, bytes) {
            ip.link.counters.udp_in_csum_errors += 1;
            ip.link.counters.udp_in_errors += 1;
            return None;
        }
        let scope_id = ip.link.interfaces.find(self.link);
        let scope_id = scope_id.map_or(0, |interface| interface.config.scope_id);
        let is_run = |bytes: &u16| *bytes > 0 && usize::from(*bytes) < payload.len();
        Some(Datagram {
            interface: self.link,
            scope_id,
            source: socket_address(source, header.source_port, scope_id),
            destination: SocketAddr::new(destination, header.destination_port),
            tos: self.tos,
            ttl: self.ttl,
            payload,
            segment_bytes: self.segment_bytes.filter(is_run).unwrap_or(0),
        })
    }
}

/// Whether a socket wants a datagram for many; as in Linux one that is connected has the address of its
/// route and hears none.
fn takes(entry: &Entry, datagram: &Datagram<'_>) -> bool {
    let local = entry.ends.local().ip();
    let destination = datagram.destination.ip();
    let is_any = local.is_unspecified() && (same_family(local, destination) || entry.is_dual);
    (is_any || local == destination)
        && entry.ends.remote().is_none_or(|remote| {
            let source = datagram.source;
            (remote.ip(), remote.port()) == (source.ip(), source.port())
        })
}
