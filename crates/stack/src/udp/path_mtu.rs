//! Path MTUs that ICMP has told about datagrams (RFC 1191 §6.3): a small cache by destination. An entry
//! that another destination needs is overwritten; a lost one costs a refused datagram and another ICMP
//! message.

use super::record::Ends;
use super::send::Way;
use super::{FamilyOptions, Udp, UdpId};
use crate::containers::intrusive::at;
use crate::error::Error;
use crate::ip::Ip;
use crate::ip::path::{PATH_MTU_LIFETIME, path_mtu_min};
use core::net::{IpAddr, SocketAddr};
use siphasher::sip::SipHasher13;
use tcp::Instant;

const ENTRIES: usize = 256;

#[derive(Clone, Copy, Debug)]
struct Entry {
    destination: IpAddr,
    mtu: u16,
    until: Instant,
}

/// The cache.
#[derive(Debug)]
pub(super) struct PathMtus {
    entries: Vec<Option<Entry>>,
    hasher: SipHasher13,
    /// Until when the last of them counts.
    until: Instant,
}

impl PathMtus {
    pub(super) fn new(key: &[u8; 16]) -> Self {
        Self {
            entries: vec![None; ENTRIES],
            hasher: SipHasher13::new_with_key(key),
            until: Instant::ZERO,
        }
    }

    /// Largest packet that is known to reach `destination` over a link with `link_mtu`.
    pub(super) fn find(&self, now: Instant, destination: IpAddr, link_mtu: u16) -> u16 {
        if now >= self.until {
            return link_mtu;
        }
        self.entries[self.place(destination)]
            .filter(|entry| entry.destination == destination && entry.until > now)
            .map_or(link_mtu, |entry| entry.mtu.min(link_mtu))
    }

    /// A router could not forward a packet of more than `mtu` bytes. Returns what is believed of it.
    pub(super) fn lower(&mut self, now: Instant, destination: IpAddr, mtu: u16) -> u16 {
        let place = self.place(destination);
        // RFC 1191 §6.3, RFC 8201 §4: no such message ever raises what is believed.
        let known = self.entries[place]
            .filter(|entry| entry.destination == destination && entry.until > now)
            .map_or(u16::MAX, |entry| entry.mtu);
        let mtu = mtu.max(path_mtu_min(destination)).min(known);
        self.until = now + PATH_MTU_LIFETIME;
        self.entries[place] = Some(Entry {
            destination,
            mtu,
            until: self.until,
        });
        mtu
    }

    fn place(&self, destination: IpAddr) -> usize {
        let hash = match destination {
            IpAddr::V4(address) => self.hasher.hash(&address.octets()),
            IpAddr::V6(address) => self.hasher.hash(&address.octets()),
        };
        let [low, ..] = hash.to_le_bytes();
        usize::from(low) % ENTRIES
    }
}

impl Udp<'_> {
    /// Largest packet that may go by a link of that MTU in one piece.
    pub(super) fn believed_mtu(
        &self,
        now: Instant,
        (link, believes_path): (u16, bool),
        destination: IpAddr,
    ) -> usize {
        usize::from(if believes_path {
            self.path_mtus.find(now, destination, link)
        } else {
            link
        })
    }

    /// The MTU towards the peer of a connected socket (`IP_MTU`).
    pub(crate) fn mtu(&self, ip: &Ip, now: Instant, id: UdpId) -> Result<u16, Error> {
        let ends = self.rows[at(self.check(id)?)].ends;
        let remote = ends.remote().ok_or(Error::DestinationRequired)?;
        self.way_mtu(ip, now, remote, &ends, &FamilyOptions::default())
    }

    /// The largest packet that a socket may send to a destination in one piece.
    pub(crate) fn mtu_towards(
        &self,
        ip: &Ip,
        now: Instant,
        id: UdpId,
        destination: SocketAddr,
    ) -> Result<u16, Error> {
        let record = &self.rows[at(self.check(id)?)];
        let options = record.options();
        self.way_mtu(
            ip,
            now,
            destination,
            &record.ends,
            options.of(destination.ip()),
        )
    }

    fn way_mtu(
        &self,
        ip: &Ip,
        now: Instant,
        remote: SocketAddr,
        ends: &Ends,
        options: &FamilyOptions,
    ) -> Result<u16, Error> {
        let interface = self.zone_of(ip, remote).or(ends.zone());
        let way = self.way(ip, remote.ip(), interface)?;
        let believes_path = options.mtu_discovery.believes_path();
        let link = link_mtu(ip, &way, remote.ip());
        let mtu = self.believed_mtu(now, (link, believes_path), remote.ip());
        Ok(u16::try_from(mtu).unwrap_or(u16::MAX))
    }
}

/// Of the link of the first hop.
pub(super) fn link_mtu(ip: &Ip, way: &Way, destination: IpAddr) -> u16 {
    let link = ip.link.interfaces.find(way.interface);
    link.map_or(path_mtu_min(destination), |interface| interface.config.mtu)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lowered_mtu_is_believed_for_a_while_and_never_below_the_minimum() {
        let mut mtus = PathMtus::new(&[1; 16]);
        let destination = "192.0.2.1".parse().unwrap();
        let start = Instant::ZERO;
        assert_eq!(mtus.find(start, destination, 1_500), 1_500);
        assert_eq!(mtus.lower(start, destination, 1_280), 1_280);
        assert_eq!(mtus.find(start, destination, 1_500), 1_280);
        assert_eq!(mtus.find(start, destination, 1_000), 1_000);
        assert_eq!(mtus.lower(start, destination, 1_400), 1_280, "never raised");
        assert_eq!(mtus.find(start, destination, 1_500), 1_280);
        assert_eq!(mtus.lower(start, destination, 0), path_mtu_min(destination));
        assert_eq!(
            mtus.find(start + PATH_MTU_LIFETIME, destination, 1_500),
            1_500
        );
    }
}
