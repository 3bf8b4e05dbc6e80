//! When what a program sent was handed on, left, and was acknowledged (`SO_TIMESTAMPING`). Read first:
//! `Documentation/networking/timestamping.rst` of the kernel. The engine keeps what was asked for and what it can tell; the
//! program fetches it entry by entry ([`crate::Query::Stamp`]), or finds it in the error queue of a datagram socket.

use crate::descriptor::Malformed;

/// When it was handed to the device (`SOF_TIMESTAMPING_TX_SCHED`).
pub const SCHEDULED: u8 = 1;
/// When it left (`SOF_TIMESTAMPING_TX_SOFTWARE`).
pub const SENT: u8 = 1 << 1;
/// When the peer had all bytes up to it (`SOF_TIMESTAMPING_TX_ACK`).
pub const ACKNOWLEDGED: u8 = 1 << 2;
/// With what was sent (without `SOF_TIMESTAMPING_OPT_TSONLY`).
pub const WITH_BYTES: u8 = 1 << 3;
const ALL: u8 = SCHEDULED | SENT | ACKNOWLEDGED | WITH_BYTES;

/// `SCM_TSTAMP_SND`, `SCM_TSTAMP_SCHED` and `SCM_TSTAMP_ACK` of linux/errqueue.h.
pub const TOLD_SENT: u8 = 0;
/// See [`TOLD_SENT`].
pub const TOLD_SCHEDULED: u8 = 1;
/// See [`TOLD_SENT`].
pub const TOLD_ACKNOWLEDGED: u8 = 2;
/// `SO_EE_ORIGIN_TIMESTAMPING`.
pub const ORIGIN: u8 = 4;

/// Bytes of what was sent that fit an answer.
pub const BYTES_MAX: usize = (crate::layout::ANSWER_WORDS - HEAD_WORDS) * 8;
const HEAD_WORDS: usize = 3;

/// Bits that a program wrote.
///
/// # Errors
/// [`Malformed`]: unknown ones.
pub fn decode(word: u64) -> Result<u8, Malformed> {
    let bits = u8::try_from(word).map_err(|_| Malformed)?;
    (bits & !ALL == 0).then_some(bits).ok_or(Malformed)
}

/// The value of [`crate::SocketOption::Stamp`]: what is wanted of the byte before the stream offset `end`.
#[must_use]
pub fn pack(end: u64, stamps: u8) -> u64 {
    end << 8 | u64::from(stamps & ALL)
}

/// Reads it back: the offset, and what is wanted.
#[must_use]
pub fn unpack(value: u64) -> (u64, u8) {
    let [low, ..] = value.to_le_bytes();
    (value >> 8, low & ALL)
}

/// A time of sending.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// [`TOLD_SENT`], [`TOLD_SCHEDULED`] or [`TOLD_ACKNOWLEDGED`].
    pub what: u8,
    /// Nanoseconds since 1970.
    pub at_ns: u64,
    /// Stream offset of the byte.
    pub byte: u64,
    /// Length of what was sent with it, headers included.
    pub len: u32,
    /// As much of that as fits an answer.
    pub bytes: Vec<u8>,
}

impl Told {
    /// As words of an answer.
    #[must_use]
    pub fn to_words(&self) -> Vec<u64> {
        let bytes = &self.bytes[..self.bytes.len().min(BYTES_MAX)];
        let head = u64::from(self.what) | (bytes.len() as u64) << 8 | u64::from(self.len) << 32;
        let mut words = vec![head, self.at_ns, self.byte];
        words.extend(bytes.chunks(8).map(|chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            u64::from_le_bytes(word)
        }));
        words
    }

    /// Reads the bytes of an answer back; `None`: there was none.
    #[must_use]
    pub fn from_bytes(answer: &[u8]) -> Option<Told> {
        let word = |at: usize| answer.get(at..)?.first_chunk().copied();
        let head: [u8; 8] = word(0)?;
        let [what, low, high, _, len @ ..] = head;
        let count = usize::from(u16::from_le_bytes([low, high]));
        Some(Told {
            what,
            at_ns: u64::from_le_bytes(word(8)?),
            byte: u64::from_le_bytes(word(16)?),
            len: u32::from_le_bytes(len),
            bytes: answer.get(HEAD_WORDS * 8..)?.get(..count)?.to_vec(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_back() {
        for count in [0, 1, 8, 13, BYTES_MAX] {
            let told = Told {
                what: TOLD_ACKNOWLEDGED,
                at_ns: 1_700_000_000_000_000_001,
                byte: 1 << 40,
                len: 70_000,
                bytes: (0..count)
                    .map(|at| u8::try_from(at % 251).unwrap())
                    .collect(),
            };
            let words = told.to_words();
            assert!(words.len() <= crate::layout::ANSWER_WORDS);
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            assert_eq!(Told::from_bytes(&bytes), Some(told));
        }
        assert_eq!(Told::from_bytes(&[]), None);
        assert_eq!(Told::from_bytes(&[2, 255, 255, 0, 0, 0, 0, 0]), None);
    }

    #[test]
    fn what_is_wanted_is_checked() {
        assert_eq!(decode(u64::from(ALL)), Ok(ALL));
        assert_eq!(decode(16), Err(Malformed));
        assert_eq!(decode(256), Err(Malformed));
        assert_eq!(unpack(pack(1 << 50, SENT)), (1 << 50, SENT));
        assert_eq!(unpack(u64::MAX), (u64::MAX >> 8, ALL));
    }
}
