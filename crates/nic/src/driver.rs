//! The trait between an engine core and a network device, and the frames that cross it.
//!
//! Read first: the capability table in the design notes ("Drivers"), and for the offload fields
//! the virtio specification §5.1.6 ("Device Operation"), whose header they mirror.
//! Nothing here makes a system call.

use std::io;
use std::net::IpAddr;
use std::os::fd::{BorrowedFd, OwnedFd};

use ::wire::ethernet;

use crate::shared_slice::SharedSlice;

/// A 20-byte IP header and the longest TCP header (RFC 9293 §3.1, Data Offset).
pub const SEGMENT_HEADERS_BYTES: u32 = 20 + 60;

/// The largest TCP payload of one large segment on an ordinary device: an IPv4 packet of 65535
/// bytes (RFC 791 §3.1, Total Length) less its headers.
pub const LARGE_SEGMENT_BYTES: u32 = 65_535 - SEGMENT_HEADERS_BYTES;

/// The largest frame that crosses a driver: a full IPv4 packet behind an Ethernet header, with
/// a VLAN tag.
pub const MAX_FRAME_BYTES: usize = 65_535 + 14 + 4;

/// What a device does for the stack. Constant while the driver is open, but for MTU and hardware address, which
/// [`Driver::attend`] may find changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caps {
    /// The device finishes a partial checksum by itself (otherwise the driver does, in software).
    pub tx_checksum: bool,
    /// Received frames can arrive as [`RxChecksum::Verified`] or [`RxChecksum::Partial`].
    pub rx_checksum: bool,
    /// Most TCP payload bytes the driver takes in one large segment; 0: none.
    pub tso_max_bytes: u32,
    /// Runs of segments can arrive merged into one large frame.
    pub gro: bool,
    /// Independent receive queues with flow hashing.
    pub queues: u16,
    /// Payload spans are only ever read by the kernel, never by the driver itself: they may lie in a
    /// mapped file, which another process can cut short at any time.
    pub payload_by_address: bool,
    /// Each span of payload has to begin at an address that is a multiple of this; 1: anywhere. The engine copies the
    /// head of a span that does not ([`crate::align`]).
    pub align: u16,
    /// Largest IP packet on the link, in bytes.
    pub mtu: u32,
    /// The address that our side of the link uses.
    pub hardware_address: ethernet::Address,
}

/// What is known of a received frame's transport checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RxChecksum {
    /// Nothing: the receiver verifies it.
    Unknown,
    /// The device or the kernel verified it.
    Verified,
    /// The payload is right but the field holds only the pseudo-header sum: the frame comes from
    /// this very host and never met a wire.
    Partial,
}

/// A received frame, borrowed for the length of the callback.
#[derive(Debug, Clone, Copy)]
pub struct RxFrame<'a> {
    /// The frame from the Ethernet header on.
    pub bytes: &'a [u8],
    /// What is known of the transport checksum.
    pub checksum: RxChecksum,
    /// Payload size of the segments that were merged into this frame, if it is a merged one.
    pub segment_size: Option<u16>,
    /// When the kernel had it for the driver, in nanoseconds since 1970: as a packet socket stamps it, or when the XDP program saw it.
    /// `None` where nobody says so.
    pub arrived_at_ns: Option<u64>,
}

/// A transport checksum that the sender left unfinished: the field holds the folded, not
/// complemented, pseudo-header sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartialChecksum {
    /// Where summing starts, in bytes from the start of the frame.
    pub start: u16,
    /// Where the field lies, in bytes from `start`.
    pub offset: u16,
}

/// Spans of payload that a frame has at most: a ring that wraps makes two, and the head of what a device wants
/// aligned lies in another place.
pub const SPANS_MAX: usize = 3;

/// A frame to send: its headers and some spans of payload, which may lie in a ring that wraps.
#[derive(Debug, Clone, Copy)]
pub struct TxFrame<'a> {
    /// Everything before the payload, from the Ethernet header on.
    pub headers: &'a [u8],
    /// The payload, in order; unused spans are empty.
    pub payload: [SharedSlice<'a>; SPANS_MAX],
    /// The checksum that is still to be finished, if any.
    pub checksum: Option<PartialChecksum>,
    /// For a large segment: the payload size of the frames it is to be cut into.
    pub segment_size: Option<u16>,
}

impl<'a> TxFrame<'a> {
    /// These spans, and empty ones behind.
    #[must_use]
    pub fn spans<const N: usize>(given: [SharedSlice<'a>; N]) -> [SharedSlice<'a>; SPANS_MAX] {
        const { assert!(N <= SPANS_MAX) };
        let mut all = [SharedSlice::default(); SPANS_MAX];
        all[..N].copy_from_slice(&given);
        all
    }

    /// A frame that is complete as it stands: no payload spans, no offload.
    #[must_use]
    pub fn plain(bytes: &'a [u8]) -> Self {
        Self {
            headers: bytes,
            payload: Self::spans([]),
            checksum: None,
            segment_size: None,
        }
    }

    /// Bytes of payload in all spans.
    #[must_use]
    pub fn payload_len(&self) -> usize {
        self.payload.iter().map(SharedSlice::len).sum()
    }

    /// Bytes of the whole frame.
    #[must_use]
    pub fn frame_len(&self) -> usize {
        self.headers.len() + self.payload_len()
    }

    /// Whether a device has to cut this frame: it carries more than one segment's payload.
    #[must_use]
    pub fn is_large(&self) -> bool {
        self.segment_size
            .is_some_and(|size| size > 0 && self.payload_len() > usize::from(size))
    }
}

/// What has become known of a station that a driver reaches by itself, without anybody asking on the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LocalPeerChange {
    /// It is there: frames for this address are to be sent, whatever hardware address they name.
    Here(IpAddr),
    /// It is gone, with all its connections.
    Gone(IpAddr),
}

/// What has become of a device since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Presence {
    /// It is there.
    #[default]
    Up,
    /// It is switched off: nothing leaves and nothing comes until it is switched on.
    Down,
    /// There is no such device any more.
    Gone,
    /// It was gone, and one of its name has been taken into use just now: [`Driver::caps`] and [`Driver::wait_fd`] are
    /// of that one.
    Back {
        /// Its number.
        index: u32,
    },
}

/// Bytes of a control message to a local peer.
pub const CONTROL_MESSAGE_BYTES: usize = 48;

/// What one engine says to another besides frames.
pub type ControlMessage = [u8; CONTROL_MESSAGE_BYTES];

/// Stations on this host that a driver reaches by itself, and with which it shares memory that the engine uses.
pub trait LocalPeers {
    /// The local peer that has an address: frames for it go there.
    fn find(&self, address: IpAddr) -> Option<u64>;

    /// Whether the peer is there, or something that it has sent is still to be taken.
    fn knows(&self, peer: u64) -> bool;

    /// Whether a local peer has an address. One that is gone has none.
    fn has(&self, peer: u64, address: IpAddr) -> bool;

    /// The memory file that is shared with a local peer, for the first call; and whether this side has made it.
    fn take_memory(&mut self, peer: u64) -> Option<(OwnedFd, bool)>;

    /// Sends a message, after the frames that were sent before. False: it has to be sent again. A message to one that is gone
    /// is dropped.
    ///
    /// # Errors
    /// The driver failed.
    fn tell(&mut self, peer: u64, message: &ControlMessage) -> io::Result<bool>;

    /// The next message of a local peer, in each peer's order. While something is left [`Driver::prepare_wait`] says that
    /// there is work.
    fn hear(&mut self) -> Option<(u64, ControlMessage)>;
}

/// What passed a driver, and what it lost, since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Counters {
    /// Frames handed to the sink; a merged frame counts once.
    pub rx_frames: u64,
    /// Bytes of those frames, Ethernet header included.
    pub rx_bytes: u64,
    /// Frames lost before the sink: ring full, truncated, or of a kind the driver does not carry.
    pub rx_dropped: u64,
    /// Frames taken from the caller and sent; a large segment counts once.
    pub tx_frames: u64,
    /// Bytes of those frames.
    pub tx_bytes: u64,
    /// Frames taken from the caller that the device refused for good.
    pub tx_dropped: u64,
    /// Times the device was busy and a burst was cut short.
    pub tx_busy: u64,
    /// Frames of TCP that the device had put into a queue of another core: they come from there by way of the kernel (AF_XDP),
    /// or that core hands them over (DPDK).
    pub rx_elsewhere: u64,
}

impl core::ops::AddAssign for Counters {
    fn add_assign(&mut self, other: Self) {
        self.rx_frames += other.rx_frames;
        self.rx_bytes += other.rx_bytes;
        self.rx_dropped += other.rx_dropped;
        self.tx_frames += other.tx_frames;
        self.tx_bytes += other.tx_bytes;
        self.tx_dropped += other.tx_dropped;
        self.tx_busy += other.tx_busy;
        self.rx_elsewhere += other.rx_elsewhere;
    }
}

/// One network device, polled by one engine core.
///
/// None of the calls blocks. A driver that returns an error of kind
/// [`io::ErrorKind::NetworkUnreachable`] has found its interface down or gone, and says it once: frames are lost until it
/// is back, and [`Driver::attend`] looks for it. One of kind [`io::ErrorKind::NetworkDown`] has lost its interface for
/// good; any other error is a fault of the driver. A single bad frame is counted as dropped and never an error.
pub trait Driver: Send {
    /// What the device can do.
    fn caps(&self) -> &Caps;

    /// Hands up to `budget` received frames to `sink`, and returns how many.
    ///
    /// # Errors
    /// The interface is gone, or the driver failed.
    fn rx_burst(&mut self, budget: usize, sink: &mut dyn FnMut(RxFrame<'_>)) -> io::Result<usize>;

    /// False: a burst now would find nothing, as far as can be seen without a system call.
    fn may_have_frames(&self) -> bool {
        true
    }

    /// Sends frames in order and returns how many were taken; fewer than given means that the
    /// device is busy and the rest is to be offered again.
    ///
    /// Memory behind the frames is free again when the call returns.
    ///
    /// # Errors
    /// The interface is gone, or the driver failed. Frames before the failing one were taken.
    fn tx_burst(&mut self, frames: &[TxFrame<'_>]) -> io::Result<usize>;

    /// Hands on what [`Driver::tx_burst`] has taken and held back to spread the cost of a system call. To be
    /// called at the end of a poll that may have sent; [`Driver::prepare_wait`] does it as well.
    ///
    /// # Errors
    /// As [`Driver::tx_burst`].
    fn flush_tx(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// The descriptor that becomes readable when there is something to do; `None`: the driver can
    /// only be polled.
    fn wait_fd(&self) -> Option<BorrowedFd<'_>>;

    /// Announces that the caller is about to sleep on [`Driver::wait_fd`]. `false`: there is work
    /// already (frames to receive, or space after a busy transmit), do not sleep.
    ///
    /// # Errors
    /// The driver failed.
    fn prepare_wait(&mut self) -> io::Result<bool>;

    /// Nobody sleeps on [`Driver::wait_fd`] before the next [`Driver::prepare_wait`]. A watcher costs the sender of every
    /// frame time, so nothing behind the descriptor needs to be watched until then.
    ///
    /// # Errors
    /// The driver failed.
    fn stop_watch(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// The longest the caller may sleep, in microseconds from now, even if the descriptor stays
    /// silent; `None`: for ever.
    fn wait_deadline_us(&self) -> Option<u64> {
        None
    }

    /// Lets in what is sent to a group of stations, or stops doing so; each call that lets it in needs one that
    /// does not. For drivers that get all such frames anyway there is nothing to do.
    ///
    /// # Errors
    /// The device does not take it.
    fn listen_to(&mut self, group: [u8; 6], listen: bool) -> io::Result<()> {
        let _ = (group, listen);
        Ok(())
    }

    /// What has become known of stations that the driver reaches by itself, one at a time; nothing for most
    /// drivers. While something is left [`Driver::prepare_wait`] says that there is work.
    fn poll_local_peer(&mut self) -> Option<LocalPeerChange> {
        None
    }

    /// Whether [`Driver::poll_local_peer`] or [`LocalPeers::hear`] has something to say. Asked in every poll.
    fn has_peer_news(&self) -> bool {
        false
    }

    /// The stations reported by [`Driver::poll_local_peer`] with which it shares memory.
    fn local_peers(&mut self) -> Option<&mut dyn LocalPeers> {
        None
    }

    /// Looks at the device, and takes it into use again if it was gone and is there again under its name. To be
    /// called now and then, and after an error of kind [`io::ErrorKind::NetworkUnreachable`].
    fn attend(&mut self) -> Presence {
        Presence::Up
    }

    /// What has passed so far.
    fn counters(&self) -> Counters;

    /// By which of several ways the device is reached, for reports.
    fn mode(&self) -> Option<&'static str> {
        None
    }

    /// What is not as it was when the device was opened, for people, a sentence each. Asks the kernel: for
    /// reports, and now and then.
    fn complaints(&self) -> Vec<String> {
        Vec::new()
    }
}
