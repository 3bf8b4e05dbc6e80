//! Signals for events of a socket (fcntl(2), F_SETOWN): while a thread waits for data no signal is sent for it.

use hostif::header::AWAITS_DATA;

use crate::socket::Socket;
use crate::tcp::socket::TcpSocket;

/// While it lives no signal is sent for data: a thread waits for it.
pub struct AwaitsData<'a>(&'a TcpSocket);

impl Drop for AwaitsData<'_> {
    fn drop(&mut self) {
        self.0.mark(AWAITS_DATA, false);
    }
}

impl TcpSocket {
    /// A thread is about to wait for data of a socket that signals are sent for.
    #[must_use]
    pub fn awaits_data(&self) -> AwaitsData<'_> {
        self.mark(AWAITS_DATA, true);
        AwaitsData(self)
    }
}
