//! Which stack receives at an address that the engine and the kernel both have: the engine shows which ends its sockets have
//! (`hostif::holders`), and what none of them has is the kernel's. Nothing is asked but the first time.

use core::net::SocketAddr;

use hostif::control::{Reply, Request};
use hostif::{Holders, Transport};
use rustix::fd::AsFd as _;
use rustix::io::Errno;

use crate::engines::session::Session;

impl Session {
    /// Whether a socket of the engine has that end, or all ends of that port. Where that cannot be known none has: the kernel
    /// has it too then.
    #[must_use]
    pub fn holds(&self, transport: Transport, end: SocketAddr) -> bool {
        let Ok(all) = self.attachments() else {
            return false;
        };
        let holders = match all.holders.get() {
            Some(holders) => holders,
            None => {
                // Not while others wait for it: the process may fork meanwhile.
                let mapped = self.map_holders().ok();
                all.holders.get_or_init(|| mapped)
            }
        };
        let end = SocketAddr::new(end.ip().to_canonical(), end.port());
        holders
            .as_ref()
            .is_some_and(|holders| holders.have(transport, end))
    }

    fn map_holders(&self) -> Result<Holders, Errno> {
        match self.request(0, &Request::MapHolders, &[])? {
            (Reply::Holders, descriptors) => {
                let file = descriptors.first().ok_or(Errno::PROTO)?;
                Holders::map(file.as_fd()).map_err(|_| Errno::NOMEM)
            }
            _ => Err(Errno::PROTO),
        }
    }
}
