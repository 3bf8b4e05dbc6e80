//! Options of a socket on the engine, and what can be asked about it.

use client::{Awaited, AwaitsData, PrivateFd, TcpSocket, Told};
use hostif::{CongestionFigures, Figures, OptionChanges, Query, SocketOption};
use rustix::io::Errno;

use super::Stream;

impl Stream {
    /// When the latest data arrived, in nanoseconds since 1970; 0: the engine was not asked to say.
    pub fn arrived_at_ns(&self) -> u64 {
        self.tcp().map_or(0, TcpSocket::arrived_at_ns)
    }

    /// Bytes of the receive window that the peer may fill; 0 while there is none.
    pub fn receive_window_bytes(&self) -> u32 {
        self.tcp().map_or(0, TcpSocket::receive_window_bytes)
    }

    /// Bytes of the send window that the program may fill; 0 while there is none.
    pub fn send_window_bytes(&self) -> u32 {
        self.tcp().map_or(0, TcpSocket::send_window_bytes)
    }

    /// Changes options.
    pub fn set_options(&self, changes: &OptionChanges) {
        // It fails only when the engine is gone, which the next call on data reports.
        let _ = self.first().set_options(changes);
    }

    /// Changes one of the rarer options.
    pub fn set_option(&self, option: SocketOption, value: u64) {
        // As above.
        let _ = self.first().set_option(option, value);
    }

    /// TCP_NOTSENT_LOWAT; 0: none.
    pub fn set_unsent_limit(&self, bytes: u32) {
        // As above.
        let _ = self.tcp().map(|socket| socket.set_unsent_limit(bytes));
    }

    /// SO_OOBINLINE.
    pub fn set_urgent_in_line(&self, on: bool) {
        if let Ok(socket) = self.tcp() {
            socket.set_urgent_in_line(on);
        }
    }

    /// The connection's figures.
    pub fn figures(&self) -> Result<Figures, Errno> {
        self.tcp()?.figures()
    }

    /// Bytes written and not acknowledged, as the engine has it at this moment.
    pub fn unacknowledged_now(&self) -> usize {
        self.tcp().map_or(0, TcpSocket::unacknowledged_now)
    }

    /// What its congestion control believes.
    pub fn congestion_figures(&self) -> Result<CongestionFigures, Errno> {
        self.tcp()?.congestion_figures()
    }

    /// The descriptors on which it is set who gets signals for events (F_SETOWN).
    pub fn signal_ends(&self) -> Result<Vec<PrivateFd>, Errno> {
        let mut ends = Vec::new();
        for part in self.parts() {
            ends.extend(part.signal_ends()?);
        }
        Ok(ends)
    }

    /// Asks for a signal for what comes next, however it comes.
    pub fn expect_signal(&self) {
        self.parts().for_each(Awaited::request_news);
    }

    /// Returns when the signals for all that can be seen of the socket were sent.
    pub fn await_signals(&self) {
        self.parts().for_each(client::Socket::await_signals);
    }

    /// A thread is about to wait for data: no signal is to be sent for it.
    pub fn awaits_data(&self) -> Option<AwaitsData<'_>> {
        self.tcp().ok().map(TcpSocket::awaits_data)
    }

    /// Asks when what was sent last leaves, where the sending call could not say so; see `TcpSocket::try_send_stamped`.
    pub fn stamp_written(&self, stamps: u8) {
        // It fails only when the engine is gone, which the next call on data reports.
        let _ = self.tcp().map(|socket| socket.stamp_written(stamps));
    }

    /// Whether what is sent goes to a neighbour by a byte channel.
    pub fn sends_by_byte_channel(&self) -> bool {
        self.tcp().is_ok_and(TcpSocket::sends_by_byte_channel)
    }

    /// The byte that is called 0 from now on (`sock_set_timestamping`): the next one, or else the first that the peer does
    /// not have.
    pub fn key_base(&self, is_next: bool) -> u64 {
        if is_next || self.sends_by_byte_channel() {
            self.tcp().map_or(0, TcpSocket::sent_end)
        } else {
            self.tcp().map_or(0, TcpSocket::acknowledged_bytes)
        }
    }

    /// How many times of sending wait to be fetched.
    pub fn waiting_stamps(&self) -> u32 {
        self.tcp().map_or(0, TcpSocket::waiting_stamps)
    }

    /// Takes the oldest. EAGAIN: there is none.
    pub fn take_stamp(&self) -> Result<Told, Errno> {
        self.tcp()?.take_stamp()
    }

    /// The headers of the SYN that opened the connection; empty where they were not kept.
    pub fn saved_syn(&self) -> Result<Vec<u8>, Errno> {
        self.tcp()?.query(Query::SavedSyn)
    }
}
