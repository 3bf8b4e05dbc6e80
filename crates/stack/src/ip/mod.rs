//! The internet layer: routes, the addresses of this host and how they come about, the way of each flow, fragments,
//! what is refused. Groups are below it (`multicast/`), ports above.

mod addresses;
pub(crate) mod arrival;
mod autoconf;
mod discovery;
pub(crate) mod flows;
mod fragments;
pub(crate) mod icmp_meaning;
mod ndp;
mod neighbours;
pub(crate) mod path;
pub(crate) mod quote;
mod rate;
pub(crate) mod reassembly;
mod redirect;
pub(crate) mod refuse;
pub(crate) mod route;

use crate::address::socket_address;
use crate::config::Config;
use crate::containers::demux::FourTuple;
use crate::containers::timers::Timers;
use crate::egress::Egress;
use crate::link::Link;
use crate::link::interface::InterfaceId;
use crate::multicast::Multicast;
use core::net::{IpAddr, SocketAddr};
use discovery::Discovery;
use flows::Flows;
use rate::TokenBucket;
use reassembly::{ASSEMBLED_MAX, Reassembly};
use route::Routes;
use siphasher::sip::SipHasher13;
use tcp::Instant;
use zerocopy::IntoBytes as _;

/// IPv4 and IPv6 of this host.
#[derive(Debug)]
pub(crate) struct Ip {
    pub(crate) link: Link,
    pub(crate) multicast: Multicast,
    pub(crate) routes: Routes,
    /// The way of each connection.
    pub(crate) flows: Flows,
    /// Per interface: what its routers have said.
    discoveries: Vec<Discovery>,
    reassembly: Reassembly,
    /// The buffer in which a packet is put together once all its fragments are there.
    pub(crate) assembled: Vec<u8>,
    /// Senders of fragments wait to be told that the rest never came.
    has_late_fragments: bool,
    icmp_bucket: TokenBucket,
    flow_hasher: SipHasher13,
    identifier_hasher: SipHasher13,
}

impl Ip {
    /// No interface and no route yet; ways for as many connections.
    pub(crate) fn new(config: &Config, timers: Timers, connections: usize) -> Self {
        Self {
            link: Link::new(*config, timers),
            multicast: Multicast::new(&config.subkey(b"multicast")),
            routes: Routes::new(),
            flows: Flows::new(connections),
            discoveries: Vec::new(),
            reassembly: Reassembly::new(config),
            assembled: crate::containers::intrusive::zeroed(ASSEMBLED_MAX),
            has_late_fragments: false,
            icmp_bucket: TokenBucket::new(
                config.icmp_errors_per_second,
                config.icmp_errors_burst,
                &config.subkey(b"icmp"),
            ),
            flow_hasher: SipHasher13::new_with_key(&config.subkey(b"flow labels")),
            identifier_hasher: SipHasher13::new_with_key(&config.subkey(b"identifiers")),
        }
    }

    /// The flow label of a flow (RFC 6437 §3): one for all its packets, unrelated to the next one's.
    pub(crate) fn flow_label(&self, tuple: &FourTuple) -> u32 {
        if tuple.local().is_ipv4() {
            return 0;
        }
        let hash = self.flow_hasher.hash(tuple.as_bytes());
        let [a, b, c, d, ..] = hash.to_le_bytes();
        (u32::from_le_bytes([a, b, c, d]) & wire::ipv6::FLOW_LABEL_MASK).max(1)
    }

    /// This host's end as programs see it.
    pub(crate) fn local_end(&self, tuple: &FourTuple) -> SocketAddr {
        socket_address(tuple.local(), tuple.local_port(), self.scope_id(tuple))
    }

    /// The peer's end as programs see it.
    pub(crate) fn remote_end(&self, tuple: &FourTuple) -> SocketAddr {
        socket_address(tuple.remote(), tuple.remote_port(), self.scope_id(tuple))
    }

    fn scope_id(&self, tuple: &FourTuple) -> u32 {
        let link = tuple
            .zone()
            .and_then(|zone| self.link.interfaces.find(zone));
        link.map_or(0, |interface| interface.config.scope_id)
    }

    /// Whether this host takes what is sent to a group by the link of an interface.
    pub(crate) fn listens_to_group(&self, interface: InterfaceId, group: IpAddr) -> bool {
        let is_own = match group {
            IpAddr::V4(_) => false,
            IpAddr::V6(group) => self.link.interfaces.listens_to(interface, group),
        };
        is_own || self.multicast.listens(interface, group)
    }

    /// Sends what this layer and those below have to say of their own accord.
    #[cold]
    pub(crate) fn poll_transmit(&mut self, now: Instant, egress: &mut dyn Egress) {
        self.link.send_questions(egress);
        self.link.send_held(now, egress);
        self.multicast.send_reports(now, &mut self.link, egress);
        self.give_up_fragments(now, egress);
    }

    /// Whether something of this layer or below waits to be sent.
    pub(crate) fn wants_transmit(&self) -> bool {
        self.has_late_fragments || self.link.wants_transmit() || self.multicast.wants_transmit()
    }
}
