//! What is sent, as a function of stream and offset, so that nothing needs to be kept; and what has
//! arrived, checked against it byte by byte.

use super::random::mix;

/// Fills `bytes` with what stands at `offset` of stream `stream`.
pub fn fill(stream: u64, offset: u64, bytes: &mut [u8]) {
    for (at, byte) in (offset..).zip(bytes) {
        let word = mix(mix(stream) ^ (at >> 3)).to_le_bytes();
        *byte = word[usize::try_from(at & 7).expect("invariant: below eight")];
    }
}

/// The bytes of one direction that have arrived, in order or not.
#[derive(Debug)]
pub struct Received {
    stream: u64,
    /// One bit for each byte.
    there: Vec<u64>,
    /// How many bytes the stream has.
    length: u64,
    scratch: Vec<u8>,
}

impl Received {
    /// Nothing yet of a stream of `length` bytes.
    pub fn new(stream: u64, length: u64) -> Self {
        let words = usize::try_from(length.div_ceil(64)).expect("invariant: a test's stream fits");
        Self {
            stream,
            there: vec![0; words],
            length,
            scratch: Vec::new(),
        }
    }

    /// Takes what was delivered at `offset`. What lies beyond the end of the stream may be held, since
    /// nobody knows the end before it has come, but must never be called readable.
    ///
    /// # Errors
    /// It is not what was sent there.
    pub fn place(&mut self, offset: u64, data: &[u8]) -> Result<(), String> {
        let within = self.length.saturating_sub(offset).min(data.len() as u64);
        let end = offset + within;
        let data = &data[..usize::try_from(within).expect("invariant: no more than there is")];
        self.scratch.resize(data.len(), 0);
        fill(self.stream, offset, &mut self.scratch);
        if let Some(at) = self
            .scratch
            .iter()
            .zip(data)
            .position(|(sent, got)| sent != got)
        {
            return Err(format!("byte {} is not the one sent", offset + at as u64));
        }
        for byte in offset..end {
            self.there[index(byte)] |= 1 << (byte % 64);
        }
        Ok(())
    }

    /// Checks that every byte of `start..end`, which the stack calls readable, was delivered.
    ///
    /// # Errors
    /// One was not.
    pub fn check_readable(&self, start: u64, end: u64) -> Result<(), String> {
        let missing = |byte: &u64| {
            self.there
                .get(index(*byte))
                .is_none_or(|word| word >> (byte % 64) & 1 == 0)
        };
        match (start..end).find(missing) {
            Some(byte) => Err(format!("byte {byte} is called readable and never came")),
            None => Ok(()),
        }
    }
}

fn index(byte: u64) -> usize {
    usize::try_from(byte / 64).expect("invariant: a test's stream fits")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_byte_and_a_missing_byte_are_found() {
        let mut received = Received::new(7, 100);
        let mut data = [0; 20];
        fill(7, 10, &mut data);
        received.place(10, &data).unwrap();
        received.check_readable(10, 30).unwrap();
        assert!(received.check_readable(9, 30).is_err());
        assert!(received.check_readable(10, 31).is_err());
        data[3] ^= 1;
        assert!(received.place(10, &data).unwrap_err().contains("byte 13"));
        // The stream ends at 100.
        fill(7, 90, &mut data);
        received.place(90, &data).unwrap();
        received.check_readable(90, 100).unwrap();
        assert!(received.check_readable(90, 101).is_err());
    }
}
