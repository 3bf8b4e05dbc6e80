//! The memory of a receive ring, which the kernel shares with us. Which frame is the next one is `ring.rs`.

#![allow(unsafe_code)]

use std::io;
use std::marker::PhantomData;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use super::super::sys::set_option;
use super::Geometry;
use crate::sys::invalid;
use crate::vnet;

/// A frame in the ring, borrowed until it is given back.
pub(in super::super) struct RxFrame<'a> {
    /// The virtio header.
    pub offload: &'a [u8],
    /// As much of the frame as the ring holds.
    pub bytes: &'a [u8],
    /// Bytes of the frame on the link; more than `bytes` if it did not fit.
    pub frame_len: usize,
    /// A VLAN tag was taken out of the frame.
    pub tagged: bool,
    /// The frame did not fit and waits as a whole in the socket's queue.
    pub copied: bool,
    /// When the kernel put it there, in nanoseconds since 1970.
    pub arrived_at_ns: u64,
}

/// Frames of TPACKET_V2 of equal size, each owned by the kernel or by us according to its status word.
pub(super) struct Mapping {
    memory: NonNull<u8>,
    frame_bytes: usize,
    frame_count: usize,
}

// SAFETY: the mapping belongs to this value alone and is not tied to a thread.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Asks the socket for a ring.
    pub(super) fn request(socket: BorrowedFd<'_>, geometry: Geometry) -> io::Result<()> {
        let Geometry {
            frame_bytes,
            frame_count,
        } = geometry;
        let per_block = geometry.frames_per_block();
        let request = libc::tpacket_req {
            tp_block_size: frame_bytes.saturating_mul(per_block),
            tp_block_nr: frame_count / per_block,
            tp_frame_size: frame_bytes,
            tp_frame_nr: frame_count,
        };
        set_option(socket, libc::PACKET_RX_RING, &request)
    }

    /// Maps the ring that the socket has. EINVAL: it has none of this size.
    pub(super) fn map(socket: &OwnedFd, geometry: Geometry) -> io::Result<Self> {
        use rustix::mm::{MapFlags, ProtFlags, mmap};

        let frame_bytes = usize::try_from(geometry.frame_bytes).map_err(invalid)?;
        let frame_count = usize::try_from(geometry.frame_count).map_err(invalid)?;
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing of ours.
        let memory = unsafe {
            mmap(
                std::ptr::null_mut(),
                frame_bytes * frame_count,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                socket,
                0,
            )
        }?;
        let memory = NonNull::new(memory.cast()).ok_or_else(io::Error::last_os_error)?;
        Ok(Self {
            memory,
            frame_bytes,
            frame_count,
        })
    }

    pub(super) fn frame_count(&self) -> usize {
        self.frame_count
    }

    /// Frame `index`.
    #[inline(always)]
    pub(super) fn frame(&self, index: usize) -> Frame<'_> {
        assert!(
            index < self.frame_count,
            "invariant: ring indexes are taken modulo the count"
        );
        Frame {
            // SAFETY: the index was just checked, so the offset lies inside the mapping.
            start: unsafe { self.memory.add(index * self.frame_bytes) },
            bytes: self.frame_bytes,
            mapping: PhantomData,
        }
    }

    /// Gives frame `index` back to the kernel. `&mut`: no slot is borrowed any more.
    #[inline(always)]
    pub(super) fn release(&mut self, index: usize) {
        self.frame(index)
            .status()
            .store(libc::TP_STATUS_KERNEL, Ordering::Release);
    }
}

/// A place in the ring.
pub(super) struct Frame<'a> {
    start: NonNull<u8>,
    bytes: usize,
    mapping: PhantomData<&'a Mapping>,
}

impl<'a> Frame<'a> {
    /// A word of the header that the kernel sets to zero whenever it fills the frame, and never reads.
    #[inline(always)]
    pub(super) fn note(&self) -> &'a AtomicU32 {
        let offset = std::mem::offset_of!(libc::tpacket2_hdr, tp_padding);
        // SAFETY: the header lies at the frame's start, inside the mapping; the padding is four bytes at a multiple of
        // four, which nobody else touches while the frame is ours, and which may have any value.
        unsafe { self.start.add(offset).cast::<AtomicU32>().as_ref() }
    }

    fn status(&self) -> &'a AtomicU32 {
        // SAFETY: `tp_status` is the first field of each frame, frames are page-aligned, and both
        // the kernel and we touch the word only as a whole.
        unsafe { self.start.cast::<AtomicU32>().as_ref() }
    }

    /// Whether it is ours to read.
    pub(super) fn is_ready(&self) -> bool {
        self.status().load(Ordering::Acquire) & libc::TP_STATUS_USER != 0
    }

    /// What is in it, if it is ready; `None`: it is not, or its header points outside it.
    #[inline(always)]
    pub(super) fn slot(&self) -> Option<RxFrame<'a>> {
        let status = self.status().load(Ordering::Acquire);
        if status & libc::TP_STATUS_USER == 0 {
            return None;
        }
        // SAFETY: the status was read with Acquire and says that the kernel has finished the
        // frame and will not write it before `release`; the header lies at its start.
        let (header, bytes) = unsafe {
            let header = self.start.cast::<libc::tpacket2_hdr>().read();
            (
                header,
                std::slice::from_raw_parts(self.start.as_ptr(), self.bytes),
            )
        };
        let start = usize::from(header.tp_mac);
        let end = start.checked_add(usize::try_from(header.tp_snaplen).ok()?)?;
        Some(RxFrame {
            // packet_recv in the kernel's af_packet.c puts the header right before the frame.
            offload: bytes.get(start.checked_sub(vnet::LEN)?..start)?,
            bytes: bytes.get(start..end)?,
            frame_len: usize::try_from(header.tp_len).ok()?,
            tagged: status & libc::TP_STATUS_VLAN_VALID != 0,
            copied: status & libc::TP_STATUS_COPY != 0,
            arrived_at_ns: u64::from(header.tp_sec) * 1_000_000_000 + u64::from(header.tp_nsec),
        })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: address and length are those of the mapping, and no slot outlives the ring.
        // Failure leaks address space and nothing else.
        let _ = unsafe {
            rustix::mm::munmap(
                self.memory.as_ptr().cast(),
                self.frame_bytes * self.frame_count,
            )
        };
    }
}
