//! Sockets that no process has open any more: which of them hold a port that a new one needs.

use std::net::{IpAddr, SocketAddr};

use rustix::net::sockopt;

use super::{Datagrams, Peer};
use crate::supervisor::{Served, Supervisor};

impl Supervisor {
    /// Ends the sockets of a port that no process has open any more. Not those that do not matter: of sockets of one address
    /// that are not connected and share nothing, the one that was bound last has all that comes, and says who may be beside it.
    pub(super) fn drop_closed_at(&mut self, address: SocketAddr) {
        let port = address.port();
        if port == 0 {
            return;
        }
        let served = self.served.iter();
        let mut at_port: Vec<_> = served
            .filter_map(|(key, served)| match served {
                Served::Datagrams(one) if one.local_port() == Some(port) => {
                    Some((one.served_since, *key))
                }
                _ => None,
            })
            .collect();
        at_port.sort_unstable_by(|one, other| other.cmp(one));
        for (_, key) in at_port {
            let Some(Served::Datagrams(one)) = self.served.get(&key) else {
                continue;
            };
            if !one.is_open() {
                self.drop_datagrams(key, &mut vec![0; usize::from(u16::MAX)]);
            } else if one.has_all_at(address.ip()) {
                return;
            }
        }
    }
}

impl Datagrams {
    /// Whether no socket that was bound there before has a share in what comes: it is not connected, and has not SO_REUSEPORT.
    fn has_all_at(&self, ip: IpAddr) -> bool {
        let local = self.socket.local_address();
        let is_there = local.is_some_and(|local| local.ip() == ip);
        is_there
            && self.peer == Peer::None
            && !sockopt::socket_reuseport(&self.backing).unwrap_or(true)
    }
}
