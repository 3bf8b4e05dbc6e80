//! From a file to a connection, by one of the methods, each piece hashed on its way.

use std::io;
use std::os::fd::AsFd;

use super::{Method, Source};
use crate::checksum::{Algorithm, BlockHasher, BlockPosition, Digest};
use crate::connection::Connection;
use crate::error::Error;
use crate::meter::{Clock, Stage};
use crate::pipe::Pipe;
use crate::protocol::write_all;
use crate::sys::{self, retried};
use crate::view::{View, hash_ahead};

/// Bytes that are hashed at a time, while they are in the processor's cache.
const PIECE_BYTES: usize = 256 * 1024;

/// A place to read pieces into, and a pipe if one is needed: what a thread that sends has.
#[derive(Debug)]
pub struct Mover {
    piece: Vec<u8>,
    view: View,
    pipe: Option<Pipe>,
    algorithm: Algorithm,
}

impl Mover {
    /// For one thread.
    pub fn new(algorithm: Algorithm) -> Self {
        Self {
            piece: vec![0; PIECE_BYTES],
            view: View::default(),
            pipe: None,
            algorithm,
        }
    }

    /// Sends a range of a file and returns its hash.
    pub fn send(
        &mut self,
        method: Method,
        source: &Source,
        place: BlockPosition,
        len: u32,
        to: &Connection,
        clock: &mut Clock,
    ) -> Result<Digest, Error> {
        let mut hasher = BlockHasher::new(self.algorithm, place);
        let end = place.offset + u64::from(len);
        let mut at = place.offset;
        while at < end {
            let count = usize::try_from(end - at)
                .unwrap_or(PIECE_BYTES)
                .min(PIECE_BYTES);
            self.hash(method, source, at, count, &mut hasher, clock)?;
            match method {
                Method::Sendfile => pass(count, |done, rest| {
                    sys::sendfile(to.as_fd(), source.file.as_fd(), at + done, rest)
                })
                .map_err(|error| broken(error, source))?,
                Method::Splice => self.splice(source, at, count, to)?,
                Method::ReadWrite => {
                    write_all(&mut { to }, &self.piece[..count])?;
                }
            }
            clock.lap(Stage::Network);
            at += count as u64;
        }
        Ok(hasher.finish())
    }

    /// Where no method needs the bytes in memory they are hashed where they lie.
    fn hash(
        &mut self,
        method: Method,
        source: &Source,
        at: u64,
        count: usize,
        hasher: &mut BlockHasher,
        clock: &mut Clock,
    ) -> Result<(), Error> {
        let file = source.file.as_fd();
        if method != Method::ReadWrite
            && let Some(bytes) = self
                .view
                .bytes(source.number, file, source.size(), at, count)
        {
            clock.lap(Stage::Disk);
            hash_ahead(hasher, bytes);
            clock.lap(Stage::Hash);
            return if self.view.is_torn() {
                Err(Error::Changed(source.path.clone()))
            } else {
                Ok(())
            };
        }
        let piece = &mut self.piece[..count];
        source.read(piece, at)?;
        clock.lap(Stage::Disk);
        hasher.update(piece);
        clock.lap(Stage::Hash);
        Ok(())
    }

    fn splice(
        &mut self,
        source: &Source,
        at: u64,
        len: usize,
        to: &Connection,
    ) -> Result<(), Error> {
        let pipe = match &self.pipe {
            Some(pipe) => pipe,
            None => self
                .pipe
                .insert(Pipe::new().map_err(Error::network("making a pipe"))?),
        };
        let mut done = 0;
        while done < len {
            let offset = at + done as u64;
            let filled = retried(|| pipe.fill(source.file.as_fd(), Some(offset), len - done))
                .map_err(|error| broken(error, source))?;
            pass(filled, |_, rest| pipe.empty(to.as_fd(), None, rest))
                .map_err(|error| broken(error, source))?;
            done += filled;
        }
        Ok(())
    }

    pub fn hash_hole(&mut self, place: BlockPosition, len: u32) -> Digest {
        let mut hasher = BlockHasher::new(self.algorithm, place);
        self.piece.fill(0);
        let mut rest = usize::try_from(len).unwrap_or(0);
        while rest > 0 {
            let count = rest.min(PIECE_BYTES);
            hasher.update(&self.piece[..count]);
            rest -= count;
        }
        hasher.finish()
    }
}

/// Repeats a call until it has moved `len` bytes.
fn pass(len: usize, mut call: impl FnMut(u64, usize) -> io::Result<usize>) -> io::Result<()> {
    let mut done = 0;
    while done < len {
        done += retried(|| call(done as u64, len - done))?;
    }
    Ok(())
}

/// A file that ends too early has shrunk; everything else is the connection.
fn broken(error: io::Error, source: &Source) -> Error {
    if error.kind() == io::ErrorKind::UnexpectedEof {
        Error::Changed(source.path.clone())
    } else {
        Error::lost("sending to the peer")(error)
    }
}
