//! Times of sending of a TCP socket (`SO_TIMESTAMPING`): asking for them, and fetching what the engine tells.

use hostif::stamp::{self, Told};
use hostif::{Query, SocketOption};
use rustix::io::Errno;

use crate::socket::Socket;
use crate::tcp::socket::TcpSocket;

impl TcpSocket {
    /// Asks when what was written last leaves, where no note of it could say so.
    ///
    /// # Errors
    /// The engine is gone.
    pub fn stamp_written(&self, stamps: u8) -> Result<(), Errno> {
        self.set_option(SocketOption::Stamp, stamp::pack(self.sent_end(), stamps))
    }

    /// How many bytes the program has sent, by segments or by a byte channel.
    #[must_use]
    pub fn sent_end(&self) -> u64 {
        let header = self.header();
        header.written() + header.byte_channel_written()
    }

    /// Whether what is sent now goes to a local peer by a byte channel.
    #[must_use]
    pub fn sends_by_byte_channel(&self) -> bool {
        self.byte_channel_use().is_some()
    }

    /// How many times wait to be fetched.
    #[must_use]
    pub fn waiting_stamps(&self) -> u32 {
        let header = self.header();
        if header.is_of(self.id()) {
            header.stamps()
        } else {
            0
        }
    }

    /// Takes the oldest.
    ///
    /// # Errors
    /// EAGAIN: there is none; or the engine is gone.
    pub fn take_stamp(&self) -> Result<Told, Errno> {
        if self.waiting_stamps() == 0 {
            return Err(Errno::AGAIN);
        }
        Told::from_bytes(&self.query(Query::Stamp)?).ok_or(Errno::AGAIN)
    }
}
