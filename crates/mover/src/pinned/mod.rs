//! Sending from memory of this program without a copy: MSG_ZEROCOPY, or SEND_ZC of io_uring from registered buffers.
//! Read the kernel's Documentation/networking/msg_zerocopy.rst first.
//!
//! The kernel reads a buffer until it says that it is done with it; until then it is not filled again. Where
//! packets stay on this host (loopback, veth) the kernel copies after all, and says that too: then this costs more than
//! to write.

mod sys;

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use crate::sys::{Memory, retried};
use sys::Completed;

/// Buffers of a thread.
const BUFFERS: u16 = 16;
/// Bytes of each.
pub const BUFFER_BYTES: usize = 256 * 1024;
/// How long notices may be missing when the peer has acknowledged everything: a socket that is not the kernel's may take
/// the flag and never say anything.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long a look takes.
const LOOK_MS: i32 = 50;
/// Calls whose notices are awaited; each takes memory of the kernel (optmem_max), which bounds them earlier.
const CALLS_MAX: usize = 4_096;

/// By which calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PinnedCalls {
    /// send(2) with MSG_ZEROCOPY.
    Message,
    /// io_uring.
    Ring,
}

#[derive(Debug)]
enum Calls {
    /// Numbers of calls, with their buffers.
    Message(u32, VecDeque<(u32, usize)>),
    Ring(Box<sys::Ring>),
}

/// The buffers of one connection, and what the kernel still reads of them.
#[derive(Debug)]
pub struct Pinned {
    // Dropped first, so that nothing is begun any more. What is under way holds the pages by itself.
    calls: Calls,
    memory: Memory,
    /// Uses of each buffer that the kernel has not ended.
    uses: Vec<u32>,
    is_copied: bool,
    has_sent: bool,
}

impl Pinned {
    /// For one connection; an error: it cannot be had here.
    pub fn new(way: PinnedCalls, socket: BorrowedFd<'_>) -> io::Result<Self> {
        let mut memory = Memory::new(usize::from(BUFFERS) * BUFFER_BYTES)?;
        // Asked of both: a socket that refuses this is none that a ring could send on.
        sys::enable(socket)?;
        let calls = match way {
            PinnedCalls::Message => Calls::Message(0, VecDeque::new()),
            PinnedCalls::Ring => Calls::Ring(Box::new(sys::Ring::new(
                &mut memory,
                BUFFERS,
                BUFFER_BYTES,
            )?)),
        };
        Ok(Self {
            calls,
            memory,
            uses: vec![0; usize::from(BUFFERS)],
            is_copied: false,
            has_sent: false,
        })
    }

    /// Whether the kernel had to copy something, and so all of this is for nothing.
    pub fn is_copied(&self) -> bool {
        self.is_copied
    }

    /// Whether any byte has left.
    pub fn has_sent(&self) -> bool {
        self.has_sent
    }

    /// What was sent from a buffer, to be looked at once more before it is filled again.
    pub fn sent_bytes(&mut self, buffer: usize, len: usize) -> &[u8] {
        &self.memory.bytes()[buffer * BUFFER_BYTES..][..len]
    }

    /// A buffer that the kernel does not read, waiting for one if need be.
    pub fn buffer(&mut self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        let mut silent_since = None;
        loop {
            while self.take_notice(socket, false)? {}
            if let Some(free) = self.uses.iter().position(|uses| *uses == 0) {
                return Ok(free);
            }
            self.wait(socket, &mut silent_since)?;
        }
    }

    /// Its bytes.
    pub fn bytes(&mut self, buffer: usize) -> &mut [u8] {
        assert_eq!(
            self.uses[buffer], 0,
            "invariant: only free buffers are filled"
        );
        &mut self.memory.bytes()[buffer * BUFFER_BYTES..][..BUFFER_BYTES]
    }

    /// Sends the first `len` bytes of a buffer; how many left.
    pub fn send(&mut self, socket: BorrowedFd<'_>, buffer: usize, len: usize) -> io::Result<()> {
        let mut done = 0;
        while done < len {
            done += retried(|| self.send_some(socket, buffer, done, len - done))?;
            self.has_sent = true;
        }
        Ok(())
    }

    fn send_some(
        &mut self,
        socket: BorrowedFd<'_>,
        buffer: usize,
        from: usize,
        len: usize,
    ) -> io::Result<usize> {
        let start = buffer * BUFFER_BYTES + from;
        let bytes = &self.memory.bytes()[start..start + len];
        match &mut self.calls {
            Calls::Message(number, calls) => {
                let sent = sys::send(socket, bytes)?;
                calls.push_back((*number, buffer));
                *number = number.wrapping_add(1);
                self.uses[buffer] += 1;
                let mut silent_since = None;
                while self.awaited() >= CALLS_MAX {
                    self.wait(socket, &mut silent_since)?;
                }
                Ok(sent)
            }
            Calls::Ring(ring) => {
                ring.send(socket, buffer, bytes)?;
                self.uses[buffer] += 1;
                self.await_sent(buffer)
            }
        }
    }

    /// Calls of which no notice came.
    fn awaited(&self) -> usize {
        match &self.calls {
            Calls::Message(_, calls) => calls.len(),
            Calls::Ring(_) => 0,
        }
    }

    /// Waits until a ring's send has ended, so that what is written next comes after it.
    fn await_sent(&mut self, buffer: usize) -> io::Result<usize> {
        loop {
            let Calls::Ring(ring) = &mut self.calls else {
                return Err(io::ErrorKind::Unsupported.into());
            };
            match ring.completed(true)? {
                Some(Completed::Sent(result, is_read)) => {
                    if !is_read {
                        self.end_use(buffer);
                    }
                    return match result {
                        Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
                        result => result,
                    };
                }
                Some(Completed::Free(buffer, is_copied)) => {
                    self.is_copied |= is_copied;
                    self.end_use(buffer);
                }
                None => {}
            }
        }
    }

    fn end_use(&mut self, buffer: usize) {
        if let Some(uses) = self.uses.get_mut(buffer) {
            *uses = uses.saturating_sub(1);
        }
    }

    /// Takes one notice; `false`: there was none.
    fn take_notice(&mut self, socket: BorrowedFd<'_>, wait: bool) -> io::Result<bool> {
        match &mut self.calls {
            Calls::Message(_, calls) => {
                let Some(notice) = sys::notice(socket)? else {
                    return Ok(false);
                };
                self.is_copied |= notice.is_copied;
                // Numbers wrap; those of a notice lie close together.
                let span = notice.last.wrapping_sub(notice.first);
                let mut ended = Vec::new();
                calls.retain(|(number, buffer)| {
                    let is_of_it = number.wrapping_sub(notice.first) <= span;
                    if is_of_it {
                        ended.push(*buffer);
                    }
                    !is_of_it
                });
                for buffer in ended {
                    self.end_use(buffer);
                }
                Ok(true)
            }
            Calls::Ring(ring) => match ring.completed(wait)? {
                Some(Completed::Free(buffer, is_copied)) => {
                    self.is_copied |= is_copied;
                    self.end_use(buffer);
                    Ok(true)
                }
                Some(Completed::Sent(..)) => Err(io::ErrorKind::InvalidData.into()),
                None => Ok(false),
            },
        }
    }

    /// Waits for a notice. The peer may take its time to acknowledge; that nothing comes although it has is an error.
    fn wait(
        &mut self,
        socket: BorrowedFd<'_>,
        silent_since: &mut Option<Instant>,
    ) -> io::Result<()> {
        if let Calls::Ring(_) = self.calls {
            return self.take_notice(socket, true).map(drop);
        }
        sys::await_notice(socket, LOOK_MS);
        if self.take_notice(socket, false)? || sys::unacknowledged(socket) != Some(0) {
            *silent_since = None;
            return Ok(());
        }
        let since = silent_since.get_or_insert_with(Instant::now);
        if since.elapsed() >= PATIENCE {
            return Err(io::ErrorKind::Unsupported.into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;
    use std::thread;

    /// Sends more than there are buffers, each byte another one than when its buffer was used before.
    fn sent_over_loopback(way: PinnedCalls) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let from = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut pinned = match Pinned::new(way, from.as_fd()) {
            Ok(pinned) => pinned,
            Err(error) => {
                eprintln!("skipped: {way:?}: {error}");
                return;
            }
        };
        let receiving = thread::spawn(move || {
            let mut bytes = Vec::new();
            let (mut to, _) = listener.accept().unwrap();
            to.read_to_end(&mut bytes).unwrap();
            bytes
        });
        let rounds = 3 * u32::from(BUFFERS) + 5;
        for round in 0..rounds {
            let buffer = pinned.buffer(from.as_fd()).unwrap();
            let len = BUFFER_BYTES - usize::try_from(round).unwrap();
            pinned.bytes(buffer)[..len].fill(round.to_le_bytes()[0]);
            pinned.send(from.as_fd(), buffer, len).unwrap();
        }
        from.shutdown(std::net::Shutdown::Write).unwrap();
        let received = receiving.join().unwrap();
        let mut rest = &received[..];
        for round in 0..rounds {
            let (this, then) = rest.split_at(BUFFER_BYTES - usize::try_from(round).unwrap());
            assert!(
                this.iter().all(|byte| *byte == round.to_le_bytes()[0]),
                "{round}"
            );
            rest = then;
        }
        assert!(rest.is_empty());
        assert!(pinned.is_copied(), "loopback hands copies to its receivers");
    }

    #[test]
    fn messages_arrive_whole_and_buffers_come_back() {
        sent_over_loopback(PinnedCalls::Message);
    }

    #[test]
    fn a_ring_sends_the_same() {
        sent_over_loopback(PinnedCalls::Ring);
    }

    #[test]
    fn what_is_no_tcp_socket_is_refused() {
        let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        for way in [PinnedCalls::Message, PinnedCalls::Ring] {
            assert!(Pinned::new(way, one.as_fd()).is_err());
        }
    }
}
