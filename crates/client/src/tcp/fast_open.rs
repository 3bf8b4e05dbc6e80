//! TCP Fast Open (RFC 7413): a connect that waits for the program's first bytes, and takes them along.
//!
//! How many they may be is known to the process that connected; for others that hold the socket it connects
//! like any other.

use core::net::SocketAddr;
use core::sync::atomic::Ordering;

use hostif::{FastOpenKeys, Op};
use rustix::io::Errno;

use crate::tcp::socket::TcpSocket;

impl TcpSocket {
    /// As `connect`, with Fast Open. Returns how many bytes the first sending call can give to the SYN, which
    /// waits for them; 0: it waits for nothing, and nothing can be sent before the connection stands. Without `has_data`
    /// it is 0, and a cookie is asked for if there is none.
    /// EOPNOTSUPP: the engine has it switched off.
    pub fn connect_fast(
        &self,
        remote: SocketAddr,
        local: Option<SocketAddr>,
        has_data: bool,
    ) -> Result<usize, Errno> {
        let local = match local {
            Some(local) => Some(self.session().placed(local, remote)?),
            None => None,
        };
        self.header().program_forget_error();
        let op = if has_data {
            Op::ConnectFast { remote, local }
        } else {
            Op::ConnectForCookie { remote, local }
        };
        let room = self.call(op)?;
        let room = u32::try_from(room).map_err(|_| Errno::PROTO)?;
        self.syn_capacity.store(room, Ordering::Release);
        Ok(self.syn_capacity())
    }

    /// Bytes that the SYN waits for; 0: it does not wait.
    #[must_use]
    pub fn syn_capacity(&self) -> usize {
        usize::try_from(self.syn_capacity.load(Ordering::Acquire)).unwrap_or(usize::MAX)
    }

    /// Something was written: the SYN leaves.
    pub(crate) fn end_waiting_of_syn(&self) {
        self.syn_capacity.store(0, Ordering::Release);
    }

    /// TCP_FASTOPEN_KEY: the keys of a listener's cookies.
    pub fn set_fast_open_keys(&self, keys: FastOpenKeys) -> Result<(), Errno> {
        for part in self.parts() {
            part.session().post(part.id(), Op::SetFastOpenKeys(keys))?;
        }
        Ok(())
    }
}
