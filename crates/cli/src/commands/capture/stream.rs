//! The frames of one core, out of the stream that it sends. Read first: `hostif::control`'s captures.

use std::io;

use hostif::control::{CaptureRecord, RECORD_BYTES};
use netem::pcap::Direction;
use rustix::{
    fd::{AsFd as _, BorrowedFd, OwnedFd},
    io::Errno,
};

/// Bytes read at once.
const PIECE_BYTES: usize = 1024 * 1024;

/// What one core sends.
#[derive(Debug)]
pub struct Stream {
    /// Number of its engine.
    interface: u32,
    /// `None`: the engine has ended.
    stream: Option<OwnedFd>,
    /// Keeps the engine's session alive.
    _session: OwnedFd,
    /// Read, and no whole frame yet.
    rest: Vec<u8>,
    dropped_frames: u64,
}

/// A frame, as far as it was captured.
#[derive(Debug)]
pub struct Frame<'a> {
    /// Which way it went, seen from the engine.
    pub direction: Direction,
    /// In nanoseconds since 1970.
    pub time_ns: u64,
    /// Its first bytes.
    pub bytes: &'a [u8],
    /// How many it had.
    pub frame_bytes: u32,
}

type Take<'a> = &'a mut dyn FnMut(u32, &Frame<'_>) -> io::Result<()>;

impl Stream {
    /// Of a core of that engine.
    pub fn new(interface: u32, stream: OwnedFd, session: OwnedFd) -> Self {
        Self {
            interface,
            stream: Some(stream),
            _session: session,
            rest: Vec::new(),
            dropped_frames: 0,
        }
    }

    /// Whether more can come.
    pub fn is_open(&self) -> bool {
        self.stream.is_some()
    }

    /// Readable when there are frames.
    ///
    /// # Panics
    /// Where it is not open.
    pub fn fd(&self) -> BorrowedFd<'_> {
        let stream = self.stream.as_ref();
        stream.expect("invariant: only open ones are asked").as_fd()
    }

    /// Frames that found no room.
    pub fn dropped_frames(&self) -> u64 {
        self.dropped_frames
    }

    /// Hands on what has come; what no engine would write ends the stream.
    ///
    /// # Errors
    /// Those of `take`.
    pub fn take(&mut self, take: Take<'_>) -> io::Result<()> {
        let Some(stream) = &self.stream else {
            return Ok(());
        };
        let at = self.rest.len();
        self.rest.resize(at + PIECE_BYTES, 0);
        let read = rustix::io::read(stream, &mut self.rest[at..]);
        self.rest.truncate(at + *read.as_ref().unwrap_or(&0));
        match read {
            Ok(1..) => {}
            Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
            Ok(0) | Err(_) => {
                self.stream = None;
                return Ok(());
            }
        }
        self.hand_on(take)
    }

    fn hand_on(&mut self, take: Take<'_>) -> io::Result<()> {
        let mut bytes = &self.rest[..];
        while let Some((head, behind)) = bytes.split_first_chunk::<RECORD_BYTES>() {
            let Some(record) = CaptureRecord::decode(head) else {
                self.stream = None;
                break;
            };
            let len = usize::try_from(record.captured_bytes).unwrap_or(usize::MAX);
            let Some((frame, behind)) = behind.split_at_checked(len) else {
                break;
            };
            self.dropped_frames = record.dropped_frames;
            bytes = behind;
            // One without a frame only tells what was dropped.
            if record.frame_bytes > 0 {
                let direction = if record.is_sent {
                    Direction::Outbound
                } else {
                    Direction::Inbound
                };
                let frame = Frame {
                    direction,
                    time_ns: record.time_ns,
                    bytes: frame,
                    frame_bytes: record.frame_bytes,
                };
                take(self.interface, &frame)?;
            }
        }
        let done = self.rest.len() - bytes.len();
        self.rest.drain(..done);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{io::Write as _, os::unix::net::UnixStream};

    fn record(captured_bytes: u32, dropped_frames: u64) -> CaptureRecord {
        CaptureRecord {
            captured_bytes,
            frame_bytes: captured_bytes,
            dropped_frames,
            ..CaptureRecord::default()
        }
    }

    fn taken(stream: &mut Stream) -> Vec<usize> {
        let mut lengths = Vec::new();
        let mut add = |_: u32, frame: &Frame<'_>| {
            lengths.push(frame.bytes.len());
            Ok(())
        };
        stream.take(&mut add).unwrap();
        lengths
    }

    #[test]
    fn frames_come_whole_however_the_stream_is_cut_and_an_end_is_seen() {
        let (ours, mut engines) = UnixStream::pair().unwrap();
        let session = rustix::io::fcntl_dupfd_cloexec(&ours, 0).unwrap();
        let mut stream = Stream::new(0, ours.into(), session);
        let bytes = [
            &record(100, 0).encode()[..],
            &[7; 100],
            &record(0, 5).encode(),
        ]
        .concat();
        let mut seen = Vec::new();
        for piece in bytes.chunks(13) {
            engines.write_all(piece).unwrap();
            seen.extend(taken(&mut stream));
        }
        assert_eq!((seen, stream.dropped_frames()), (vec![100], 5));
        drop(engines);
        assert!(taken(&mut stream).is_empty() && !stream.is_open());
    }

    #[test]
    fn what_no_engine_writes_ends_the_stream() {
        let (ours, mut other) = UnixStream::pair().unwrap();
        let session = rustix::io::fcntl_dupfd_cloexec(&ours, 0).unwrap();
        let mut stream = Stream::new(0, ours.into(), session);
        other.write_all(&[0xff; 64]).unwrap();
        assert!(taken(&mut stream).is_empty() && !stream.is_open());
    }
}
