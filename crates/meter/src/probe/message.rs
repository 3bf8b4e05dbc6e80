//! The bytes of a probe: 8 of a number that names the run, 8 of the probe's sequence number, both in network order, then
//! a pattern. A message of a stream may be shorter than these 16 bytes: streams keep the order.

/// Bytes of a header, and of the shortest message that has one.
pub const HEADER_BYTES: usize = 16;

/// The message of a run; only its sequence number changes.
#[derive(Debug, Clone)]
pub struct Message {
    run: [u8; 8],
    bytes: Vec<u8>,
}

/// What bytes that came are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Check {
    /// This probe, byte by byte.
    Whole(u64),
    /// Of this run, but changed, cut or lengthened.
    Changed,
    /// Of no probe of this run.
    Foreign,
}

impl Message {
    /// A message of this size; `run` tells this run's messages from all others.
    pub fn new(run: u64, bytes: usize) -> Self {
        let pattern = (0..bytes).map(|index| u8::try_from(index % 251).unwrap_or(0));
        Self {
            run: run.to_be_bytes(),
            bytes: pattern.collect(),
        }
    }

    /// The bytes of a probe.
    pub fn of(&mut self, sequence: u64) -> &[u8] {
        if let Some(header) = self.bytes.first_chunk_mut::<HEADER_BYTES>() {
            header[..8].copy_from_slice(&self.run);
            header[8..].copy_from_slice(&sequence.to_be_bytes());
        }
        &self.bytes
    }

    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Looks at a datagram that came; `padded` allows for bytes of Ethernet's padding behind it.
    pub fn check(&self, came: &[u8], padded: bool) -> Check {
        let Some(sequence) = self.sequence(came) else {
            return Check::Foreign;
        };
        let is_whole = came.get(HEADER_BYTES..self.bytes.len()) == self.bytes.get(HEADER_BYTES..);
        if is_whole && (padded || came.len() == self.bytes.len()) {
            Check::Whole(sequence)
        } else {
            Check::Changed
        }
    }

    /// The sequence number at the start of a message of this run, of which no more may have come.
    pub fn sequence(&self, came: &[u8]) -> Option<u64> {
        let header = came.first_chunk::<HEADER_BYTES>()?;
        let (run, sequence) = header.split_first_chunk::<8>()?;
        let sequence = sequence.first_chunk::<8>()?;
        (*run == self.run).then(|| u64::from_be_bytes(*sequence))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_comes_back_is_known_again() {
        for bytes in [16, 17, 64, 1472] {
            let mut message = Message::new(7, bytes);
            let sent = message.of(300).to_vec();
            assert_eq!(message.check(&sent, false), Check::Whole(300));
            assert_eq!(message.sequence(&sent[..16]), Some(300));
        }
    }

    #[test]
    fn what_was_changed_cut_lengthened_or_is_of_another_run_is_told() {
        let mut message = Message::new(7, 64);
        let mut came = message.of(1).to_vec();
        assert_eq!(message.check(&came[..60], false), Check::Changed);
        came.push(0);
        assert_eq!(message.check(&came, false), Check::Changed);
        assert_eq!(message.check(&came, true), Check::Whole(1));
        came[40] ^= 1;
        assert_eq!(message.check(&came, true), Check::Changed);
        came[0] ^= 1;
        assert_eq!(message.check(&came, true), Check::Foreign);
        assert_eq!(message.check(&[], false), Check::Foreign);
    }
}
