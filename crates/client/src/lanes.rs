//! The lanes of a connection to a program of this host that has an engine inside (`hostif::lane`): its bytes are copied
//! into memory which that program reads, and out of what it has written, and no engine hears of them unless
//! somebody sleeps.
//!
//! Nothing else of a socket changes: errors, ends and urgent data come by the engine as ever. What was sent by segments
//! before and after a lane is told apart by stream positions; see there.

use std::cell::Cell;
use std::io::IoSlice;

use hostif::header::{LaneState, SHUT_WRITE};
use hostif::lane::{LANE_BYTES, Reader};
use hostif::{LaneNews, Op, Passage, Span, WriteMode};
use rustix::io::Errno;

use crate::crank;
use crate::quiet::Quiet;
use crate::readiness::State;
use crate::socket::{Held, TcpSocket};

/// Of a long write or read the other side hears piece by piece, so that it works meanwhile.
pub(crate) const PIECE_BYTES: usize = 32 * 1024;
/// What a receiver is taken to hold beside the sender's SO_SNDBUF.
const RECEIVER_BYTES: u64 = 64 * 1024;

thread_local! {
    /// The thread looks again before it sleeps: nobody needs to be asked to tell it.
    static LOOKS_AGAIN: Cell<bool> = const { Cell::new(false) };
}

/// Looks whether a wait is over, of which the caller looks again before it sleeps. Handlers of signals are held back
/// meanwhile: what they look at they may not look at again.
pub(crate) fn look(ready: &mut dyn FnMut() -> bool) -> bool {
    let _quiet = Quiet::begin();
    LOOKS_AGAIN.with(|looks| looks.set(true));
    let is_over = ready();
    LOOKS_AGAIN.with(|looks| looks.set(false));
    is_over
}

/// Both lanes, as this process has them mapped.
pub(crate) struct Lanes {
    pub(crate) out: Passage,
    pub(crate) back: Passage,
}

/// Free bytes of the outgoing lane, with the send lock held.
pub(crate) struct LaneRoom<'a> {
    socket: &'a TcpSocket,
    passage: &'a Passage,
    written: u64,
    /// Bytes that fit.
    pub(crate) free: usize,
    capacity: u64,
    /// Of what is committed.
    pub(crate) mode: WriteMode,
    _held: Held<'a>,
}

/// What became of bytes that were told of.
enum Told {
    Sent,
    /// Nobody reads the lane any more, and nobody has read these.
    Unread,
}

impl TcpSocket {
    /// The lanes, if this process has looked at them.
    pub(crate) fn lanes(&self) -> Option<&Lanes> {
        self.lanes.get()
    }

    /// The lanes, if there are any: the first look says to the neighbour that somebody reads. Not to be called with
    /// a lock held that others take on behalf of this crate.
    pub(crate) fn meet_lanes(&self) -> Option<&Lanes> {
        if let Some(lanes) = self.lanes.get() {
            return Some(lanes);
        }
        let header = self.header();
        let name = header.slot()?;
        if !header.is_of(self.id()) || self.state() != State::Connected {
            return None;
        }
        let area = self.session().area(self.id().core(), name.area).ok()?;
        let (out, back) = area.passages(name.slot, name.side)?;
        let lanes = self.lanes.get_or_init(|| Lanes { out, back });
        lanes.back.lane.begin();
        Some(lanes)
    }

    /// Bytes that can be read from the incoming lane.
    pub(crate) fn lane_bytes(&self) -> u64 {
        let Some(lanes) = self.lanes() else {
            return 0;
        };
        let header = self.header();
        match lanes.back.lane.origin() {
            // Where something of the stream before it is still on its way, nothing can be read.
            Some(origin) if header.received_end() >= origin => {
                let consumed = header.lane_consumed();
                lanes.back.lane.available(consumed).unwrap_or(0)
            }
            _ => 0,
        }
    }

    /// Whether the incoming lane has what is to be read next.
    pub(crate) fn is_lane_next(&self) -> bool {
        let origin = self.lanes().and_then(|lanes| lanes.back.lane.origin());
        origin.is_some_and(|origin| self.header().consumed() >= origin) && self.lane_bytes() > 0
    }

    /// Somebody is about to sleep, or wants to hear of every event: the next bytes in the lane are to be told of. To
    /// be looked at once more after this.
    pub(crate) fn await_lane(&self) {
        if let Some(lanes) = self.meet_lanes() {
            lanes.back.lane.want_bytes();
        }
    }

    /// Whether what is sent now goes by the lane: of that, how much may be and how much is used.
    pub(crate) fn lane_use(&self) -> Option<(u64, u64)> {
        let lanes = self.lanes()?;
        let header = self.header();
        let is_used = match header.lane_state() {
            LaneState::Open => true,
            LaneState::Unused => lanes.out.lane.reader() == Reader::Reads,
            LaneState::Over => false,
        };
        if !is_used {
            return None;
        }
        // Who sends finds out what is wrong with it.
        let used = lanes.out.lane.used(header.lane_written()).unwrap_or(0);
        Some((self.lane_capacity(), used))
    }

    fn lane_capacity(&self) -> u64 {
        let most = u64::from(LANE_BYTES);
        let send = self
            .spans()
            .map_or(LANE_BYTES, |(send, _)| self.header().send_limit(send.size));
        most.min(u64::from(send) + RECEIVER_BYTES)
    }

    /// Whether the lane has room as poll(2) understands it; `None`: what is sent goes by segments. Where it has not,
    /// the neighbour is asked to tell, unless the thread is going to look again and again.
    pub(crate) fn is_lane_writable(&self) -> Option<bool> {
        let (capacity, used) = self.lane_use()?;
        // As `hostif::window::is_writable`.
        let enough = capacity / 3 * 2;
        if used <= enough {
            return Some(true);
        }
        if LOOKS_AGAIN.with(Cell::get) {
            return Some(false);
        }
        self.lanes()?.out.lane.want_room(enough);
        Some(self.lane_use()?.1 <= enough)
    }

    /// Sends by the lane. `None`: by segments.
    pub(crate) fn try_send_lane(
        &self,
        slices: &[IoSlice<'_>],
        mode: WriteMode,
    ) -> Result<Option<usize>, Errno> {
        let Some(mut room) = self.lane_room(mode)? else {
            return Ok(None);
        };
        let mut done = 0;
        for slice in slices {
            let mut left = &slice[..];
            while !left.is_empty() {
                if room.free == 0 {
                    room.look()?;
                }
                let (piece, rest) = left.split_at(left.len().min(room.free).min(PIECE_BYTES));
                if piece.is_empty() {
                    return if done > 0 {
                        Ok(Some(done))
                    } else {
                        drop(room);
                        self.on_idle_call();
                        Err(Errno::AGAIN)
                    };
                }
                room.passage.bytes().copy_in(room.written, piece);
                match room.tell(piece.len())? {
                    Told::Sent => done += piece.len(),
                    // By segments: the neighbour's stack answers as it does to what comes too late.
                    Told::Unread => return Ok((done > 0).then_some(done)),
                }
                left = rest;
            }
        }
        Ok(Some(done))
    }

    /// Room in the lane; `None`: what is sent goes by segments from now on, or still does.
    pub(crate) fn lane_room(&self, mode: WriteMode) -> Result<Option<LaneRoom<'_>>, Errno> {
        let header = self.header();
        if header.lane_state() == LaneState::Over {
            return Ok(None);
        }
        let Some(lanes) = self.meet_lanes() else {
            return Ok(None);
        };
        let reader = lanes.out.lane.reader();
        let is_unused = || header.lane_state() == LaneState::Unused;
        if is_unused() && (reader != Reader::Reads || mode == WriteMode::Urgent) {
            return Ok(None);
        }
        self.sendable()?;
        if self.state() != State::Connected {
            return Ok(None);
        }
        let attachment = self.attachment()?;
        let held = self.hold(attachment, header.send_lock())?;
        if header.shut() & SHUT_WRITE != 0 {
            return Err(Errno::PIPE);
        }
        match header.lane_state() {
            LaneState::Open => {}
            LaneState::Over => return Ok(None),
            LaneState::Unused => {
                // What was sent by segments and held back until now is what the receiver waits for first.
                crank::catch_up();
                lanes.out.lane.open(header.written());
                header.program_set_lane_state(LaneState::Open);
            }
        }
        if mode == WriteMode::Urgent || reader == Reader::Gone {
            // Once and for all: what is behind the urgent byte follows it.
            lanes.out.lane.end();
            header.program_set_lane_state(LaneState::Over);
            return Ok(None);
        }
        let written = header.lane_written();
        let capacity = self.lane_capacity();
        let used = written.saturating_sub(header.lane_freed());
        let free = usize::try_from(capacity.saturating_sub(used)).unwrap_or(0);
        Ok(Some(LaneRoom {
            socket: self,
            passage: &lanes.out,
            written,
            free,
            capacity,
            mode,
            _held: held,
        }))
    }

    /// Something that the neighbour waits for has happened in a lane.
    pub(crate) fn tell_lane(&self, news: LaneNews) -> Result<(), Errno> {
        self.session().post(self.id(), Op::TellLane(news))
    }

    /// The neighbour has written what cannot be.
    pub(crate) fn on_lane_nonsense(&self) -> Errno {
        let _ = self.tell_lane(LaneNews::Nonsense);
        Errno::CONNRESET
    }
}

impl LaneRoom<'_> {
    /// Looks how much has become free.
    fn look(&mut self) -> Result<(), Errno> {
        let used = self
            .passage
            .lane
            .used(self.written)
            .map_err(|_| self.socket.on_lane_nonsense())?;
        self.socket
            .header()
            .program_set_lane_freed(self.written - used);
        self.free = usize::try_from(self.capacity.saturating_sub(used)).unwrap_or(0);
        Ok(())
    }

    /// As [`LaneRoom::look`] where there seems to be none.
    pub(crate) fn or_look(mut self) -> Result<Self, Errno> {
        if self.free == 0 {
            self.look()?;
        }
        if self.free == 0 {
            return Err(Errno::AGAIN);
        }
        Ok(self)
    }

    /// The addresses of the free bytes: before the wrap and after it.
    pub(crate) fn spans(&self) -> [(*mut u8, usize); 2] {
        self.passage
            .bytes()
            .spans(self.written, self.free)
            .map(Span::raw)
    }

    /// Sends the next `bytes`, which are in their place.
    pub(crate) fn commit(mut self, bytes: usize) -> Result<usize, Errno> {
        let is_urgent = self.mode == WriteMode::Urgent;
        let plain = bytes - usize::from(is_urgent && bytes > 0);
        let mut last = [0];
        if plain < bytes {
            let place = self.written + plain as u64;
            self.passage.bytes().copy_out(place, &mut last);
        }
        // Where nobody reads any more they are gone, as with a peer whose reset is on its way.
        self.tell(plain)?;
        let socket = self.socket;
        drop(self);
        if plain == bytes {
            return Ok(bytes);
        }
        match socket.try_send_as(&[IoSlice::new(&last)], WriteMode::Urgent) {
            Ok(sent) => Ok(plain + sent),
            Err(_) if plain > 0 => Ok(plain),
            Err(error) => Err(error),
        }
    }

    fn tell(&mut self, bytes: usize) -> Result<Told, Errno> {
        let header = self.socket.header();
        let lane = &self.passage.lane;
        let before = self.written;
        self.written += bytes as u64;
        self.free -= bytes;
        // The own position first: whoever goes on where a process has died must not tell of less than it has.
        header.program_set_lane_written(self.written);
        let is_awaited = lane.publish(self.written);
        if lane.reader() == Reader::Gone {
            self.written = before;
            lane.withdraw(before);
            header.program_set_lane_written(before);
            lane.end();
            header.program_set_lane_state(LaneState::Over);
            return Ok(Told::Unread);
        }
        if is_awaited {
            self.socket.tell_lane(LaneNews::Bytes)?;
        }
        Ok(Told::Sent)
    }
}
