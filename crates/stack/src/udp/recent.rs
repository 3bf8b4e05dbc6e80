//! Where datagrams went lately, so that the next like one of them need not look for its way, its source and its headers.
//! Everything that these were found from is compared, or counts with a generation.

use super::send::Way;
use super::{FamilyOptions, Outgoing, UdpId};
use crate::containers::intrusive::at;
use crate::ip::Ip;
use crate::udp::fields::HeaderFields;
use crate::udp::prepared::Prepared;
use core::net::{IpAddr, SocketAddr};

const ENTRIES: usize = 64;

/// A datagram of a socket, as far as its way and its headers depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Like {
    id: UdpId,
    destination: SocketAddr,
    outgoing: Outgoing,
    /// Of the sockets with the interfaces, and of the routes.
    generations: [u32; 2],
}

impl Like {
    /// `generation`: of the sockets and the interfaces.
    pub(super) fn new(
        (ip, generation): (&Ip, u32),
        id: UdpId,
        outgoing: &Outgoing,
        destination: SocketAddr,
    ) -> Self {
        let generations = [generation, ip.routes.generation()];
        let outgoing = Outgoing {
            destination: None,
            segment_bytes: 0,
            ..*outgoing
        };
        Self {
            id,
            destination,
            outgoing,
            generations,
        }
    }

    /// Fibonacci hashing (Knuth, volume 3, §6.4).
    fn place(&self) -> usize {
        let address = match self.destination.ip() {
            IpAddr::V4(address) => u32::from(address),
            IpAddr::V6(address) => {
                let [.., a, b, c, d] = address.octets();
                u32::from_be_bytes([a, b, c, d])
            }
        };
        let key = address ^ self.id.index ^ u32::from(self.destination.port()) << 16;
        at(key.wrapping_mul(0x9e37_79b1) >> (u32::BITS - ENTRIES.ilog2()))
    }
}

/// What was found for a datagram.
#[derive(Clone, Copy, Debug)]
pub(super) struct Course {
    pub(super) way: Way,
    pub(super) fields: HeaderFields,
    /// Of the interface.
    pub(super) link_mtu: u16,
    pub(super) believes_path: bool,
    pub(super) may_fragment: bool,
}

impl Course {
    pub(super) fn new(way: Way, fields: HeaderFields, link_mtu: u16, of: &FamilyOptions) -> Self {
        Self {
            way,
            fields,
            link_mtu,
            believes_path: of.mtu_discovery.believes_path(),
            may_fragment: of.mtu_discovery.may_fragment(),
        }
    }
}

/// A course to a neighbour that answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    pub(super) course: Course,
    /// Headers of a datagram that fits the MTU, where it leaves this host and no socket of it gets a copy.
    pub(super) prepared: Option<Prepared>,
    pub(super) neighbour: u32,
    pub(super) neighbour_generation: u32,
}

/// What was found lately.
#[derive(Debug)]
pub(super) struct Recent(Box<[Option<(Like, Known)>]>);

impl Recent {
    pub(super) fn new() -> Self {
        Self(vec![None; ENTRIES].into())
    }

    pub(super) fn find(&self, like: &Like) -> Option<&Known> {
        let (found, known) = self.0[like.place()].as_ref()?;
        (found == like).then_some(known)
    }

    pub(super) fn learn(&mut self, like: Like, known: Known) {
        self.0[like.place()] = Some((like, known));
    }
}
