//! What source, network and target can do one by one, before a transfer: `shunt send --probe`.
//!
//! The sender reads a part of its source, then fills the first data connection from memory for two seconds; the
//! receiver drops that, then writes a file of its own and removes it, and tells both times.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::disk::{self, DiskRate};
use crate::error::Error;
pub use crate::protocol::Moved;
use crate::protocol::{self, Intake, Message, write_all};
use crate::session::{ALIVE, Session, Watch};

/// How long the network is filled.
const NETWORK: Duration = Duration::from_secs(2);
/// Bytes of a message.
pub const PROBE_BYTES: usize = 1 << 20;
/// Bytes read from the source and written at the target.
const DISK_BYTES: u64 = 1 << 30;
/// Most that a receiver writes because a sender asks for it.
const DISK_BYTES_MAX: u64 = 4 << 30;

impl From<DiskRate> for Moved {
    fn from(rate: DiskRate) -> Self {
        Self::new(rate.bytes, rate.taken)
    }
}

/// What each part can do by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PathRates {
    /// Reading the largest source file, from the page cache what lies there; `None`: there is no file.
    pub source: Option<Moved>,
    /// From memory to memory over one connection.
    pub network: Moved,
    /// Writing at the receiver, with fdatasync; `None`: it stores nothing.
    pub target: Option<Moved>,
}

/// Measures on a session of which nothing was used yet.
///
/// # Errors
/// What failed at either end.
pub fn measure(session: &Session, sources: &[PathBuf], watch: &Watch) -> Result<PathRates, Error> {
    let file = sources.iter().filter_map(|path| largest(path)).max();
    let source = match file {
        Some((_, path)) => Some(disk::read_rate(&path, DISK_BYTES, &watch.stop)?.into()),
        None => None,
    };
    let data = session.data.first();
    let mut data = data.ok_or(Error::Protocol("no data connection"))?;
    let (begun, memory) = (Instant::now(), vec![0x5a; PROBE_BYTES]);
    let mut held = begun;
    let len = u32::try_from(PROBE_BYTES).expect("invariant: a constant below 4 GiB");
    while begun.elapsed() < NETWORK {
        if watch.is_stopped() {
            return Err(Error::Interrupted);
        }
        protocol::send(&mut data, &Message::Probe(len))?;
        write_all(&mut data, &memory)?;
        hold(session, &mut held)?;
    }
    protocol::send(&mut data, &Message::ProbeEnd(DISK_BYTES))?;
    let mut intake = Intake::exactly(&session.control);
    loop {
        match intake.message()? {
            Message::Probed(network, target) => {
                return Ok(PathRates {
                    source,
                    network,
                    target,
                });
            }
            Message::Alive(_) => hold(session, &mut held)?,
            Message::Refuse(reason) => return Err(Error::Refused(reason)),
            _ => return Err(Error::Protocol("a message of the other side")),
        }
        if watch.is_stopped() {
            return Err(Error::Interrupted);
        }
    }
}

fn hold(session: &Session, held: &mut Instant) -> Result<(), Error> {
    if held.elapsed() >= ALIVE {
        *held = Instant::now();
        session.hold()?;
    }
    Ok(())
}

/// The largest regular file of a source; of a folder among its own files.
fn largest(path: &Path) -> Option<(u64, PathBuf)> {
    let sized = |path: PathBuf| {
        let metadata = fs::symlink_metadata(&path).ok()?;
        metadata.is_file().then_some((metadata.len(), path))
    };
    if path.is_dir() {
        let files = fs::read_dir(path).ok()?;
        return files.filter_map(|entry| sized(entry.ok()?.path())).max();
    }
    sized(path.to_owned())
}

/// The receiver's share on one data connection.
#[derive(Debug, Default)]
pub struct Answer {
    begun: Option<Instant>,
    bytes: u64,
    ended: bool,
}

impl Answer {
    /// Drops what follows a [`Message::Probe`].
    pub fn drop_bytes<R: Read>(&mut self, intake: &mut Intake<R>, len: u32) -> Result<(), Error> {
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        if len > PROBE_BYTES || self.ended {
            return Err(Error::Protocol("it probes too much"));
        }
        self.begun.get_or_insert_with(Instant::now);
        intake.exact(&mut vec![0; len])?;
        self.bytes += len as u64;
        Ok(())
    }

    /// Since the probe began.
    pub fn taken(&self) -> Duration {
        self.begun.map_or(Duration::ZERO, |begun| begun.elapsed())
    }

    /// Writes a file in the folder, if anything is stored there; the answer to [`Message::ProbeEnd`].
    pub fn end(
        &mut self,
        folder: Option<&Path>,
        wanted_bytes: u64,
        watch: &Watch,
    ) -> Result<Message, Error> {
        if std::mem::replace(&mut self.ended, true) {
            return Err(Error::Protocol("it probes too much"));
        }
        let network = Moved::new(self.bytes, self.taken());
        let target = match folder {
            Some(folder) => {
                let bytes = wanted_bytes.min(DISK_BYTES_MAX).min(room(folder)? / 2);
                Some(disk::write_rate(folder, bytes, &watch.stop)?.into())
            }
            None => None,
        };
        Ok(Message::Probed(network, target))
    }
}

fn room(folder: &Path) -> Result<u64, Error> {
    let system = rustix::fs::statvfs(folder)
        .map_err(|errno| Error::file("looking at the file system of", folder)(errno.into()))?;
    Ok(system.f_bavail.saturating_mul(system.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_probes_too_much_is_a_peer_that_breaks_the_protocol() {
        let mut answer = Answer::default();
        let bytes = [0; 10];
        let mut intake = Intake::new(&bytes[..]);
        answer.drop_bytes(&mut intake, 10).unwrap();
        assert!(answer.drop_bytes(&mut intake, u32::MAX).is_err());
        let watch = Watch::default();
        let Message::Probed(network, None) = answer.end(None, 5, &watch).unwrap() else {
            panic!("no answer");
        };
        assert_eq!(network.bytes, 10);
        assert!(answer.end(None, 5, &watch).is_err());
        assert!(answer.drop_bytes(&mut intake, 1).is_err());
    }
}
