//! The byte channels of a connection to a program of this host that has an engine inside, or is on the same engine (`hostif::byte_channel`): its bytes are copied
//! into memory which that program reads, and out of what it has written, and no engine hears of them unless
//! somebody sleeps.
//!
//! Nothing else of a socket changes: errors, ends and urgent data come by the engine as ever. What was sent by segments
//! before and after a byte channel is told from what it carries by stream positions; see `hostif::byte_channel`.

use std::io::IoSlice;

use hostif::byte_channel::{BYTE_CHANNEL_BYTES, Reader};
use hostif::header::{LaneState, SHUT_WRITE, SlotName};
use hostif::large_copy::LargeCopies;
use hostif::{ChannelPair, LaneNews, Op, Span, WriteMode};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

use crate::engines::inline_engine;
use crate::readiness::State;
use crate::socket::{LockGuard, Socket};
use crate::tcp::socket::TcpSocket;
use crate::wait::look;

/// Of a long write or read the other side hears piece by piece, so that both sides work at the same time.
pub(crate) const PIECE_BYTES: usize = 32 * 1024;
/// The local peer has read what is overwritten, on whatever processor it runs.
static COPIES: LargeCopies = LargeCopies::new();
/// What a receiver is taken to hold beside the sender's SO_SNDBUF.
const RECEIVER_BYTES: u64 = 64 * 1024;

/// Both byte channels, as this process has them mapped.
pub(crate) struct ByteChannels {
    pub(crate) out: ChannelPair,
    pub(crate) back: ChannelPair,
}

/// Free bytes of the outgoing byte channel, with the send lock held.
pub(crate) struct ChannelSpace<'a> {
    socket: &'a TcpSocket,
    channel_pair: &'a ChannelPair,
    written: u64,
    /// Bytes that fit.
    pub(crate) free: usize,
    capacity: u64,
    /// Of what is committed.
    pub(crate) mode: WriteMode,
    _held: LockGuard<'a>,
}

/// What became of bytes that were told of.
enum Told {
    Sent,
    /// Nobody reads the byte channel any more, and nobody has read these.
    Unread,
}

impl TcpSocket {
    /// The byte channels, if this process has looked at them.
    pub(crate) fn byte_channels(&self) -> Option<&ByteChannels> {
        self.byte_channels.get()
    }

    /// The byte channels, if there are any: the first look says to the local peer that somebody reads. Not to be called with
    /// a lock held that others take on behalf of this crate.
    #[inline(always)]
    pub(crate) fn meet_byte_channels(&self) -> Option<&ByteChannels> {
        if let Some(byte_channels) = self.byte_channels.get() {
            return Some(byte_channels);
        }
        self.meet_in_slot(self.header().slot()?)
    }

    #[inline(never)]
    fn meet_in_slot(&self, name: SlotName) -> Option<&ByteChannels> {
        let header = self.header();
        if !header.is_of(self.id()) || self.state() != State::Connected {
            return None;
        }
        let channel_region = self
            .session()
            .channel_region(self.id().core(), name.channel_region)
            .ok()?;
        let (out, back) = channel_region.channel_pairs(name.slot, name.side)?;
        let byte_channels = self
            .byte_channels
            .get_or_init(|| ByteChannels { out, back });
        byte_channels.back.byte_channel.begin();
        Some(byte_channels)
    }

    /// Bytes that can be read from the incoming byte channel.
    pub(crate) fn byte_channel_bytes(&self) -> u64 {
        let Some(byte_channels) = self.byte_channels() else {
            return 0;
        };
        let header = self.header();
        match byte_channels.back.byte_channel.origin() {
            // Where something of the stream before it is still on its way, nothing can be read.
            Some(origin) if header.received_end() >= origin => {
                let consumed = header.byte_channel_consumed();
                byte_channels
                    .back
                    .byte_channel
                    .available(consumed)
                    .unwrap_or(0)
            }
            _ => 0,
        }
    }

    /// Whether the incoming byte channel has what is to be read next.
    pub(crate) fn is_byte_channel_next(&self) -> bool {
        let origin = self
            .byte_channels()
            .and_then(|byte_channels| byte_channels.back.byte_channel.origin());
        origin.is_some_and(|origin| self.header().consumed() >= origin)
            && self.byte_channel_bytes() > 0
    }

    /// A thread is about to sleep, or wants to hear of every event: asks to be told of the next bytes in the byte channel,
    /// which has to be looked at once more after this.
    pub(crate) fn await_byte_channel(&self) {
        if let Some(byte_channels) = self.meet_byte_channels() {
            byte_channels.back.byte_channel.want_bytes();
        }
    }

    /// Whether something can be read, as poll(2) understands it. Where it cannot, the other program is asked to tell of the
    /// next bytes, unless the thread is going to look again and again.
    pub(crate) fn is_readable(&self) -> bool {
        if self.readable_bytes() > 0 {
            return true;
        }
        match self.byte_channels() {
            Some(byte_channels) if !look::looks_again() => {
                byte_channels.back.byte_channel.want_bytes();
                self.readable_bytes() > 0
            }
            _ => false,
        }
    }

    /// For who looks by [`TcpSocket::readable_bytes`] and [`TcpSocket::send_space`] and sleeps then: asks the other program to tell
    /// of the next bytes and of free space. True: it may have been too late for that, so look once more.
    pub fn await_other_program(&self) -> bool {
        let Some(byte_channels) = self.byte_channels() else {
            return false;
        };
        byte_channels.back.byte_channel.want_bytes();
        let _ = self.is_byte_channel_writable();
        true
    }

    /// Bytes that the byte channel may hold, and bytes in it; `None`: what is sent now goes by segments.
    pub(crate) fn byte_channel_use(&self) -> Option<(u64, u64)> {
        let byte_channels = self.byte_channels()?;
        let header = self.header();
        let is_used = match header.byte_channel_state() {
            LaneState::Open => true,
            LaneState::Unused => byte_channels.out.byte_channel.reader() == Reader::Reads,
            LaneState::Over => false,
        };
        if !is_used {
            return None;
        }
        // Who sends finds out what is wrong with it.
        let used = byte_channels
            .out
            .byte_channel
            .used(header.byte_channel_written())
            .unwrap_or(0);
        Some((self.byte_channel_capacity(), used))
    }

    fn byte_channel_capacity(&self) -> u64 {
        let most = u64::from(BYTE_CHANNEL_BYTES);
        let send = self.spans().map_or(BYTE_CHANNEL_BYTES, |(send, _)| {
            self.header().send_limit(send.size)
        });
        most.min(u64::from(send) + RECEIVER_BYTES)
    }

    /// Whether the byte channel is writable as poll(2) understands it; `None`: what is sent goes by segments. Where it has not,
    /// the local peer is asked to tell of free space, unless the thread is going to look again and again.
    pub(crate) fn is_byte_channel_writable(&self) -> Option<bool> {
        let (capacity, used) = self.byte_channel_use()?;
        // As `hostif::window::is_writable`.
        let enough = capacity / 3 * 2;
        if used <= enough {
            return Some(true);
        }
        if look::looks_again() {
            return Some(false);
        }
        self.byte_channels()?.out.byte_channel.want_capacity(enough);
        Some(self.byte_channel_use()?.1 <= enough)
    }

    /// Sends by the byte channel. `None`: by segments.
    pub(crate) fn try_send_byte_channel(
        &self,
        slices: &[IoSlice<'_>],
        mode: WriteMode,
    ) -> Result<Option<usize>, Errno> {
        let Some(mut room) = self.free_in_byte_channel(mode)? else {
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
                let bytes = room.channel_pair.bytes();
                COPIES.copy_in(&bytes, room.written, piece, now_ns);
                match room.tell(piece.len())? {
                    Told::Sent => {
                        if done == 0 {
                            self.header().program_count_write();
                        }
                        done += piece.len();
                    }
                    // By segments: the local peer's stack answers as it does to what comes too late.
                    Told::Unread => return Ok((done > 0).then_some(done)),
                }
                left = rest;
            }
        }
        Ok(Some(done))
    }

    /// Free space in the byte channel; `None`: what is sent goes by segments from now on, or still does.
    pub(crate) fn free_in_byte_channel(
        &self,
        mode: WriteMode,
    ) -> Result<Option<ChannelSpace<'_>>, Errno> {
        let header = self.header();
        if header.byte_channel_state() == LaneState::Over {
            return Ok(None);
        }
        let Some(byte_channels) = self.meet_byte_channels() else {
            return Ok(None);
        };
        let reader = byte_channels.out.byte_channel.reader();
        let is_unused = || header.byte_channel_state() == LaneState::Unused;
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
        match header.byte_channel_state() {
            LaneState::Open => {}
            LaneState::Over => return Ok(None),
            LaneState::Unused => {
                // What was sent by segments and held back until now is what the receiver waits for first.
                inline_engine::flush_small();
                byte_channels.out.byte_channel.open(header.written());
                header.program_set_byte_channel_state(LaneState::Open);
            }
        }
        if mode == WriteMode::Urgent || reader == Reader::Gone {
            // Once and for all: what is behind the urgent byte follows it.
            byte_channels.out.byte_channel.end();
            header.program_set_byte_channel_state(LaneState::Over);
            return Ok(None);
        }
        let written = header.byte_channel_written();
        let capacity = self.byte_channel_capacity();
        let used = written.saturating_sub(header.byte_channel_freed());
        let free = usize::try_from(capacity.saturating_sub(used)).unwrap_or(0);
        Ok(Some(ChannelSpace {
            socket: self,
            channel_pair: &byte_channels.out,
            written,
            free,
            capacity,
            mode,
            _held: held,
        }))
    }

    /// Something that the local peer waits for has happened in a byte channel.
    pub(crate) fn tell_byte_channel(&self, news: LaneNews) -> Result<(), Errno> {
        self.session().post(self.id(), Op::TellLane(news))
    }

    /// The local peer has written a position that cannot be.
    pub(crate) fn on_byte_channel_nonsense(&self) -> Errno {
        let _ = self.tell_byte_channel(LaneNews::Nonsense);
        Errno::CONNRESET
    }
}

fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let [s, ns] = [now.tv_sec, now.tv_nsec].map(|part| u64::try_from(part).unwrap_or(0));
    s * 1_000_000_000 + ns
}

impl ChannelSpace<'_> {
    /// Looks how much has become free.
    fn look(&mut self) -> Result<(), Errno> {
        let used = self
            .channel_pair
            .byte_channel
            .used(self.written)
            .map_err(|_| self.socket.on_byte_channel_nonsense())?;
        self.socket
            .header()
            .program_set_byte_channel_freed(self.written - used);
        self.free = usize::try_from(self.capacity.saturating_sub(used)).unwrap_or(0);
        Ok(())
    }

    /// As [`ChannelSpace::look`] where there seems to be none.
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
        self.channel_pair
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
            self.channel_pair.bytes().copy_out(place, &mut last);
        }
        // Where nobody reads any more they are gone, as with a peer whose reset is on its way.
        self.tell(plain)?;
        if plain > 0 {
            self.socket.header().program_count_write();
        }
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
        let byte_channel = &self.channel_pair.byte_channel;
        let before = self.written;
        self.written += bytes as u64;
        self.free -= bytes;
        // The own position first: whoever goes on where a process has died must not tell of less than it has.
        header.program_set_byte_channel_written(self.written);
        let is_awaited = byte_channel.publish(self.written);
        if byte_channel.reader() == Reader::Gone {
            self.written = before;
            byte_channel.withdraw(before);
            header.program_set_byte_channel_written(before);
            byte_channel.end();
            header.program_set_byte_channel_state(LaneState::Over);
            return Ok(Told::Unread);
        }
        if is_awaited {
            self.socket.tell_byte_channel(LaneNews::Bytes)?;
        }
        Ok(Told::Sent)
    }
}
