//! TCP Fast Open in the switch's terms; see `client`'s file of the same name.

use super::Stream;
use hostif::FastOpenKeys;

impl Stream {
    /// Whether the SYN waits for the program's first bytes.
    pub fn holds_syn(&self) -> bool {
        self.tcp().is_ok_and(|socket| socket.syn_capacity() > 0)
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
