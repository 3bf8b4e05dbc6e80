//! The receiving side of a connection: messages, and bytes of files straight into their buffers.

use std::io::{self, Read};

use super::{MESSAGE_MAX_BYTES, Message};
use crate::error::Error;
use crate::sys::retried;

/// Bytes read at once while messages are awaited.
const BUFFER_BYTES: usize = 64 * 1024;

/// Reads messages and what follows them.
#[derive(Debug)]
pub struct Intake<R> {
    from: R,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

impl<R: Read> Intake<R> {
    /// Of a connection from which nothing was read.
    pub fn new(from: R) -> Self {
        Self {
            from,
            buffer: vec![0; BUFFER_BYTES],
            start: 0,
            end: 0,
        }
    }

    /// The same, which takes no byte beyond what it was asked for: somebody else goes on with the connection.
    pub fn exactly(from: R) -> Self {
        Self {
            from,
            buffer: Vec::new(),
            start: 0,
            end: 0,
        }
    }

    pub fn get(&self) -> &R {
        &self.from
    }

    /// Whether the next message would have to be waited for.
    pub fn is_drained(&self) -> bool {
        self.start == self.end
    }

    /// Bytes that were read along with a message.
    pub fn held(&self) -> usize {
        self.end - self.start
    }

    /// Fills `bytes` from the connection, of which nothing is held here, and takes none beyond them.
    pub fn straight(&mut self, mut bytes: &mut [u8]) -> Result<(), Error> {
        assert!(self.is_drained(), "invariant: what came first goes first");
        while !bytes.is_empty() {
            let count = retried(|| self.from.read(bytes))
                .map_err(Error::lost("receiving from the peer"))?;
            bytes = &mut bytes[count..];
        }
        Ok(())
    }

    /// The next message.
    pub fn message(&mut self) -> Result<Message, Error> {
        let mut len = [0; 4];
        self.exact(&mut len)?;
        let len = usize::try_from(u32::from_le_bytes(len)).unwrap_or(usize::MAX);
        if len > MESSAGE_MAX_BYTES {
            return Err(Error::Protocol("a message is too long"));
        }
        let mut body = vec![0; len];
        self.exact(&mut body)?;
        postcard::from_bytes(&body).map_err(|_| Error::Protocol("a message makes no sense"))
    }

    /// Fills `bytes`.
    pub fn exact(&mut self, mut bytes: &mut [u8]) -> Result<(), Error> {
        while !bytes.is_empty() {
            let count = self
                .some(bytes)
                .map_err(Error::lost("receiving from the peer"))?;
            bytes = &mut bytes[count..];
        }
        Ok(())
    }

    fn some(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        // What is long goes past the buffer.
        if self.start == self.end && bytes.len() >= self.buffer.len() {
            return retried(|| self.from.read(bytes));
        }
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
            self.end = retried(|| self.from.read(&mut self.buffer))?;
        }
        let count = bytes.len().min(self.end - self.start);
        bytes[..count].copy_from_slice(&self.buffer[self.start..self.start + count]);
        self.start += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::encode;
    use proptest::prelude::*;

    /// Gives its bytes in pieces of these sizes, with an interruption before each.
    struct Pieces(Vec<u8>, Vec<usize>, bool);

    impl Read for Pieces {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            self.2 = !self.2;
            if self.2 {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let size = self.1.pop().unwrap_or(1).max(1);
            let count = size.min(into.len()).min(self.0.len());
            into[..count].copy_from_slice(&self.0[..count]);
            self.0.drain(..count);
            Ok(count)
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn messages_and_bytes_come_whole_however_they_are_cut(
            sizes in proptest::collection::vec(1..5_000_usize, 0..200),
            lens in proptest::collection::vec(0..150_000_usize, 1..4),
        ) {
            let mut sent = Vec::new();
            for (index, len) in lens.iter().enumerate() {
                sent.extend(encode(&Message::Again(index as u64, *len as u64)));
                sent.extend((0..*len).map(|at| (at * 7).to_le_bytes()[0]));
            }
            let mut intake = Intake::new(Pieces(sent, sizes, false));
            for (index, len) in lens.iter().enumerate() {
                prop_assert_eq!(intake.message().unwrap(), Message::Again(index as u64, *len as u64));
                let mut bytes = vec![0; *len];
                intake.exact(&mut bytes).unwrap();
                prop_assert!(bytes.iter().enumerate().all(|(at, byte)| *byte == (at * 7).to_le_bytes()[0]));
            }
            let is_over = matches!(intake.message(), Err(Error::Network { .. }));
            prop_assert!(is_over);
        }

        #[test]
        fn any_bytes_are_a_message_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut intake = Intake::new(&bytes[..]);
            while intake.message().is_ok() {}
        }
    }

    #[test]
    fn what_follows_a_greeting_is_left_to_whoever_goes_on() {
        let sent = [encode(&Message::Welcome), vec![7; 5]].concat();
        let mut rest = &sent[..];
        let mut intake = Intake::exactly(&mut rest);
        assert_eq!(intake.message().unwrap(), Message::Welcome);
        assert_eq!(rest, [7; 5]);
    }

    #[test]
    fn a_message_that_claims_gigabytes_is_refused_before_memory_is_taken() {
        let mut intake = Intake::new(&[0xff; 64][..]);
        assert!(matches!(intake.message(), Err(Error::Protocol(_))));
    }
}
