//! From a file to a connection, by one of the methods, each piece hashed on its way.

use std::io;
use std::os::fd::AsFd;

use super::{Method, Source};
use crate::checksum::{Algorithm, BlockHasher, BlockPosition, Digest};
use crate::connection::Connection;
use crate::error::Error;
use crate::meter::{Clock, Stage};
use crate::pinned::Pinned;
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
    pinned: Option<(Method, Pinned)>,
    /// Methods that cannot be had, and why, until somebody asks.
    refused: Vec<(Method, io::Error)>,
    algorithm: Algorithm,
}

impl Mover {
    /// For one thread.
    pub fn new(algorithm: Algorithm) -> Self {
        Self {
            piece: vec![0; PIECE_BYTES],
            view: View::default(),
            pipe: None,
            pinned: None,
            refused: Vec::new(),
            algorithm,
        }
    }

    /// How bytes really leave if they are to leave this way.
    pub fn effective(&self, method: Method) -> Method {
        if self.refused.iter().any(|(refused, _)| *refused == method) {
            Method::ReadWrite
        } else {
            method
        }
    }

    /// Whether nothing is to be gained by a method: it cannot be had, or the kernel copies all the same.
    fn is_futile(&self, method: Method) -> bool {
        let is_copied = |(used, pinned): &(Method, Pinned)| *used == method && pinned.is_copied();
        self.effective(method) != method || self.pinned.as_ref().is_some_and(is_copied)
    }

    /// What the user is to be told of the method that was asked for.
    pub fn note(&self, method: Method) -> Option<String> {
        let name = method.name();
        let refused = self.refused.iter().find(|(refused, _)| *refused == method);
        if let Some((_, error)) = refused {
            return Some(format!(
                "--method {name} cannot be had here ({error}): sent by read and write"
            ));
        }
        self.is_futile(method).then(|| {
            format!("--method {name}: the kernel copied the bytes all the same, as it does for what stays on this host")
        })
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
            let method = self.effective(method);
            if method.pinned().is_some() {
                if self.send_pinned(method, source, at, count, to, &mut hasher, clock)? {
                    at += count as u64;
                }
                // Otherwise the same piece goes the ordinary way.
                continue;
            }
            self.hash(method, source, at, count, &mut hasher, clock)?;
            match method {
                Method::Sendfile => pass(count, |done, rest| {
                    sys::sendfile(to.as_fd(), source.file.as_fd(), at + done, rest)
                })
                .map_err(|error| broken(error, source))?,
                Method::Splice => self.splice(source, at, count, to)?,
                Method::ReadWrite | Method::ZeroCopy | Method::SendZc => {
                    write_all(&mut { to }, &self.piece[..count])?;
                }
            }
            clock.lap(Stage::Network);
            at += count as u64;
        }
        Ok(hasher.finish())
    }

    /// Out of memory that the kernel reads from until it says that it is done; `false`: this cannot be had, and nothing was
    /// sent.
    #[expect(clippy::too_many_arguments, reason = "a piece, and where it goes")]
    fn send_pinned(
        &mut self,
        method: Method,
        source: &Source,
        at: u64,
        count: usize,
        to: &Connection,
        hasher: &mut BlockHasher,
        clock: &mut Clock,
    ) -> Result<bool, Error> {
        let socket = to.as_fd();
        let buffer = self.pinned_buffer(method, to);
        clock.lap(Stage::Network);
        let (pinned, buffer) = match buffer {
            Ok(found) => found,
            Err(error) => {
                self.pinned = None;
                self.refused.push((method, error));
                return Ok(false);
            }
        };
        let piece = &mut pinned.bytes(buffer)[..count];
        source.read(piece, at)?;
        clock.lap(Stage::Disk);
        match pinned.send(socket, buffer, count) {
            Ok(()) => {}
            // A ring does not reach a socket that is not the kernel's.
            Err(error) if !pinned.has_sent() => {
                self.pinned = None;
                self.refused.push((method, error));
                return Ok(false);
            }
            Err(error) => return Err(Error::lost("sending to the peer")(error)),
        }
        clock.lap(Stage::Network);
        // The kernel only reads them.
        hasher.update(pinned.sent_bytes(buffer, count));
        clock.lap(Stage::Hash);
        Ok(true)
    }

    fn pinned_buffer(
        &mut self,
        method: Method,
        to: &Connection,
    ) -> io::Result<(&mut Pinned, usize)> {
        let is_there = self.pinned.as_ref().is_some_and(|(of, _)| *of == method);
        if !is_there {
            let way = method.pinned().ok_or(io::ErrorKind::Unsupported)?;
            self.pinned = Some((method, Pinned::new(way, to.as_fd())?));
        }
        let (_, pinned) = self.pinned.as_mut().ok_or(io::ErrorKind::Unsupported)?;
        let buffer = pinned.buffer(to.as_fd())?;
        Ok((pinned, buffer))
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

    /// The hash of a hole.
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
