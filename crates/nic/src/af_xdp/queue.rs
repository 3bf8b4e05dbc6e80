//! One AF_XDP socket on one queue of an interface: frames out of its rings and into them. Read first:
//! `Documentation/networking/af_xdp.rst` of the kernel.
//!
//! What a ring shows is checked: a counter that cannot be is the end of the driver, an entry that names what
//! is not the kernel's is dropped and counted. A frame in several pieces is put together here.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::Duration;

use netlink::xdp;

use super::frames::Chunks;
use super::ring::Broken;
use super::stamps::Stamps;
use super::sys::{self, CHUNK_BYTES, Rings, Umem};
use crate::driver::MAX_FRAME_BYTES;
use crate::offload::Pieces;

/// Pieces of one frame that the kernel sends at most where it copies them (`MAX_SKB_FRAGS`).
pub(super) const PIECES_MAX: usize = 17;

/// How long a queue may take to be let go: two seconds, on a machine that has much else to do.
const RELEASE_TRIES: u32 = 400;
const RELEASE_PAUSE: Duration = Duration::from_millis(5);

/// How a queue is opened.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted {
    pub interface: u32,
    pub queue: u32,
    /// Chunks to receive into and to send from, powers of two.
    pub receiving: u32,
    pub sending: u32,
    /// Flags of bind(2), beside `XDP_USE_SG`, without which frames of several pieces vanish.
    pub flags: u16,
    pub relocate_fd: fn(OwnedFd) -> OwnedFd,
    /// The time stands before each frame.
    pub stamps: bool,
}

/// What is being put together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Gathering {
    /// The next piece starts a frame.
    Nothing,
    /// Pieces lie in the buffer.
    Pieces,
    /// A frame that cannot be delivered; its other pieces are passed over.
    Rest,
}

/// An open queue.
pub(super) struct Queue {
    // Rings and frames are unmapped before the socket closes: fields drop in order.
    rings: Rings,
    umem: Umem,
    chunks: Chunks,
    socket: OwnedFd,
    gathered: Vec<u8>,
    gathering: Gathering,
    /// When what is being put together arrived.
    gathered_at_ns: Option<u64>,
    stamps: Option<Stamps>,
    /// Pieces of a frame that is sent.
    pub pieces_max: usize,
    /// The device sends by itself, a little later, what the kernel was told of once.
    is_zero_copy: bool,
    /// Something is in the transmit ring of which the kernel was not told.
    pub is_unkicked: bool,
    /// Frames that could not be delivered.
    pub rx_dropped: u64,
    /// Frames that the device refused after they were taken.
    pub tx_dropped: u64,
}

impl Queue {
    pub(super) fn open(wanted: &Wanted) -> Result<Self, (&'static str, io::Error)> {
        let at = |call| move |error| (call, error);
        let socket = (wanted.relocate_fd)(sys::socket().map_err(at("socket(AF_XDP)"))?);
        let mut chunks = Chunks::new(wanted.receiving, wanted.sending);
        let umem = Umem::map(wanted.receiving + wanted.sending)
            .map_err(at("mapping memory for frames"))?;
        let fd = socket.as_fd();
        umem.register(fd)
            .map_err(at("registering memory for frames"))?;
        let mut rings =
            Rings::map(fd, wanted.receiving, wanted.sending).map_err(at("making rings"))?;
        sys::raise_budget(fd, wanted.sending);
        for chunk in chunks.for_receiving() {
            chunks.lend(chunk);
            // The ring has a slot for each.
            rings.fill.put(chunk.address());
        }
        rings.fill.publish();
        let pieces_max = bind_for_pieces(fd, wanted).map_err(at("bind"))?;
        Ok(Self {
            rings,
            umem,
            chunks,
            socket,
            gathered: Vec::new(),
            gathering: Gathering::Nothing,
            gathered_at_ns: None,
            stamps: wanted.stamps.then(Stamps::new),
            pieces_max,
            is_zero_copy: wanted.flags & libc::XDP_ZEROCOPY != 0,
            is_unkicked: false,
            rx_dropped: 0,
            tx_dropped: 0,
        })
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// The error that the interface left, once.
    pub(super) fn pending_error(&self) -> Option<io::Error> {
        sys::pending_error(self.socket())
    }

    pub(super) fn has_received(&mut self) -> Result<bool, Broken> {
        Ok(self.rings.rx.available()? > 0)
    }

    /// Hands up to `budget` frames to `sink`, with the time of their arrival where that is asked for; returns how many entries it
    /// looked at.
    pub(super) fn receive(
        &mut self,
        budget: usize,
        sink: &mut dyn FnMut(&[u8], Option<u64>),
    ) -> Result<usize, Broken> {
        if self.rings.rx.available()? == 0 {
            return Ok(0);
        }
        self.rings.fill.free()?;
        let (mut seen, mut frames) = (0, 0);
        while frames < budget
            && let Some(entry) = self.rings.rx.take()
        {
            seen += 1;
            let is_last = entry.options & libc::XDP_PKT_CONTD == 0;
            let Some(chunk) = self.chunks.received(entry.addr, entry.len) else {
                self.abandon(is_last);
                continue;
            };
            let len = usize::try_from(entry.len).unwrap_or(0);
            let stamp = self.stamps.as_ref();
            let arrived_at_ns = stamp.and_then(|stamps| stamps.take(&mut self.umem, entry.addr));
            // `received` has checked that it lies inside.
            let bytes = self.umem.bytes(entry.addr, len).unwrap_or_default();
            match self.gathering {
                Gathering::Nothing if is_last => {
                    sink(bytes, arrived_at_ns);
                    frames += 1;
                }
                Gathering::Nothing | Gathering::Pieces
                    if self.gathered.len() + len <= MAX_FRAME_BYTES =>
                {
                    if self.gathering == Gathering::Nothing {
                        self.gathered_at_ns = arrived_at_ns;
                    }
                    self.gathered.extend_from_slice(bytes);
                    self.gathering = Gathering::Pieces;
                    if is_last {
                        sink(&self.gathered, self.gathered_at_ns);
                        frames += 1;
                        self.gathered.clear();
                        self.gathering = Gathering::Nothing;
                    }
                }
                Gathering::Rest if is_last => self.gathering = Gathering::Nothing,
                Gathering::Rest => {}
                Gathering::Nothing | Gathering::Pieces => self.abandon(is_last),
            }
            self.chunks.lend(chunk);
            self.rings.fill.put(chunk.address());
        }
        self.rings.rx.release();
        self.rings.fill.publish();
        if self.rings.fill.needs_wakeup() {
            sys::kick_rx(&self.socket);
        }
        Ok(seen)
    }

    /// Gives up the frame of which this is a piece.
    fn abandon(&mut self, is_last: bool) {
        if self.gathering != Gathering::Rest {
            self.rx_dropped += 1;
        }
        self.gathered.clear();
        self.gathering = if is_last {
            Gathering::Nothing
        } else {
            Gathering::Rest
        };
    }

    /// Takes back what has been sent; returns how many pieces fit the transmit ring.
    pub(super) fn room(&mut self) -> Result<usize, Broken> {
        if self.rings.completion.available()? > 0 {
            while let Some(address) = self.rings.completion.take() {
                // One that was not on its way is no chunk more for us.
                self.chunks.sent(address);
            }
            self.rings.completion.release();
        }
        let free = usize::try_from(self.rings.tx.free()?).unwrap_or(0);
        Ok(free.min(self.chunks.free()))
    }

    /// Puts a frame of `len` bytes into the transmit ring, in as many pieces as it takes, for which there must be room: see
    /// [`Queue::room`]. Its checksum must lie in the first of them.
    pub(super) fn put(&mut self, len: usize, mut pieces: Pieces<'_, '_>) {
        let mut left = len;
        let mut first = None;
        while left > 0 {
            let chunk = self.chunks.send().expect("invariant: there is room");
            first.get_or_insert(chunk.address());
            let piece = left.min(CHUNK_BYTES);
            left -= piece;
            if let Some(target) = self.umem.bytes_mut(chunk.address(), piece) {
                pieces.write(target);
            }
            let entry = libc::xdp_desc {
                addr: chunk.address(),
                len: u32::try_from(piece).expect("invariant: a chunk at most"),
                options: if left == 0 { 0 } else { libc::XDP_PKT_CONTD },
            };
            // The ring has a slot for every chunk.
            self.rings.tx.put(entry);
        }
        self.is_unkicked = true;
        // The kernel does not see the frame before the next kick.
        if let Some((at, sum)) = pieces.checksum()
            && let Some(first) = first
            && let Some(field) = self.umem.bytes_mut(first + at as u64, sum.len())
        {
            field.copy_from_slice(&sum);
        }
    }

    /// Has the kernel send what is in the ring. `false`: the device is busy, and something is left.
    pub(super) fn kick(&mut self) -> io::Result<bool> {
        self.rings.tx.publish();
        if !self.rings.tx.needs_wakeup() {
            self.is_unkicked = false;
            return Ok(true);
        }
        // Each round sends at least one frame, so there are no more than the ring has entries.
        let mut waiting = self.rings.tx.waiting().map_err(broken)?;
        loop {
            let result = sys::kick_tx(&self.socket);
            let left = self.rings.tx.waiting().map_err(broken)?;
            match result.as_ref().map_err(io::Error::raw_os_error) {
                // The device dropped a frame; those behind it are not to blame.
                Err(Some(libc::EBUSY)) => self.tx_dropped += 1,
                Err(Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM | libc::EINTR)) | Ok(()) => {}
                Err(_) => return result.map(|()| false),
            }
            if left == 0 || self.is_zero_copy && result.is_ok() {
                self.is_unkicked = false;
                return Ok(true);
            }
            if left >= waiting {
                return Ok(false);
            }
            waiting = left;
        }
    }

    /// Frames that the kernel lost before they reached the ring.
    pub(super) fn lost(&self) -> u64 {
        sys::statistics(self.socket()).map_or(0, |counted| {
            // Ring full comes on top of the other reasons (xsk_getsockopt in net/xdp/xsk.c).
            counted.rx_dropped + counted.rx_ring_full
        })
    }
}

/// Binds for frames of several pieces, or of one where the device's driver takes no more in its own memory
/// (`xdp_zc_max_segs` in the kernel); returns how many.
fn bind_for_pieces(socket: BorrowedFd<'_>, wanted: &Wanted) -> io::Result<usize> {
    let with = |flags| Wanted { flags, ..*wanted };
    match bind(socket, &with(wanted.flags | libc::XDP_USE_SG)) {
        Err(error)
            if error.raw_os_error() == Some(libc::EOPNOTSUPP)
                && wanted.flags & libc::XDP_ZEROCOPY != 0 =>
        {
            bind(socket, wanted).map(|()| 1)
        }
        bound => bound.map(|()| match wanted.flags & libc::XDP_ZEROCOPY {
            0 => PIECES_MAX,
            _ => zero_copy_pieces(wanted.interface),
        }),
    }
}

/// Pieces of a frame that the device's driver takes in its own memory.
fn zero_copy_pieces(interface: u32) -> usize {
    let said = xdp::features(interface).map_or(1, |features| features.zero_copy_pieces);
    usize::try_from(said).map_or(PIECES_MAX, |pieces| pieces.clamp(1, PIECES_MAX))
}

/// Binds, and waits a little for a queue to be let go: the kernel does that from a worker, a moment after the
/// last user has closed it (`xp_put_pool` in net/xdp/xsk_buff_pool.c), so that an engine that follows another
/// finds it taken.
fn bind(socket: BorrowedFd<'_>, wanted: &Wanted) -> io::Result<()> {
    let mut patience = RELEASE_TRIES;
    loop {
        match sys::bind(socket, wanted.interface, wanted.queue, wanted.flags) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) && patience > 0 => {
                patience -= 1;
                std::thread::sleep(RELEASE_PAUSE);
            }
            result => return result,
        }
    }
}

/// A ring that shows what cannot be: a fault of the kernel, or memory that somebody else wrote.
pub(super) fn broken(error: Broken) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error.to_string())
}
