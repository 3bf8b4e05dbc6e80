//! A data connection: blocks and small files, each checked before it counts.

mod small;

use std::os::fd::AsFd;
use std::sync::Arc;

use super::Receiver;
use super::arrival::Arrival;
use super::sink::Sink;
use crate::checksum::{BlockHasher, BlockPosition, Digest};
use crate::connection::Connection;
use crate::error::Error;
use crate::lock::lock;
use crate::meter::{Clock, Stage};
use crate::packing::Unpacker;
use crate::probe::Answer;
use crate::protocol::{Block, Intake, Message, StageTimes};
use crate::session::Watch;
use crate::store::{PIECE_BYTES, Piece, Storage, Writer};

/// Bytes that are hashed at a time, while they are in the processor's cache.
const HASHED_BYTES: usize = 128 * 1024;
/// Small files that are told of in one message.
const TOLD_MAX: usize = 256;

/// What one data thread has.
struct Line {
    intake: Intake<Connection>,
    writer: Writer,
    arrival: Arrival,
    clock: Clock,
    /// Small files that are whole and not told of.
    done: Vec<u64>,
    /// Small files that are written and have no name yet.
    small: Vec<small::SmallPart>,
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
        let concluded = self.conclude_touched(&mut line);
        let told = self.tell_done(&mut line);
        self.note_arrival(&mut line.arrival);
        result.and(drained).and(concluded).and(told)?;
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
            self.conclude_touched(line)?;
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
            self.conclude_touched(line)?;
            if readable {
                break;
            }
        }
        Ok(())
    }

    fn conclude_touched(&self, line: &mut Line) -> Result<(), Error> {
        Watch::add(&self.watch.stored_bytes, line.writer.take_written());
        while let Some(sink) = line.writer.next_touched() {
            self.conclude(&sink)?;
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
            return self.conclude(&sink);
        }
        // The same range must not be written twice at one time.
        line.writer.drain()?;
        sink.block_differs(block.index);
        if sink.has_failed() {
            return self.conclude(&sink);
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
        line.writer.make_space(sink, &mut line.clock)?;
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
