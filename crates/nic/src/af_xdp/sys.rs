//! The system calls of AF_XDP and the memory that kernel and driver share: the frames (UMEM) and four rings.
//!
//! Read first: `Documentation/networking/af_xdp.rst` of the kernel. Who may touch which frame is decided in
//! `frames.rs`, what a counter may be in `ring.rs`.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

use super::ring::{Broken, Consumer, Producer};
use crate::sys::{self, done, invalid};

/// Bytes of one piece of the UMEM. The kernel takes a page at most.
pub(super) const CHUNK_BYTES: usize = 4096;
/// linux/if_xdp.h, kernel 6.18: frames that one call sends at most (`XDP_MAX_TX_SKB_BUDGET`).
const MAX_TX_BUDGET: libc::c_int = 9;

/// A mapping that ends with this value.
struct Mapping {
    memory: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to this value alone and is not tied to a thread.
unsafe impl Send for Mapping {}

impl Mapping {
    fn of(pointer: *mut core::ffi::c_void, len: usize) -> io::Result<Self> {
        let memory = NonNull::new(pointer.cast()).ok_or_else(io::Error::last_os_error)?;
        Ok(Self { memory, len })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: address and length are those of the mapping, and whatever borrows it borrows its owner.
        // Failure leaks address space and nothing else.
        let _ = unsafe { munmap(self.memory.as_ptr().cast(), self.len) };
    }
}

/// The frames: chunks that the kernel or we own, see `frames.rs`.
pub(super) struct Umem {
    mapping: Mapping,
}

impl Umem {
    /// Fresh memory for `chunks`. Shared, so that a forked child that goes on running the engine has the
    /// pages that the kernel fills, and not copies.
    pub(super) fn map(chunks: u32) -> io::Result<Self> {
        let len = usize::try_from(chunks).map_err(invalid)? * CHUNK_BYTES;
        let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing of ours.
        let memory = unsafe { mmap_anonymous(std::ptr::null_mut(), len, prot, flags) }?;
        Ok(Self {
            mapping: Mapping::of(memory, len)?,
        })
    }

    /// Lets the socket use this memory.
    pub(super) fn register(&self, socket: BorrowedFd<'_>) -> io::Result<()> {
        let registration = libc::xdp_umem_reg {
            addr: u64::try_from(self.mapping.memory.as_ptr().addr()).map_err(invalid)?,
            len: u64::try_from(self.mapping.len).map_err(invalid)?,
            chunk_size: u32::try_from(CHUNK_BYTES).map_err(invalid)?,
            headroom: 0,
            flags: 0,
            tx_metadata_len: 0,
        };
        set_option(socket, libc::XDP_UMEM_REG, &registration)
    }

    fn range(&self, at: u64, len: usize) -> Option<usize> {
        let start = usize::try_from(at).ok()?;
        let end = start.checked_add(len)?;
        (end <= self.mapping.len).then_some(start)
    }

    /// Bytes of a chunk that is ours; `None` if they lie outside.
    pub(super) fn bytes(&self, at: u64, len: usize) -> Option<&[u8]> {
        let start = self.range(at, len)?;
        // SAFETY: the range was just checked to lie inside the mapping, which outlives the borrow. The
        // caller owns the chunk (`frames.rs`): the kernel writes it only after it has got it back, and we
        // write chunks only through a unique borrow of this value.
        Some(unsafe { std::slice::from_raw_parts(self.mapping.memory.as_ptr().add(start), len) })
    }

    /// As [`Umem::bytes`], to be written.
    pub(super) fn bytes_mut(&mut self, at: u64, len: usize) -> Option<&mut [u8]> {
        let start = self.range(at, len)?;
        // SAFETY: as for `bytes`; `&mut self` makes it the only borrow.
        Some(unsafe {
            std::slice::from_raw_parts_mut(self.mapping.memory.as_ptr().add(start), len)
        })
    }
}

/// What lies in a ring: plain numbers in any bit pattern.
pub(super) trait Entry: Copy {}
impl Entry for u64 {}
impl Entry for libc::xdp_desc {}

/// The memory of one ring.
struct Shared<T> {
    mapping: Mapping,
    producer: usize,
    consumer: usize,
    flags: usize,
    entries: usize,
    size: u32,
    kind: std::marker::PhantomData<fn() -> T>,
}

impl<T: Entry> Shared<T> {
    fn map(
        socket: BorrowedFd<'_>,
        offsets: libc::xdp_ring_offset,
        size: u32,
        page: u64,
    ) -> io::Result<Self> {
        let at = |offset: u64| usize::try_from(offset).map_err(invalid);
        let entries = at(offsets.desc)?;
        let count = usize::try_from(size).map_err(invalid)?;
        let len = entries + count * size_of::<T>();
        let words = [offsets.producer, offsets.consumer, offsets.flags];
        let [producer, consumer, flags] = words.map(at);
        let (producer, consumer, flags) = (producer?, consumer?, flags?);
        // The kernel's own words, believed only where they stay inside.
        let is_inside = |word: usize| word.is_multiple_of(4) && word + 4 <= len;
        let words_are_inside = [producer, consumer, flags].into_iter().all(is_inside);
        if !words_are_inside || !entries.is_multiple_of(align_of::<T>()) {
            return Err(invalid(()));
        }
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        let flags_of_map = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing of ours.
        let memory = unsafe { mmap(std::ptr::null_mut(), len, prot, flags_of_map, socket, page) }?;
        Ok(Self {
            mapping: Mapping::of(memory, len)?,
            producer,
            consumer,
            flags,
            entries,
            size,
            kind: std::marker::PhantomData,
        })
    }

    fn word(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: the offset was checked to be aligned and inside the mapping, which outlives the borrow;
        // both the kernel and we touch the word only as a whole.
        unsafe { self.mapping.memory.add(offset).cast::<AtomicU32>().as_ref() }
    }

    fn entry(&self, index: u32) -> *mut T {
        assert!(index < self.size, "invariant: indexes are masked");
        let index = usize::try_from(index).expect("invariant: usize has 32 bits at least");
        // SAFETY: the index is below the size that the mapping was made for.
        unsafe {
            self.mapping
                .memory
                .add(self.entries)
                .cast::<T>()
                .add(index)
                .as_ptr()
        }
    }

    fn needs_wakeup(&self) -> bool {
        // The kernel publishes the flag before it stops looking; the fence orders our counter before it.
        std::sync::atomic::fence(Ordering::SeqCst);
        self.word(self.flags).load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }
}

/// A ring that we fill: chunks to be received into, or frames to be sent.
pub(super) struct ProducerRing<T> {
    shared: Shared<T>,
    view: Producer,
}

impl<T: Entry> ProducerRing<T> {
    /// Entries that can be put in.
    pub(super) fn free(&mut self) -> Result<u32, Broken> {
        let taken = self
            .shared
            .word(self.shared.consumer)
            .load(Ordering::Acquire);
        self.view.see(taken)?;
        Ok(self.view.free())
    }

    /// Entries that the kernel has not taken.
    pub(super) fn waiting(&mut self) -> Result<u32, Broken> {
        self.free()?;
        Ok(self.view.waiting())
    }

    /// Puts an entry in if there is room as far as [`ProducerRing::free`] found; seen by the kernel once published.
    pub(super) fn put(&mut self, entry: T) -> bool {
        let Some(index) = self.view.put() else {
            return false;
        };
        // SAFETY: `entry` checks the index; the slot is ours until it is published, because the consumer's
        // counter says that the kernel has taken what was there.
        unsafe { self.shared.entry(index).write(entry) };
        true
    }

    /// Lets the kernel see what was put in.
    pub(super) fn publish(&self) {
        let word = self.shared.word(self.shared.producer);
        word.store(self.view.counter(), Ordering::Release);
    }

    /// Whether the kernel wants to be told of new entries.
    pub(super) fn needs_wakeup(&self) -> bool {
        self.shared.needs_wakeup()
    }
}

/// A ring that the kernel fills: frames received, or chunks of frames sent.
pub(super) struct ConsumerRing<T> {
    shared: Shared<T>,
    view: Consumer,
}

impl<T: Entry> ConsumerRing<T> {
    /// Entries that can be taken.
    pub(super) fn available(&mut self) -> Result<u32, Broken> {
        let put_in = self
            .shared
            .word(self.shared.producer)
            .load(Ordering::Acquire);
        self.view.see(put_in)?;
        Ok(self.view.available())
    }

    /// The next entry, as far as [`ConsumerRing::available`] found some.
    pub(super) fn take(&mut self) -> Option<T> {
        let index = self.view.take()?;
        // SAFETY: `entry` checks the index; the producer's counter, read with Acquire, says that the kernel
        // has finished the entry, and it writes it again only after `release`.
        Some(unsafe { self.shared.entry(index).read() })
    }

    /// Gives the slots of what was taken back to the kernel.
    pub(super) fn release(&self) {
        let word = self.shared.word(self.shared.consumer);
        word.store(self.view.counter(), Ordering::Release);
    }
}

/// The rings of one socket.
pub(super) struct Rings {
    pub(super) fill: ProducerRing<u64>,
    pub(super) completion: ConsumerRing<u64>,
    pub(super) rx: ConsumerRing<libc::xdp_desc>,
    pub(super) tx: ProducerRing<libc::xdp_desc>,
}

impl Rings {
    /// Asks the socket for rings of so many entries and maps them.
    pub(super) fn map(socket: BorrowedFd<'_>, rx: u32, tx: u32) -> io::Result<Self> {
        for (option, entries) in [
            (libc::XDP_UMEM_FILL_RING, rx),
            (libc::XDP_UMEM_COMPLETION_RING, tx),
            (libc::XDP_RX_RING, rx),
            (libc::XDP_TX_RING, tx),
        ] {
            set_option(socket, option, &entries)?;
        }
        let offsets = offsets(socket)?;
        let page = |page: libc::off_t| u64::try_from(page).map_err(invalid);
        let fill = Shared::map(socket, offsets.fr, rx, libc::XDP_UMEM_PGOFF_FILL_RING)?;
        let completion = Shared::map(socket, offsets.cr, tx, libc::XDP_UMEM_PGOFF_COMPLETION_RING)?;
        let received = Shared::map(socket, offsets.rx, rx, page(libc::XDP_PGOFF_RX_RING)?)?;
        let sent = Shared::map(socket, offsets.tx, tx, page(libc::XDP_PGOFF_TX_RING)?)?;
        // Fresh rings start at 0.
        Ok(Self {
            fill: ProducerRing {
                shared: fill,
                view: Producer::new(rx, 0),
            },
            completion: ConsumerRing {
                shared: completion,
                view: Consumer::new(tx, 0),
            },
            rx: ConsumerRing {
                shared: received,
                view: Consumer::new(rx, 0),
            },
            tx: ProducerRing {
                shared: sent,
                view: Producer::new(tx, 0),
            },
        })
    }
}

pub(super) fn socket() -> io::Result<OwnedFd> {
    // SAFETY: no pointer is passed.
    let fd = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor for us, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Binds to one queue of an interface.
pub(super) fn bind(
    socket: BorrowedFd<'_>,
    interface: u32,
    queue: u32,
    flags: u16,
) -> io::Result<()> {
    let address = libc::sockaddr_xdp {
        sxdp_family: u16::try_from(libc::AF_XDP).map_err(invalid)?,
        sxdp_flags: flags,
        sxdp_ifindex: interface,
        sxdp_queue_id: queue,
        sxdp_shared_umem_fd: 0,
    };
    // SAFETY: the structure of this family.
    unsafe { sys::bind(socket, &address) }
}

/// One call sends up to `frames`; kernels before 6.18 stay at 32.
pub(super) fn raise_budget(socket: BorrowedFd<'_>, frames: u32) {
    let _ = set_option(socket, MAX_TX_BUDGET, &frames);
}

fn set_option<T>(socket: BorrowedFd<'_>, option: libc::c_int, value: &T) -> io::Result<()> {
    sys::set_option(socket, libc::SOL_XDP, option, value)
}

fn offsets(socket: BorrowedFd<'_>) -> io::Result<libc::xdp_mmap_offsets> {
    // SAFETY: the structure of this option.
    unsafe { sys::option(socket, libc::SOL_XDP, libc::XDP_MMAP_OFFSETS) }
}

/// What the kernel counted on this socket.
pub(super) fn statistics(socket: BorrowedFd<'_>) -> io::Result<libc::xdp_statistics> {
    // SAFETY: the structure of this option.
    unsafe { sys::option(socket, libc::SOL_XDP, libc::XDP_STATISTICS) }
}

/// Has the kernel send what is in the transmit ring.
pub(super) fn kick_tx(socket: &OwnedFd) -> io::Result<()> {
    // SAFETY: no payload and no address are passed.
    let result = unsafe {
        libc::sendto(
            socket.as_raw_fd(),
            std::ptr::null(),
            0,
            libc::MSG_DONTWAIT,
            std::ptr::null(),
            0,
        )
    };
    done(result)
}

/// Has the kernel look at the fill ring again.
pub(super) fn kick_rx(socket: &OwnedFd) {
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: no buffer is passed. The answer says nothing that the rings do not.
    let _ = unsafe {
        libc::recvfrom(
            fd,
            std::ptr::null_mut(),
            0,
            libc::MSG_DONTWAIT,
            std::ptr::null_mut(),
            std::ptr::null_mut(),
        )
    };
}

/// The error that the kernel left on the socket, which reading clears: the interface is gone.
pub(super) fn pending_error(socket: BorrowedFd<'_>) -> Option<io::Error> {
    let error = rustix::net::sockopt::socket_error(socket).ok()?;
    error.err().map(Into::into)
}
