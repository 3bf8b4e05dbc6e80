//! Small files: each comes whole, in one message.

use std::collections::HashSet;
use std::time::Duration;

use super::super::Receiver;
use super::Line;
use crate::checksum::{BlockHasher, Digest};
use crate::error::Error;
use crate::lock::lock;
use crate::meter::Stage;
use crate::name::Name;
use crate::protocol::{Entry, Kind, Message, SMALL_MAX_BYTES};
use crate::session::Watch;
use crate::store::Storage;
use crate::target::PartFile;

/// Small files from which on one sync of the file system takes the place of one for each.
const SYNCED_TOGETHER_MIN: usize = 4;

impl Receiver<'_> {
    /// A whole file in one message.
    pub(super) fn receive_small(
        &self,
        line: &mut Line,
        entry: Entry,
        len: u32,
        frame_bytes: Option<u32>,
    ) -> Result<(), Error> {
        let is_large = u64::from(len) > SMALL_MAX_BYTES
            || entry.kind != Kind::File(Some(u64::from(len)))
            || frame_bytes.is_some_and(|frame_bytes| frame_bytes >= len);
        if is_large {
            return Err(Error::Protocol("a small file is large"));
        }
        let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
        line.begin_frame(frame_bytes)?;
        match &mut line.unpacker {
            Some(unpacker) if frame_bytes.is_some() => {
                unpacker.fill(&mut line.intake, &mut bytes)?
            }
            _ => line.intake.exact(&mut bytes)?,
        }
        let is_whole = line.end_frame(frame_bytes)?;
        self.watch.count_packed(len, frame_bytes);
        let mut expected: Digest = [0; 32];
        line.intake.exact(&mut expected)?;
        line.clock.lap(Stage::Network);
        let is_same = is_whole && BlockHasher::digest(entry.algorithm, &bytes) == expected;
        line.clock.lap(Stage::Hash);
        let file = entry.file;
        if !is_same {
            Watch::add(&self.watch.again, 1);
            return self.ending.say(&Message::Again(file, 0));
        }
        let name = Name::parse(entry.name.clone());
        let path = name
            .as_ref()
            .map(|name| self.target.path_of(name))
            .unwrap_or_default();
        let result = match name {
            Some(name) => match self.store_small(&name, &entry, &bytes) {
                // One of that name waits for it here.
                Err(Error::Busy(_)) if !line.small.is_empty() => {
                    self.tell_done(line)?;
                    self.store_small(&name, &entry, &bytes)
                }
                result => result,
            },
            None => Err(Error::Protocol("its name leads elsewhere")),
        };
        line.clock.lap(Stage::Disk);
        match result {
            Ok(Some(part)) => line.small.push(SmallPart { part, file, len }),
            Ok(None) => {
                self.count_small(len);
                line.done.push(file);
            }
            Err(error) => self.refuse(file, path, error.to_string())?,
        }
        Ok(())
    }

    pub(super) fn count_small(&self, len: u32) {
        Watch::add(&self.watch.bytes, u64::from(len));
        Watch::add(&self.watch.stored_bytes, u64::from(len));
        Watch::add(&self.watch.files, 1);
        lock(&self.outcome).files += 1;
    }

    /// Writes it; `None`: nothing is stored here.
    fn store_small(
        &self,
        name: &Name,
        entry: &Entry,
        bytes: &[u8],
    ) -> Result<Option<PartFile>, Error> {
        if self.storage == Storage::Memory {
            return Ok(None);
        }
        // Who waits for its name may be one of this thread's own.
        let part = self.target.open_part(name, entry, None, Duration::ZERO)?;
        let written =
            write_part(&part, bytes).and_then(|()| part.prepare(entry, bytes.len() as u64));
        match written {
            Ok(()) => Ok(Some(part)),
            Err(error) => {
                part.discard();
                Err(error)
            }
        }
    }

    /// Gives written files their names: one sync for all of them before, one of each folder after. Those that have
    /// them.
    pub(super) fn name_small(&self, small: Vec<SmallPart>) -> Result<Vec<u64>, Error> {
        let together = is_synced_together(&small);
        let mut failed = Vec::new();
        let mut named = Vec::new();
        for one in small {
            let synced = if together { Ok(()) } else { one.part.sync() };
            match synced.and_then(|()| one.part.give_name()) {
                Ok(()) => named.push(one),
                Err(error) => failed.push((one, error)),
            }
        }
        let mut folders = HashSet::new();
        let mut done = Vec::new();
        for one in named {
            let is_new = one
                .part
                .folder_number()
                .is_none_or(|number| folders.insert(number));
            match if is_new {
                one.part.sync_folder()
            } else {
                Ok(())
            } {
                Ok(()) => {
                    self.count_small(one.len);
                    done.push(one.file);
                }
                Err(error) => failed.push((one, error)),
            }
        }
        for (one, error) in failed {
            one.part.discard();
            let path = one.part.path().to_owned();
            self.refuse(one.file, path, error.to_string())?;
        }
        Ok(done)
    }
}

/// Syncs the file system once where that saves syncs; it waits for what others have written there too.
fn is_synced_together(small: &[SmallPart]) -> bool {
    let system = |one: &SmallPart| one.part.folder_number().map(|(system, _)| system);
    let Some(first) = small.first() else {
        return false;
    };
    small.len() >= SYNCED_TOGETHER_MIN
        && system(first).is_some()
        && small.iter().all(|one| system(one) == system(first))
        && first.part.sync_file_system().is_ok()
}

/// A small file under its hidden name.
pub(super) struct SmallPart {
    part: PartFile,
    file: u64,
    len: u32,
}

fn write_part(part: &PartFile, bytes: &[u8]) -> Result<(), Error> {
    use std::os::unix::fs::FileExt;
    part.file()
        .write_all_at(bytes, 0)
        .map_err(Error::file("writing", part.path()))
}
