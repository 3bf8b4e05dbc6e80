//! What the kernel holds for a program's socket: the backing socket's name, which only the kernel can have given it.
//! A program says which local end it wants, and is not believed: another program, perhaps another user's, may
//! have it. Where addresses are shared with the kernel its own sockets count as well.

use crate::calls::families::covers;
use crate::core::EngineCore;
use core::net::{IpAddr, SocketAddr};
use rustix::io::Errno;
use rustix::net::sockopt;
use stack::ReusePort;

impl EngineCore {
    /// The end that the kernel holds, if who has that port on its address has it on `address` too.
    pub(crate) fn held_for(&mut self, row: u32, address: IpAddr) -> Result<SocketAddr, Errno> {
        let held = self.kernel_name(row)?;
        let is_v6_only = held.is_ipv6() && self.is_v6_only(row);
        if covers(held.ip(), address.to_canonical(), is_v6_only) {
            Ok(held)
        } else {
            Err(Errno::ACCESS)
        }
    }

    /// The kernel must hold exactly that port on that address: a program may have let go of it after it bound.
    pub(crate) fn must_hold(&mut self, row: u32, local: SocketAddr) -> Result<(), Errno> {
        let held = self.held_for(row, local.ip())?;
        if held.port() == local.port() {
            Ok(())
        } else {
            Err(Errno::ACCESS)
        }
    }

    /// Where addresses are shared the backing socket listens before the engine does: as long as it only has the port,
    /// SO_REUSEADDR lets somebody else listen there.
    pub(crate) fn must_listen(&mut self, row: u32) -> Result<(), Errno> {
        if self.shared.is_none() {
            return Ok(());
        }
        let backing = self.sockets.companion(row).backing.as_ref();
        if sockopt::socket_acceptconn(&**backing.ok_or(Errno::BADF)?)? {
            Ok(())
        } else {
            Err(Errno::ACCESS)
        }
    }

    /// With whom the listener that is about to be may share its end: `SO_REUSEPORT`, which the backing socket keeps, and the
    /// user to whom that belongs, as Linux compares them. Neither takes the socket's lock.
    pub(crate) fn reuse_port(&mut self, row: u32) -> Option<ReusePort> {
        let backing = self.sockets.companion(row).backing.as_ref()?;
        let is_set = sockopt::socket_reuseport(&**backing).unwrap_or(false);
        let user = rustix::fs::fstat(&**backing).ok()?.st_uid;
        is_set.then_some(ReusePort { user })
    }

    /// Before the SYN of a connection leaves from an address that is shared: its local end is the backing socket's, and
    /// the kernel has no connection with these ends, whoever's. SO_REUSEADDR allows both the same port.
    pub(crate) fn must_be_free(
        &mut self,
        row: u32,
        local: SocketAddr,
        remote: SocketAddr,
    ) -> Result<(), Errno> {
        if self.shared.is_none() || remote.ip().is_loopback() {
            return Ok(());
        }
        self.must_hold(row, local)?;
        let is_taken = self
            .shared
            .as_mut()
            .is_some_and(|shared| shared.kernel_has(local, remote));
        if is_taken {
            // connect(2): as the kernel says where both ends are in use.
            Err(Errno::ADDRNOTAVAIL)
        } else {
            Ok(())
        }
    }
}
