//! What a thread that waits for a TCP socket has to know of it.

use hostif::SocketId;

use crate::engines::session::Session;
use crate::tcp::socket::TcpSocket;
use crate::wait::Awaited;

impl Awaited for TcpSocket {
    fn visit_parts(&self, visit: &mut dyn FnMut(&Session, SocketId)) {
        self.parts()
            .for_each(|part| visit(part.session(), part.id()));
    }

    fn hears_past_engine(&self) -> bool {
        self.meet_byte_channels().is_some()
    }

    fn before_sleep(&self) {
        self.await_byte_channel();
    }
}
