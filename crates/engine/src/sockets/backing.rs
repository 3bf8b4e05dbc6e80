//! What the kernel holds for a program's socket: the backing socket's name, which only the kernel can have given it, and the
//! options that it keeps (ipv6(7), socket(7)). A program says which local end it wants, and is not believed: another
//! program, perhaps another user's, may have it.

use super::Sockets;
use core::net::{IpAddr, SocketAddr};
use rustix::fd::{AsFd as _, OwnedFd};
use rustix::io::Errno;
use rustix::net::sockopt;
use stack::ReusePort;

impl Sockets {
    /// Address and port that the kernel holds for the backing socket. It decided about privilege, conflicts
    /// and `SO_REUSEADDR`; a program that asks for others here has not asked the kernel. EMFILE: the engine, inside the program, had no
    /// number for a duplicate.
    pub(crate) fn kernel_name(&mut self, row: u32) -> Result<SocketAddr, Errno> {
        let id = self.id(row).ok_or(Errno::BADF)?;
        let asked = self.asked_name.filter(|(socket, _)| *socket == id);
        let name = match asked {
            Some((_, name)) => name,
            None => {
                let backing = self.companion(row).backing.as_ref();
                let backing = backing.ok_or(Errno::MFILE)?;
                if !backing.user().is_asked_here() {
                    return Err(Errno::ACCESS);
                }
                name_of(backing)
            }
        };
        name.and_then(|name| (name.port() != 0).then_some(name).ok_or(Errno::ACCESS))
    }

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

    /// Where addresses are shared with the kernel the backing socket listens before the engine does: as long as it only
    /// has the port, SO_REUSEADDR lets somebody else listen there.
    pub(crate) fn must_listen(&mut self, row: u32) -> Result<(), Errno> {
        let backing = self.companion(row).backing.as_ref();
        if sockopt::socket_acceptconn(&**backing.ok_or(Errno::BADF)?)? {
            Ok(())
        } else {
            Err(Errno::ACCESS)
        }
    }

    /// With whom the listener that is about to be may share its end: `SO_REUSEPORT`, which the backing socket keeps, and the
    /// user to whom that belongs, as Linux compares them. Neither takes the socket's lock.
    pub(crate) fn reuse_port(&mut self, row: u32) -> Option<ReusePort> {
        let backing = self.companion(row).backing.as_ref()?;
        let is_set = sockopt::socket_reuseport(&**backing).unwrap_or(false);
        let user = rustix::fs::fstat(&**backing).ok()?.st_uid;
        is_set.then_some(ReusePort { user })
    }

    /// `IPV6_V6ONLY`, which the backing socket keeps.
    pub(crate) fn is_v6_only(&mut self, row: u32) -> bool {
        let backing = self.companion(row).backing.as_ref();
        // An IPv4 socket has no such option, and its address says all.
        backing.is_some_and(|backing| sockopt::ipv6_v6only(&**backing).unwrap_or(false))
    }
}

/// What the kernel calls a backing socket. To ask takes the socket's lock, which its program can keep: see `users`.
///
/// # Errors
/// It has no Internet address, or is of another network namespace.
pub fn name_of(socket: &OwnedFd) -> Result<SocketAddr, Errno> {
    // Whoever makes a network namespace holds every port in it.
    if !netlink::is_of_own_network(socket.as_fd()).unwrap_or(false) {
        return Err(Errno::ACCESS);
    }
    let name = rustix::net::getsockname(socket)?;
    SocketAddr::try_from(name).map_err(|_| Errno::ACCESS)
}

/// Whether who holds a port on one address holds it on the other: loopback is everybody's, and whose listener has a port there
/// is for the kernel to say.
pub fn covers(held: IpAddr, address: IpAddr, is_v6_only: bool) -> bool {
    match held.to_canonical() {
        IpAddr::V6(any) if any.is_unspecified() => address.is_ipv6() || !is_v6_only,
        IpAddr::V4(any) if any.is_unspecified() => address.is_ipv4(),
        held => held == address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_on_one_address_is_not_a_port_on_another() {
        let covers = |held: &str, address: &str, is_v6_only| {
            covers(held.parse().unwrap(), address.parse().unwrap(), is_v6_only)
        };
        assert!(covers("127.0.0.1", "127.0.0.1", false));
        assert!(covers("0.0.0.0", "127.0.0.1", false));
        assert!(covers("::", "127.0.0.1", false) && covers("::", "::1", true));
        assert!(covers("::ffff:127.0.0.1", "127.0.0.1", false));
        assert!(!covers("127.0.0.2", "127.0.0.1", false));
        assert!(!covers("127.0.0.2", "0.0.0.0", false));
        assert!(!covers("::", "127.0.0.1", true) && !covers("0.0.0.0", "::1", false));
    }
}
