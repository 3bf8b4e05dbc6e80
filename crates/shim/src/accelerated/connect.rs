//! Connecting a stream; with Fast Open see `fast_open`.

use core::net::SocketAddr;

use rustix::io::Errno;

use super::Stream;

impl Stream {
    /// Starts to connect from a local port that the backing socket holds.
    pub fn connect(&self, local: SocketAddr, remote: SocketAddr) -> Result<(), Errno> {
        self.tcp()?.connect(remote, Some(local))
    }

    /// As `connect` to loopback, if a listener there would hear it; else ECONNREFUSED, and nothing was sent.
    pub fn connect_heard(&self, local: SocketAddr, remote: SocketAddr) -> Result<(), Errno> {
        self.tcp()?.connect_heard(remote, Some(local))
    }
}
