//! From the stack's frames to the driver: payload goes from the send window to the device by address,
//! without a copy here, and bytes of files from where they are mapped. Replies made while frames are being received wait in [`Replies`], since the
//! driver is busy handing them out.

use super::extents::{ExtentRows, SocketUse};
pub use super::files::SourceFile;
use super::files::{self, FileRanges, Tickets};
pub use super::loopback::{LOOPBACK_ADDRESSES, LOOPBACK_INDEX, Loopback};
use super::replies::Replies;
use super::{Device, sys};
use crate::device::capture::Captures;
use crate::device::queues::Queues;
use crate::stamps::Shown;
use crate::state::rows::ExtentRow;
use core::net::IpAddr;
use hostif::stages::{Mark, mark};
use hostif::window::WindowSpan;
use hostif::{HeaderPlace, Region, Window, WindowPlace};
use nic::{Aligner, Driver, SharedSlice, TxFrame};
use stack::{Busy, Egress, EgressCaps, Frame, InterfaceId, Payload};
use std::cell::OnceCell;
use std::sync::Arc;

/// Neighbours that are asked for in one poll at most.
const UNRESOLVED_MAX: usize = 64;

/// Where a connection's send window is.
pub struct SendWindow {
    /// Its region.
    pub region: Region,
    /// The window in it.
    pub span: WindowSpan,
    /// The socket's header, which says where the stream lies in the window.
    pub header: HeaderPlace,
}

impl SendWindow {
    /// That window in a region, of the socket with header number `header`; `None`: there is no such header.
    pub fn of(region: Region, span: WindowSpan, header: u32) -> Option<Self> {
        let header = region.header_place(header)?;
        Some(Self {
            region,
            span,
            header,
        })
    }
}

/// What a socket sends from.
struct Source {
    window: SendWindow,
    /// The window, once something was sent from it.
    place: OnceCell<WindowPlace>,
    files: FileRanges,
}

impl Source {
    /// The window; `None`: it cannot be mapped.
    #[inline(always)]
    fn window(&self) -> Option<Window<'_>> {
        let window = match self.place.get() {
            Some(place) => place.window(),
            None => self.find_window()?,
        };
        Some(self.window.header.header().place_sent(window))
    }

    #[inline(never)]
    fn find_window(&self) -> Option<Window<'_>> {
        let place = self.window.region.window_place(self.window.span).ok()?;
        Some(self.place.get_or_init(|| place).window())
    }
}

/// The driver, with what it takes to send.
pub struct Link {
    /// The driver.
    pub driver: Box<dyn Driver>,
    /// What it takes at once, which does not change.
    caps: EgressCaps,
    /// By socket row.
    sources: Vec<Option<Source>>,
    tickets: Tickets,
    /// What of streams is in files, for the next engine.
    pub(crate) extents: ExtentRows,
    /// The way back to this engine's own addresses.
    pub loopback: Loopback,
    /// Bytes of files that were read into windows.
    read_bytes: u64,
    /// For a device that is particular about addresses.
    aligner: Aligner,
    /// Neighbours that the kernel is to be asked for.
    pub unresolved: Vec<IpAddr>,
    /// Whether the device's queues move.
    pub queues: Queues,
    /// How the device is.
    pub device: Device,
    /// Who looks at the frames that pass.
    pub captures: Captures,
}

impl Link {
    /// A link over `driver` for sockets in `rows` rows.
    pub fn new(
        driver: Box<dyn Driver>,
        rows: usize,
        loopback: InterfaceId,
        extents: &'static mut [ExtentRow],
    ) -> Self {
        let aligner = Aligner::new(driver.caps().align);
        Self {
            aligner,
            caps: caps(&*driver),
            driver,
            // Capacity for all, which costs no memory before it is used.
            sources: Vec::with_capacity(rows),
            tickets: Tickets::default(),
            extents: ExtentRows::new(extents),
            loopback: Loopback::new(loopback),
            read_bytes: 0,
            unresolved: Vec::new(),
            queues: Queues::default(),
            device: Device::default(),
            captures: Captures::default(),
        }
    }

    /// Sets or forgets the send window of a socket.
    pub fn set_window(&mut self, row: u32, window: Option<SendWindow>) {
        let Ok(row) = usize::try_from(row) else {
            return;
        };
        if self.sources.len() <= row && row < self.sources.capacity() {
            self.sources.resize_with(row + 1, || None);
        }
        if let Some(slot) = self.sources.get_mut(row) {
            if let Some(before) = slot {
                before.files.release(&mut self.extents, u64::MAX);
            }
            *slot = window.map(|window| Source {
                window,
                place: OnceCell::new(),
                files: FileRanges::default(),
            });
        }
    }

    /// The bytes of a socket's stream from `start` to `end`, which follows all others, are in a file
    /// from `offset` on. They are mapped if the driver can take them there, else read into the window.
    ///
    /// # Errors
    /// [`FileTooShort`].
    pub fn add_file(
        &mut self,
        of: SocketUse,
        file: &Arc<SourceFile>,
        offset: u64,
        start: u64,
        end: u64,
    ) -> Result<IsMapped, FileTooShort> {
        // Heads of spans are copied here where a device wants them aligned, but a mapped file is for the kernel alone.
        let caps = self.driver.caps();
        let by_address = caps.payload_by_address && caps.align <= 1;
        let source = source(&mut self.sources, of.row).ok_or(FileTooShort)?;
        let mapped = if by_address {
            let tables = (&self.tickets, &mut self.extents);
            source.files.add(tables, of, file, offset, start, end)
        } else {
            start
        };
        let is_mapped = IsMapped(!source.files.is_empty());
        if mapped < end {
            self.read_file(of.row, file, offset + (mapped - start), mapped, end)?;
        }
        Ok(is_mapped)
    }

    /// Reads bytes of a file into the window, where the program has left free space for them.
    ///
    /// # Errors
    /// [`FileTooShort`].
    pub fn read_file(
        &mut self,
        row: u32,
        file: &SourceFile,
        offset: u64,
        start: u64,
        end: u64,
    ) -> Result<(), FileTooShort> {
        let source = source(&mut self.sources, row).ok_or(FileTooShort)?;
        let window = source.window();
        let window = window.ok_or(FileTooShort)?;
        // That the window has space for them is not known yet.
        let fits = end - start <= u64::try_from(window.size()).unwrap_or(u64::MAX);
        if fits && files::read(file.file(), offset, &window, start, end) {
            self.read_bytes += end - start;
            Ok(())
        } else {
            Err(FileTooShort)
        }
    }

    /// The peer has acknowledged bytes of a socket with mapped files.
    pub fn release_files(&mut self, row: u32, acknowledged: u64) -> IsMapped {
        let Some(source) = source(&mut self.sources, row) else {
            return IsMapped(false);
        };
        source.files.release(&mut self.extents, acknowledged);
        IsMapped(!source.files.is_empty())
    }

    /// Bytes to be sent that were copied here.
    pub fn copied_bytes(&self) -> u64 {
        self.read_bytes + self.loopback.copied_bytes + self.aligner.copied_bytes()
    }

    /// Pieces of files that are mapped.
    #[cfg(test)]
    pub fn mapped_pieces(&self) -> usize {
        self.tickets.count()
    }

    /// Hands on what the driver has held back.
    pub fn flush(&mut self) {
        if let Err(error) = self.driver.flush_tx() {
            self.device.on_failure(error);
        }
    }

    fn send(&mut self, frame: &TxFrame<'_>) -> Result<(), Busy> {
        send(&mut *self.driver, &mut self.queues, &mut self.device, frame)
    }

    fn capture_sent(&mut self, frame: &Frame<'_>) {
        let mut captures = std::mem::take(&mut self.captures);
        captures.add(true, |max| {
            let shown = self.head_of(frame, max);
            (shown.bytes, shown.len)
        });
        self.captures = captures;
    }

    /// The first bytes of a frame, at most `max`, and its length.
    pub(crate) fn head_of(&self, frame: &Frame<'_>, max: usize) -> Shown {
        let mut head = frame.headers[..frame.headers.len().min(max)].to_vec();
        let left = max - head.len();
        let payload_len = match frame.payload {
            Payload::None => 0,
            Payload::Bytes(bytes) => {
                head.extend_from_slice(&bytes[..bytes.len().min(left)]);
                bytes.len()
            }
            Payload::Window {
                owner, offset, len, ..
            } => {
                let len = usize::try_from(len).unwrap_or(0);
                let row = hostif::SocketId::from_bits(owner).map(hostif::SocketId::row);
                let source = row
                    .and_then(|row| self.sources.get(usize::try_from(row).ok()?)?.as_ref())
                    .filter(|source| source.files.is_empty());
                let window = source.and_then(Source::window);
                if let Some(window) = window {
                    let mut copy = vec![0; len.min(left)];
                    window.copy_out(offset, &mut copy);
                    head.extend_from_slice(&copy);
                }
                len
            }
        };
        let len = frame.headers.len() + payload_len;
        Shown {
            bytes: head,
            headers: frame.headers.len(),
            len: u32::try_from(len).unwrap_or(u32::MAX),
        }
    }

    /// Sends the replies that waited; what the device does not take is lost, and the peer asks again.
    pub fn send_replies(&mut self, replies: &mut Replies) {
        while let Some(reply) = replies.waiting.pop_front() {
            let frame = TxFrame {
                checksum: reply.checksum,
                ..TxFrame::plain(&reply.bytes)
            };
            let _ = if reply.interface == self.loopback.interface() {
                self.loopback.push(&frame)
            } else {
                self.send(&frame)
            };
            if !self.captures.is_empty() {
                self.captures.add(true, |max| head(&reply.bytes, max));
            }
            replies.spare.push(reply.bytes);
        }
    }
}

/// Whether a socket has bytes in mapped files, so that the link must hear of acknowledgements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IsMapped(pub bool);

/// The file ends before the bytes that the program named.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileTooShort;

fn source(sources: &mut [Option<Source>], row: u32) -> Option<&mut Source> {
    sources.get_mut(usize::try_from(row).ok()?)?.as_mut()
}

#[inline(always)]
fn send(
    driver: &mut dyn Driver,
    queues: &mut Queues,
    device: &mut Device,
    frame: &TxFrame<'_>,
) -> Result<(), Busy> {
    match driver.tx_burst(core::slice::from_ref(frame)) {
        Ok(taken) => queues.on_offered(taken == 1),
        Err(error) => {
            let is_passing = device.on_failure(error);
            // What is lost as on a cut cable is not offered again: whoever waits for space in the queue would wait for ever.
            if is_passing { Ok(()) } else { Err(Busy) }
        }
    }
}

pub(super) fn caps(driver: &dyn Driver) -> EgressCaps {
    // The driver counts payload, the stack whole IP packets: headers of 20 + 60 bytes lie between.
    let payload = driver.caps().tso_max_bytes;
    EgressCaps {
        max_segment_bytes: if payload == 0 { 0 } else { payload + 80 },
    }
}

pub(super) fn partial(frame: &Frame<'_>) -> Option<nic::PartialChecksum> {
    frame.checksum.map(|checksum| nic::PartialChecksum {
        start: checksum.start,
        offset: checksum.offset,
    })
}

impl Egress for Link {
    fn caps(&self, interface: InterfaceId) -> EgressCaps {
        if interface == self.loopback.interface() {
            Loopback::CAPS
        } else {
            self.caps
        }
    }

    fn resolve(&mut self, _interface: InterfaceId, address: IpAddr) {
        // Who is not asked for now is asked for again by the neighbour's timer.
        if self.unresolved.len() < UNRESOLVED_MAX {
            self.unresolved.push(address);
        }
    }

    fn transmit(&mut self, frame: &Frame<'_>) -> Result<(), Busy> {
        let (checksum, segment_size) = (partial(frame), frame.segment_size);
        let payload = match frame.payload {
            Payload::None => TxFrame::spans([]),
            Payload::Bytes(bytes) => TxFrame::spans([SharedSlice::from(bytes)]),
            Payload::Window {
                owner, offset, len, ..
            } => {
                let row = hostif::SocketId::from_bits(owner).map(hostif::SocketId::row);
                // A connection has a window before it has anything to send; without one its bytes
                // could not be told, so the frame is dropped and retransmission finds the same.
                let Some(source) = row.and_then(|row| source(&mut self.sources, row)) else {
                    return Ok(());
                };
                let Some(window) = source.window() else {
                    return Ok(());
                };
                let len = usize::try_from(len).unwrap_or(0);
                let spans = if source.files.is_empty() {
                    window.spans(offset, len).map(sys::shared)
                } else {
                    // A file that was cut short: lost like a frame on the wire, until the program or
                    // the retransmission limit ends the connection.
                    let Some(spans) = source.files.spans(&window, offset, len) else {
                        return Ok(());
                    };
                    spans
                };
                TxFrame::spans(spans)
            }
        };
        let whole = TxFrame {
            headers: frame.headers,
            payload,
            checksum,
            segment_size,
        };
        if matches!(frame.payload, Payload::Window { .. }) {
            mark(Mark::Transmit);
        }
        if frame.interface == self.loopback.interface() {
            self.loopback.push(&whole)?;
        } else {
            let (queues, device) = (&mut self.queues, &mut self.device);
            if self.aligner.is_off() {
                send(&mut *self.driver, queues, device, &whole)?;
            } else {
                let aligned = self.aligner.align(&whole);
                send(&mut *self.driver, queues, device, &aligned)?;
            }
        }
        if !self.captures.is_empty() {
            self.capture_sent(frame);
        }
        Ok(())
    }
}

/// The link, where somebody looks at each frame that has left.
pub(crate) struct Observed<'a, F> {
    pub(crate) link: &'a mut Link,
    pub(crate) see: F,
}

impl<F: FnMut(&Link, &Frame<'_>)> Egress for Observed<'_, F> {
    fn caps(&self, interface: InterfaceId) -> EgressCaps {
        self.link.caps(interface)
    }

    fn resolve(&mut self, interface: InterfaceId, address: IpAddr) {
        self.link.resolve(interface, address);
    }

    fn transmit(&mut self, frame: &Frame<'_>) -> Result<(), Busy> {
        self.link.transmit(frame)?;
        (self.see)(self.link, frame);
        Ok(())
    }
}

/// The first bytes of a frame that is in one piece, and its length.
pub fn head(frame: &[u8], max: usize) -> (Vec<u8>, u32) {
    let len = u32::try_from(frame.len()).unwrap_or(u32::MAX);
    (frame[..frame.len().min(max)].to_vec(), len)
}
