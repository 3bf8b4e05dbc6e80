//! TCP Fast Open in the switch's terms; see `client`'s file of the same name.

use core::net::SocketAddr;

use hostif::FastOpenKeys;
use rustix::io::Errno;

use super::Stream;

impl Stream {
    /// Starts to connect with Fast Open. Whether the SYN waits for the program's first bytes.
    pub fn connect_fast(
        &self,
        local: SocketAddr,
        remote: SocketAddr,
        has_data: bool,
    ) -> Result<bool, Errno> {
        let room = self.tcp()?.connect_fast(remote, Some(local), has_data)?;
        Ok(room > 0)
    }

    /// Whether the SYN waits for the program's first bytes.
    pub fn holds_syn(&self) -> bool {
        self.tcp().is_ok_and(|socket| socket.syn_room() > 0)
    }

    /// Sets the keys of a listener's cookies: one, or two of which the first is for new cookies.
    pub fn set_fast_open_keys(&self, keys: &[u8]) {
        let (keys, rest) = keys.as_chunks::<16>();
        let Some((primary, others)) = keys.split_first().filter(|_| rest.is_empty()) else {
            return;
        };
        let backup = others.first().copied();
        let primary = *primary;
        // It fails only when the engine is gone, which the next call reports.
        let keys = FastOpenKeys { primary, backup };
        let _ = self.tcp().map(|socket| socket.set_fast_open_keys(keys));
    }
}
