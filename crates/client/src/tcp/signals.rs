//! Signals for events of a socket (fcntl(2), F_SETOWN and what belongs to it). The engine lends a descriptor for each of
//! a socket's parts; what the program sets there says who hears what, and the kernel sends it.

use hostif::control::{Reply, Request};
use hostif::header::AWAITS_DATA;
use rustix::io::Errno;

use crate::private::PrivateFd;
use crate::tcp::socket::TcpSocket;

/// While it lives nobody is signalled of data: a thread waits for it.
pub struct AwaitsData<'a>(&'a TcpSocket);

impl Drop for AwaitsData<'_> {
    fn drop(&mut self) {
        self.0.mark(AWAITS_DATA, false);
    }
}

impl TcpSocket {
    /// The descriptors on which is set who is signalled of the socket's events; those of a listener are several.
    pub fn signal_ends(&self) -> Result<Vec<PrivateFd>, Errno> {
        let end_of = |part: &TcpSocket| {
            let request = Request::Signals { socket: part.id() };
            let answer = part.session().request(part.id().core(), &request, &[]);
            match answer? {
                (Reply::Signals, descriptors) => {
                    let end = descriptors.into_iter().next().ok_or(Errno::PROTO)?;
                    Ok(PrivateFd::new(end))
                }
                _ => Err(Errno::PROTO),
            }
        };
        self.parts().map(end_of).collect()
    }

    /// A thread is about to wait for data of a socket that signals are sent for.
    #[must_use]
    pub fn awaits_data(&self) -> AwaitsData<'_> {
        self.mark(AWAITS_DATA, true);
        AwaitsData(self)
    }

    /// What comes next is to be signalled of, however it comes. Before the look at what is there.
    pub fn expect_signal(&self) {
        self.await_byte_channel();
    }
}

/// The calling thread's signals are held back as long as this lives.
#[derive(Debug)]
pub struct Undisturbed(u64);

impl Undisturbed {
    /// From now on.
    #[must_use]
    pub fn begin() -> Undisturbed {
        Undisturbed(crate::sys::block_signals())
    }
}

impl Drop for Undisturbed {
    fn drop(&mut self) {
        crate::sys::restore_signals(self.0);
    }
}
