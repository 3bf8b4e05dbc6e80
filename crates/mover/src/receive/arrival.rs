//! From a connection into the page cache, past this program's memory where that can be had: by splice(2), or out of pages
//! that the kernel maps (`crate::mapped`). Bytes are hashed in the file afterwards, where they lie: what is proved is
//! what the file has. What these ways cannot move goes through memory, byte for byte the same.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use super::sink::Sink;
use crate::checksum::BlockHasher;
use crate::choice::Probe;
use crate::connection::Connection;
use crate::error::Error;
use crate::mapped::{Got, Reception};
use crate::meter::{Clock, Stage};
use crate::pipe::{PIPE_BYTES, Pipe};
use crate::protocol::Intake;
use crate::store::{PIECE_BYTES, Storage};
use crate::sys::{self, Retry, retried};
use crate::view::{View, hash_ahead};

/// Bytes that pass through memory at a time.
const SPARE_BYTES: usize = 128 * 1024;
/// After so many bytes it is clear whether the kernel maps what comes.
const JUDGED_BYTES: u64 = 8 << 20;

/// How much of a piece moved, and whether it was stored; what could not be stored has left the connection all the same.
type Step = (usize, io::Result<()>);

/// What one data thread has for it.
#[derive(Debug)]
pub struct Arrival {
    pipe: Option<Pipe>,
    /// The socket gives its bytes to a file without a pipe, as Shunt's do.
    is_straight: bool,
    reception: Option<Reception>,
    view: View,
    spare: Vec<u8>,
    /// Ways that cannot be had, and why.
    refused: Vec<(Storage, String)>,
    probe: Probe<Storage>,
    /// Bytes that the kernel was asked to map, and those that it did.
    asked_bytes: u64,
    mapped_bytes: u64,
}

impl Arrival {
    /// Through the page cache, in the order in which they are tried.
    const TRIED: [Storage; 3] = [Storage::Buffered, Storage::Splice, Storage::Mapped];

    /// For one thread.
    pub fn new() -> Self {
        Self {
            pipe: None,
            is_straight: true,
            reception: None,
            view: View::default(),
            spare: Vec::new(),
            refused: Vec::new(),
            probe: Probe::new(&Self::TRIED, Storage::Buffered),
            asked_bytes: 0,
            mapped_bytes: 0,
        }
    }

    /// How the next block gets into the page cache if the user asked for this, or for nothing; and whether that is final.
    pub fn way(&mut self, asked: Option<Storage>) -> (Storage, bool) {
        match asked {
            Some(way) if self.refused.iter().any(|(refused, _)| *refused == way) => {
                (Storage::Buffered, true)
            }
            Some(way) => (way, true),
            None => self.probe.next(),
        }
    }

    /// A block of so many bytes is through that was one of several tries.
    pub fn tried(&mut self, bytes: u64) {
        self.probe.moved(bytes);
    }

    /// Why a way cannot be had, once that shows.
    pub fn refusal(&self, way: Storage) -> Option<&str> {
        let refused = self.refused.iter().find(|(refused, _)| *refused == way);
        refused.map(|(_, why)| why.as_str())
    }

    fn refuse(&mut self, way: Storage, why: String) {
        self.probe.forget(way);
        if self.refusal(way).is_none() {
            self.refused.push((way, why));
        }
    }

    /// Takes a piece from the connection and has it in the file. An error of the file is the inner one: the piece has
    /// left the connection.
    pub fn take(
        &mut self,
        way: Storage,
        intake: &mut Intake<Connection>,
        sink: &Sink,
        at: u64,
        count: usize,
        clock: &mut Clock,
    ) -> Result<io::Result<()>, Error> {
        let (mut done, mut stored) = (0, Ok(()));
        while done < count {
            let (place, left) = (at + done as u64, count - done);
            let is_direct = stored.is_ok() && intake.is_drained() && self.refusal(way).is_none();
            let (moved, result) = match way {
                Storage::Splice if is_direct => self.splice(intake, sink, place, left)?,
                Storage::Mapped if is_direct => self.map(intake, sink, place, left)?,
                _ => self.pass(intake, sink, place, left, stored.is_ok())?,
            };
            clock.lap(Stage::Network);
            done += moved;
            stored = stored.and(result);
        }
        Ok(stored)
    }

    /// Through memory.
    fn pass(
        &mut self,
        intake: &mut Intake<Connection>,
        sink: &Sink,
        at: u64,
        left: usize,
        is_wanted: bool,
    ) -> Result<Step, Error> {
        self.spare.resize(SPARE_BYTES, 0);
        let part = &mut self.spare[..left.min(SPARE_BYTES)];
        let part = match intake.held() {
            0 => {
                intake.get().gather(left)?;
                intake.straight(part)?;
                part
            }
            held => {
                let len = part.len().min(held);
                let part = &mut part[..len];
                intake.exact(part)?;
                part
            }
        };
        let stored = if is_wanted {
            sink.write_at(part, at)
        } else {
            Ok(())
        };
        Ok((part.len(), stored))
    }

    /// From the socket into the page cache: out of a receive window that this process shares, or through a pipe.
    fn splice(
        &mut self,
        intake: &Intake<Connection>,
        sink: &Sink,
        at: u64,
        left: usize,
    ) -> Result<Step, Error> {
        intake.get().gather(left)?;
        let socket = intake.get().as_fd();
        if self.is_straight {
            let file = sink.file().map(AsFd::as_fd);
            match file.map(|file| retried(|| sys::splice_straight(socket, file, at, left))) {
                Some(Ok(moved)) => return Ok((moved, Ok(()))),
                // The kernel's sockets have no such thing; and what else is wrong the ways below say.
                _ => self.is_straight = false,
            }
        }
        let pipe = match self.pipe.take().map_or_else(Pipe::new, Ok) {
            Ok(pipe) => pipe,
            Err(error) => {
                self.refuse(Storage::Splice, error.to_string());
                return Ok((0, Ok(())));
            }
        };
        let filled = match retried(|| pipe.fill(socket, None, left.min(PIPE_BYTES))) {
            Ok(filled) => filled,
            Err(error) if is_lacking(&error) => {
                self.refuse(Storage::Splice, error.to_string());
                return Ok((0, Ok(())));
            }
            Err(error) => return Err(Error::lost("receiving from the peer")(error)),
        };
        let stored = self.empty(&pipe, sink, at, filled);
        if stored.is_ok() {
            self.pipe = Some(pipe);
        }
        Ok((filled, stored))
    }

    fn empty(&mut self, pipe: &Pipe, sink: &Sink, at: u64, len: usize) -> io::Result<()> {
        let file = sink.file().ok_or(io::ErrorKind::Unsupported)?.as_fd();
        let mut done = 0;
        while done < len {
            match retried(|| pipe.empty(file, Some(at + done as u64), len - done)) {
                Ok(count) => done += count,
                Err(error) => {
                    // What is left goes the ordinary way, which says what is wrong if it is not splice.
                    self.refuse(Storage::Splice, error.to_string());
                    break;
                }
            }
        }
        while done < len {
            self.spare.resize(SPARE_BYTES, 0);
            let part = &mut self.spare[..(len - done).min(SPARE_BYTES)];
            let count = retried(|| pipe.read(part))?;
            sink.write_at(&part[..count], at + done as u64)?;
            done += count;
        }
        Ok(())
    }

    /// The kernel maps what it can of what has come, and from there it is written.
    fn map(
        &mut self,
        intake: &mut Intake<Connection>,
        sink: &Sink,
        at: u64,
        left: usize,
    ) -> Result<Step, Error> {
        intake.get().gather(left)?;
        let socket = intake.get().as_fd();
        let reception = match self.reception.take() {
            Some(reception) => Ok(reception),
            None => Reception::new(socket, PIECE_BYTES),
        };
        let asked = reception.and_then(|mut reception| {
            let got = reception.receive(socket, left)?;
            Ok((reception, got))
        });
        let (reception, got) = match asked {
            Ok(asked) => asked,
            Err(error) => {
                self.refuse(Storage::Mapped, error.to_string());
                return Ok((0, Ok(())));
            }
        };
        let step = match got {
            Got { mapped: 0, to_read } => {
                let len = if to_read == 0 {
                    left
                } else {
                    left.min(to_read)
                };
                self.pass(intake, sink, at, len, true)?
            }
            Got { mapped, .. } => (mapped, write_mapped(&reception, sink, at, mapped)),
        };
        self.reception = Some(reception);
        self.judge(step.0 as u64, got.mapped as u64);
        Ok(step)
    }

    /// Gives mapping up where little comes of it.
    fn judge(&mut self, moved: u64, mapped: u64) {
        self.asked_bytes += moved;
        self.mapped_bytes += mapped;
        if self.asked_bytes >= JUDGED_BYTES {
            self.conclude();
        }
    }

    /// The same, when there was perhaps less.
    pub fn conclude(&mut self) {
        if self.asked_bytes > 0 && self.mapped_bytes < self.asked_bytes / 2 {
            let share = self.mapped_bytes * 100 / self.asked_bytes;
            let why = format!("the kernel mapped {share} % of what came");
            self.refuse(Storage::Mapped, why);
        }
    }

    /// Hashes a piece where it lies.
    pub fn hash(
        &mut self,
        sink: &Sink,
        at: u64,
        count: usize,
        hasher: &mut BlockHasher,
    ) -> io::Result<()> {
        let file = sink.file().ok_or(io::ErrorKind::Unsupported)?;
        // A file whose size is not known grows behind the window.
        let seen = self
            .view
            .bytes(sink.serial(), file.as_fd(), u64::MAX, at, count);
        if let Some(bytes) = seen {
            hash_ahead(hasher, bytes);
            self.view.release(at, count);
            if self.view.is_torn() {
                self.view = View::default();
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            return Ok(());
        }
        self.spare.resize(SPARE_BYTES, 0);
        let mut done = 0;
        while done < count {
            let part = &mut self.spare[..(count - done).min(SPARE_BYTES)];
            file.read_exact_at(part, at + done as u64)?;
            hasher.update(part);
            done += part.len();
        }
        Ok(())
    }
}

fn write_mapped(reception: &Reception, sink: &Sink, at: u64, len: usize) -> io::Result<()> {
    let file = sink.file().ok_or(io::ErrorKind::Unsupported)?.as_fd();
    let (mut done, retry) = (0, Retry::new());
    while done < len {
        match reception.write(file, at + done as u64, done, len - done) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => done += count,
            Err(error) if retry.again(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Whether the system has no such call for such a socket.
fn is_lacking(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EINVAL | libc::ENOSYS | libc::EOPNOTSUPP)
    )
}
