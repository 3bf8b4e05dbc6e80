//! Compression on the way: blocks and small files travel as zstd frames (RFC 8878) where that makes them shorter. Hashes
//! are of the plain bytes, so that nothing else knows of it.
//!
//! What a peer sends as a frame is unpacked into exactly the room that the plain bytes have: a frame that gives more,
//! or less, or is none, is damage like any other. The decoder's own memory is bounded by the window that it accepts.

use std::io::{self, Read};

use zstd::bulk::Compressor;
use zstd::stream::raw::{DParameter, Decoder, InBuffer, Operation, OutBuffer};

use crate::error::Error;
use crate::protocol::Intake;

/// The highest level: those above it take hundreds of megabytes at either end.
pub const LEVEL_MAX: u8 = 19;
/// What a frame may make the decoder remember: 2^23 bytes, which the levels up to [`LEVEL_MAX`] keep to.
const WINDOW_LOG_MAX: u32 = 23;
/// Bytes that are read of a frame at a time.
const INPUT_BYTES: usize = 64 * 1024;
/// A frame has to save this part of the plain bytes.
const SAVED_PART: usize = 16;

pub struct Packer {
    compressor: Compressor<'static>,
    frame: Vec<u8>,
}

impl Packer {
    /// Of a level from 1 to [`LEVEL_MAX`].
    pub fn new(level: u8) -> io::Result<Self> {
        Ok(Self {
            compressor: Compressor::new(i32::from(level.clamp(1, LEVEL_MAX)))?,
            frame: Vec::new(),
        })
    }

    /// The frame of some bytes; `None`: they are as short as they are.
    pub fn pack(&mut self, bytes: &[u8]) -> Option<&[u8]> {
        let most = bytes.len() - bytes.len() / SAVED_PART;
        self.frame.resize(self.frame.len().max(most), 0);
        let frame = &mut self.frame[..most];
        let len = self.compressor.compress_to_buffer(bytes, frame).ok()?;
        (len < bytes.len()).then(|| &self.frame[..len])
    }
}

/// Takes frames apart.
pub struct Unpacker {
    decoder: Decoder<'static>,
    input: Vec<u8>,
    start: usize,
    end: usize,
    /// Bytes of the frame that were not read.
    left: usize,
    has_ended: bool,
    is_damaged: bool,
}

impl Unpacker {
    /// Of no frame yet.
    pub fn new() -> io::Result<Self> {
        let mut decoder = Decoder::new()?;
        decoder.set_parameter(DParameter::WindowLogMax(WINDOW_LOG_MAX))?;
        Ok(Self {
            decoder,
            input: vec![0; INPUT_BYTES],
            start: 0,
            end: 0,
            left: 0,
            has_ended: false,
            is_damaged: false,
        })
    }

    /// A frame of so many bytes comes.
    pub fn begin(&mut self, frame_bytes: u32) {
        self.is_damaged = self.decoder.reinit().is_err();
        self.left = usize::try_from(frame_bytes).unwrap_or(usize::MAX);
        (self.start, self.end) = (0, 0);
        self.has_ended = false;
    }

    /// The next plain bytes; after damage whatever was there.
    pub fn fill<R: Read>(
        &mut self,
        from: &mut Intake<R>,
        mut bytes: &mut [u8],
    ) -> Result<(), Error> {
        while !bytes.is_empty() && !self.is_damaged {
            self.refill(from)?;
            let count = self.step(bytes);
            bytes = &mut bytes[count..];
        }
        Ok(())
    }

    /// The frame's end; whether it gave exactly what was taken.
    pub fn end<R: Read>(&mut self, from: &mut Intake<R>) -> Result<bool, Error> {
        while !self.has_ended && !self.is_damaged {
            self.refill(from)?;
            self.step(&mut []);
        }
        self.is_damaged |= self.start < self.end || self.left > 0;
        while self.left > 0 {
            (self.start, self.end) = (0, 0);
            self.refill(from)?;
        }
        Ok(!self.is_damaged)
    }

    fn refill<R: Read>(&mut self, from: &mut Intake<R>) -> Result<(), Error> {
        if self.start == self.end && self.left > 0 {
            let count = self.left.min(INPUT_BYTES);
            from.exact(&mut self.input[..count])?;
            self.left -= count;
            (self.start, self.end) = (0, count);
        }
        Ok(())
    }

    /// Turns some of what was read into plain bytes; how many. Neither taken nor given is damage.
    fn step(&mut self, bytes: &mut [u8]) -> usize {
        if self.has_ended {
            self.is_damaged = true;
            return 0;
        }
        let mut input = InBuffer::around(&self.input[self.start..self.end]);
        let mut output = OutBuffer::around(bytes);
        let rest = self.decoder.run(&mut input, &mut output);
        let (taken, given) = (input.pos(), output.pos());
        self.start += taken;
        self.has_ended = matches!(rest, Ok(0));
        self.is_damaged = rest.is_err() || (taken == 0 && given == 0 && !self.has_ended);
        given
    }
}

impl std::fmt::Debug for Packer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Packer").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Unpacker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Unpacker").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use zstd::zstd_safe::CParameter;

    fn text(len: usize) -> Vec<u8> {
        (0..len).map(|at| (at / 300).to_le_bytes()[0]).collect()
    }

    /// Unpacks a frame into so much room, in pieces; the plain bytes, and what comes after the frame.
    fn unpacked(frame: &[u8], len: usize) -> Option<Vec<u8>> {
        let after = b"after";
        let mut intake = Intake::new(frame.chain(&after[..]));
        let mut unpacker = Unpacker::new().unwrap();
        unpacker.begin(u32::try_from(frame.len()).unwrap());
        let mut plain = vec![0; len];
        for piece in plain.chunks_mut(1_000) {
            unpacker.fill(&mut intake, piece).unwrap();
        }
        let is_whole = unpacker.end(&mut intake).unwrap();
        let mut rest = [0; 5];
        intake.exact(&mut rest).unwrap();
        assert_eq!(&rest, after, "a frame, whole or not, is taken to its end");
        is_whole.then_some(plain)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn a_frame_gives_back_what_was_packed_and_nothing_else(len in 600..300_000_usize, level in 1..5_u8) {
            let plain = text(len);
            let mut packer = Packer::new(level).unwrap();
            let frame = packer.pack(&plain).unwrap().to_vec();
            prop_assert!(frame.len() < len);
            prop_assert_eq!(unpacked(&frame, len), Some(plain));
            prop_assert_eq!(unpacked(&frame, len - 1), None);
            prop_assert_eq!(unpacked(&frame, len + 1), None);
            prop_assert_eq!(unpacked(&frame[..frame.len() - 1], len), None);
            prop_assert_eq!(unpacked(&[&frame[..], b"x"].concat(), len), None);
        }

        #[test]
        fn any_bytes_are_a_frame_or_damage(bytes in proptest::collection::vec(any::<u8>(), 1..400), at in 0..60_usize) {
            unpacked(&bytes, 5_000);
            let plain = text(5_000);
            let mut frame = Packer::new(3).unwrap().pack(&plain).unwrap().to_vec();
            let at = at % frame.len();
            frame[at] ^= 0x10;
            // Whether what comes out is what was packed is for the hash to say.
            unpacked(&frame, 5_000);
        }
    }

    #[test]
    fn what_does_not_get_shorter_travels_plain() {
        let mut state = 1_u64;
        let noise: Vec<u8> = std::iter::repeat_with(|| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()[0]
        })
        .take(100_000)
        .collect();
        let mut packer = Packer::new(3).unwrap();
        assert!(packer.pack(&noise).is_none());
        assert!(packer.pack(b"").is_none());
        assert!(
            packer.pack(&text(100_000)).is_some(),
            "and the next one is tried"
        );
    }

    #[test]
    fn a_bomb_gives_no_more_than_there_is_room_for_and_one_that_remembers_too_much_is_refused() {
        let plain = vec![0; 64 << 20];
        let mut packer = Packer::new(LEVEL_MAX).unwrap();
        let frame = packer.pack(&plain).unwrap().to_vec();
        assert!(frame.len() < plain.len() / 1_000);
        assert_eq!(unpacked(&frame, 1 << 20), None);
        let mut greedy = Compressor::new(3).unwrap();
        for parameter in [
            CParameter::WindowLog(WINDOW_LOG_MAX + 2),
            CParameter::ContentSizeFlag(false),
        ] {
            greedy.set_parameter(parameter).unwrap();
        }
        let frame = greedy.compress(&plain).unwrap();
        assert_eq!(unpacked(&frame, plain.len()), None);
    }
}
