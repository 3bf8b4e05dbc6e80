//! A data connection: blocks and small files, each checked before it counts.

use std::collections::HashSet;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use super::Receiver;
use super::arrival::Arrival;
use super::sink::Sink;
use crate::checksum::{BlockHasher, BlockPosition, Digest};
use crate::connection::Connection;
use crate::error::Error;
use crate::lock::lock;
use crate::meter::{Clock, Stage};
use crate::name::Name;
use crate::packing::Unpacker;
use crate::probe::Answer;
use crate::protocol::{Block, Entry, Intake, Kind, Message, SMALL_MAX_BYTES, StageTimes};
use crate::session::Watch;
use crate::store::{PIECE_BYTES, Piece, Storage, Writer};
use crate::target::PartFile;

/// Bytes that are hashed at a time, while they are in the processor's cache.
const HASHED_BYTES: usize = 128 * 1024;
/// Small files that are told of in one message.
const TOLD_MAX: usize = 256;
/// Small files from which on one sync of the file system takes the place of one for each.
const SYNCED_TOGETHER_MIN: usize = 4;

/// What one data thread has.
struct Line {
    intake: Intake<Connection>,
    writer: Writer,
    arrival: Arrival,
    clock: Clock,
    /// Small files that are whole and not told of.
    done: Vec<u64>,
    /// Small files that are written and have no name yet.
    small: Vec<SmallPart>,
    answer: Answer,
    /// Made for the first frame.
    unpacker: Option<Unpacker>,
}

impl Line {
    /// Fills a part of what is received: from a frame that was begun, or as it comes. So many bytes are certain to come.
    fn fill(
        intake: &mut Intake<Connection>,
        unpacker: Option<&mut Unpacker>,
        part: &mut [u8],
        certain: usize,
    ) -> Result<Stage, Error> {
        if let Some(unpacker) = unpacker {
            unpacker.fill(intake, part)?;
            return Ok(Stage::Pack);
        }
        if intake.is_drained() {
            intake.get().gather(certain)?;
        }
        intake.exact(part)?;
        Ok(Stage::Network)
    }

    /// Begins a frame, if what comes is one.
    fn begin_frame(&mut self, frame_bytes: Option<u32>) -> Result<(), Error> {
        let Some(frame_bytes) = frame_bytes else {
            return Ok(());
        };
        if self.unpacker.is_none() {
            self.unpacker = Some(Unpacker::new().map_err(Error::network("taking memory"))?);
        }
        if let Some(unpacker) = &mut self.unpacker {
            unpacker.begin(frame_bytes);
        }
        Ok(())
    }

    /// Ends it; `false`: it was damaged.
    fn end_frame(&mut self, frame_bytes: Option<u32>) -> Result<bool, Error> {
        match &mut self.unpacker {
            Some(unpacker) if frame_bytes.is_some() => unpacker.end(&mut self.intake),
            _ => Ok(true),
        }
    }
}

impl Receiver<'_> {
    /// Receives what comes on one data connection, to its end.
    pub(super) fn receive(&self, stream: Connection) -> Result<StageTimes, Error> {
        stream.widen();
        let mut line = Line {
            intake: Intake::new(stream),
            writer: Writer::new(self.storage)?,
            arrival: Arrival::new(),
            clock: Clock::new(),
            done: Vec::new(),
            small: Vec::new(),
            answer: Answer::default(),
            unpacker: None,
        };
        let result = self.receive_all(&mut line);
        // What has arrived counts, whatever ended the connection.
        let drained = line.writer.drain();
        let settled = self.settle_touched(&mut line);
        let told = self.tell_done(&mut line);
        self.note_arrival(&mut line.arrival);
        result.and(drained).and(settled).and(told)?;
        Ok(line.clock.times())
    }

    fn receive_all(&self, line: &mut Line) -> Result<(), Error> {
        loop {
            self.await_message(line)?;
            let message = line.intake.message()?;
            line.clock.lap(Stage::Network);
            match message {
                Message::Block(block) => self.receive_block(line, &block)?,
                Message::Small(entry, len, frame) => {
                    self.receive_small(line, entry, len, frame)?;
                }
                Message::Probe(len) => line.answer.drop_bytes(&mut line.intake, len)?,
                Message::ProbeEnd(bytes) => {
                    let folder = (self.storage != Storage::Memory).then(|| self.target.path());
                    let answer = line.answer.end(folder, bytes, self.watch)?;
                    self.ending.say(&answer)?;
                    let taken = line.answer.taken().as_micros();
                    Watch::add(&self.watch.probe_us, u64::try_from(taken).unwrap_or(0));
                    line.clock.idle();
                }
                Message::Finish => return Ok(()),
                _ => return Err(Error::Protocol("a message that is none for data")),
            }
            self.settle_touched(line)?;
        }
    }

    /// Before it waits for the peer it tells what it has, and while it waits writes end.
    fn await_message(&self, line: &mut Line) -> Result<(), Error> {
        let is_full = line.small.len() >= self.small_most || line.done.len() >= TOLD_MAX;
        if is_full || line.intake.is_drained() {
            self.tell_done(line)?;
        }
        while line.intake.is_drained() && !line.intake.get().has_buffered() && line.writer.is_busy()
        {
            let readable = line.writer.await_readable(line.intake.get().as_fd())?;
            self.settle_touched(line)?;
            if readable {
                break;
            }
        }
        Ok(())
    }

    fn settle_touched(&self, line: &mut Line) -> Result<(), Error> {
        Watch::add(&self.watch.stored_bytes, line.writer.take_written());
        while let Some(sink) = line.writer.next_touched() {
            self.settle(&sink)?;
        }
        Ok(())
    }

    fn tell_done(&self, line: &mut Line) -> Result<(), Error> {
        let small = std::mem::take(&mut line.small);
        line.done.extend(self.name_small(small)?);
        line.clock.lap(Stage::Disk);
        if line.done.is_empty() {
            return Ok(());
        }
        self.ending
            .say(&Message::Done(std::mem::take(&mut line.done)))
    }

    fn receive_block(&self, line: &mut Line, block: &Block) -> Result<(), Error> {
        let sink = self
            .sink(block.file)
            .ok_or(Error::Protocol("a block of an unknown file"))?;
        let offset = sink.place(block)?;
        let place = BlockPosition {
            offset,
            is_only: block.is_only,
        };
        let way = self.way(line, &sink, block);
        let mut hasher = BlockHasher::new(sink.entry().algorithm, place);
        let mut is_hashed = true;
        line.begin_frame(block.packed)?;
        if block.is_hole {
            hash_zeros(&mut hasher, u64::from(block.len));
            line.clock.lap(Stage::Hash);
        } else {
            match way {
                Storage::Splice | Storage::Mapped => {
                    is_hashed = store_past_memory(line, way, &sink, block, offset, &mut hasher)?;
                }
                Storage::Direct | Storage::Buffered | Storage::Memory => {
                    store_block(line, &sink, block, offset, &mut hasher)?;
                }
            }
            line.arrival.tried(u64::from(block.len));
        }
        let is_whole = line.end_frame(block.packed)?;
        let mut expected: Digest = [0; 32];
        line.intake.exact(&mut expected)?;
        line.clock.lap(Stage::Network);
        self.watch.count_packed(block.len, block.packed);
        if is_whole && is_hashed && hasher.finish() == expected {
            if block.is_hole {
                sink.leave_hole(block, offset);
            }
            sink.block_matches(block.index, expected);
            Watch::add(&self.watch.bytes, u64::from(block.len));
            return self.settle(&sink);
        }
        // The same range must not be written twice at one time.
        line.writer.drain()?;
        sink.block_differs(block.index);
        if sink.has_failed() {
            return self.settle(&sink);
        }
        Watch::add(&self.watch.again, 1);
        self.ending.say(&Message::Again(block.file, block.index))
    }

    /// How a block gets to where its file is, and who asked for another way is told.
    fn way(&self, line: &mut Line, sink: &Sink, block: &Block) -> Storage {
        let storage = line.writer.storage_of(sink);
        if storage != sink.storage() {
            // This thread has no ring.
            self.note_storage(storage);
        }
        let is_cached = !matches!(storage, Storage::Direct | Storage::Memory);
        if !is_cached || block.is_hole || sink.has_failed() {
            return storage;
        }
        if block.packed.is_some() || !line.intake.get().is_plain() {
            let why = "packed or encrypted bytes have to pass through this program";
            self.note_refusal(why);
            lock(&self.outcome).storage = Some(Storage::Buffered);
            return Storage::Buffered;
        }
        let (way, is_final) = line.arrival.way(self.asked.map(|_| storage));
        if is_final {
            lock(&self.outcome).storage = Some(way);
        }
        way
    }

    /// Who asked for a way that could not be had is told when all has come: the last block may have shown it.
    fn note_arrival(&self, arrival: &mut Arrival) {
        arrival.conclude();
        if let Some(why) = self.asked.and_then(|asked| arrival.refusal(asked)) {
            self.note_refusal(why);
            lock(&self.outcome).storage = Some(Storage::Buffered);
        }
    }

    /// A whole file in one message.
    fn receive_small(
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
        let place = BlockPosition {
            offset: 0,
            is_only: true,
        };
        let mut hasher = BlockHasher::new(entry.algorithm, place);
        hasher.update(&bytes);
        let is_same = is_whole && hasher.finish() == expected;
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

    fn count_small(&self, len: u32) {
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
    fn name_small(&self, small: Vec<SmallPart>) -> Result<Vec<u64>, Error> {
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
struct SmallPart {
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

/// A block's pieces: where each begins in the file, and its bytes.
fn pieces(offset: u64, len: u32) -> impl Iterator<Item = (u64, usize)> {
    let end = offset + u64::from(len);
    (offset..end).step_by(PIECE_BYTES).map(move |at| {
        let left = usize::try_from(end - at).unwrap_or(PIECE_BYTES);
        (at, left.min(PIECE_BYTES))
    })
}

/// Takes a block's bytes piece by piece, hashes each while it is in the cache, and has it written.
fn store_block(
    line: &mut Line,
    sink: &Arc<Sink>,
    block: &Block,
    offset: u64,
    hasher: &mut BlockHasher,
) -> Result<(), Error> {
    for (at, count) in pieces(offset, block.len) {
        line.writer.make_room(sink, &mut line.clock)?;
        for begin in (0..count).step_by(HASHED_BYTES) {
            let range = begin..(begin + HASHED_BYTES).min(count);
            let part = line.writer.part(range.clone());
            let unpacker = line.unpacker.as_mut().filter(|_| block.packed.is_some());
            let stage = Line::fill(&mut line.intake, unpacker, part, count - begin)?;
            line.clock.lap(stage);
            hasher.update(part);
            line.clock.lap(Stage::Hash);
            line.writer.keep(range);
            line.clock.lap(Stage::Disk);
        }
        if !sink.has_failed() {
            sink.piece_begun(block.index);
            let piece = Piece {
                sink: Arc::clone(sink),
                block: block.index,
                offset: at,
                len: count,
            };
            line.writer.store(piece, &mut line.clock);
        }
    }
    Ok(())
}

/// The same, where the bytes go from the connection to the file: see [`Arrival`]. Whether all were hashed there: what
/// could not be stored is not, and its file has failed.
fn store_past_memory(
    line: &mut Line,
    way: Storage,
    sink: &Arc<Sink>,
    block: &Block,
    offset: u64,
    hasher: &mut BlockHasher,
) -> Result<bool, Error> {
    let mut is_hashed = true;
    for (at, count) in pieces(offset, block.len) {
        sink.piece_begun(block.index);
        let (intake, clock) = (&mut line.intake, &mut line.clock);
        let stored = line.arrival.take(way, intake, sink, at, count, clock)?;
        let stored = stored.and_then(|()| line.arrival.hash(sink, at, count, hasher));
        is_hashed &= stored.is_ok();
        line.clock.lap(Stage::Hash);
        let piece = Piece {
            sink: Arc::clone(sink),
            block: block.index,
            offset: at,
            len: count,
        };
        line.writer.follow(piece, stored);
        line.clock.lap(Stage::Disk);
    }
    Ok(is_hashed)
}

fn hash_zeros(hasher: &mut BlockHasher, mut len: u64) {
    static ZEROS: [u8; HASHED_BYTES] = [0; HASHED_BYTES];
    while len > 0 {
        let count = usize::try_from(len)
            .unwrap_or(HASHED_BYTES)
            .min(HASHED_BYTES);
        hasher.update(&ZEROS[..count]);
        len -= count as u64;
    }
}
