//! DPDK as safe types: a port that is closed, pools that outlive its mbufs, an mbuf that is freed, a ring.
//!
//! Read first: `glue.c`, which says what each call is in DPDK. Decides nothing.

#![allow(unsafe_code)]

use std::ffi::{CString, c_int};
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::ptr::NonNull;

use super::config::Spread;
use super::ffi::*;
use crate::driver::RxChecksum;

/// DPDK returns errors as negative numbers.
fn checked(result: c_int) -> io::Result<()> {
    if result < 0 {
        Err(io::Error::from_raw_os_error(result.saturating_neg()))
    } else {
        Ok(())
    }
}

fn last_error() -> io::Error {
    // SAFETY: reads a thread-local number.
    io::Error::from_raw_os_error(unsafe { shunt_errno() })
}

fn text(text: &str) -> io::Result<CString> {
    CString::new(text).map_err(|_| io::ErrorKind::InvalidInput.into())
}

/// Starts DPDK in this process. To be called once.
pub fn start_eal(arguments: &[String]) -> io::Result<()> {
    let mut pointers = Vec::new();
    for argument in arguments {
        // DPDK reorders them and keeps pointers to them: they stay, a few hundred bytes once a process.
        pointers.push(text(argument)?.into_raw());
    }
    let count = c_int::try_from(pointers.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    pointers.push(std::ptr::null_mut());
    // SAFETY: `count` pointers to strings that are never freed, and a null pointer, as in `main`; the list
    // itself is not kept.
    checked(unsafe { shunt_eal_init(count, pointers.as_mut_ptr()) })
}

/// Registration of a thread with DPDK, for caches of its own.
pub struct Registered(bool);

impl Registered {
    /// Registers the calling thread, if it is not and there is room.
    pub fn new() -> Self {
        // SAFETY: DPDK is running: only a driver that was opened calls this.
        Self(unsafe { shunt_register_thread() } != 0)
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        if self.0 {
            // SAFETY: the thread that ends is the one that registered: this lies in a thread-local.
            unsafe { shunt_unregister_thread() };
        }
    }
}

/// A device that DPDK has opened.
#[derive(Debug)]
pub struct Port {
    number: u16,
    // Dropped after the device was closed, which gives back its mbufs.
    pools: Option<Pools>,
}

/// To receive into, and to send from.
#[derive(Debug)]
pub struct Pools {
    pub receive: Pool,
    pub send: Pool,
}

impl Port {
    /// Opens the device that these arguments name, `net_tap0,iface=x` or a PCI address, as port `name`.
    pub fn probe(arguments: &str, name: &str) -> io::Result<Self> {
        let (arguments, name) = (text(arguments)?, text(name)?);
        let mut number = 0;
        // SAFETY: strings and a number that live through the calls.
        unsafe {
            checked(shunt_probe(arguments.as_ptr()))?;
            checked(shunt_port_by_name(name.as_ptr(), &raw mut number))?;
        }
        Ok(Self {
            number,
            pools: None,
        })
    }

    pub fn number(&self) -> u16 {
        self.number
    }

    pub fn about(&self) -> io::Result<About> {
        let mut about = About::default();
        // SAFETY: filled by the call, which keeps no pointer.
        checked(unsafe { shunt_about(self.number, &raw mut about) })?;
        Ok(about)
    }

    /// Prepares queues, and says how long the rings will be.
    pub fn configure(&mut self, setup: &Setup) -> io::Result<Setup> {
        let mut raw = raw(setup, std::ptr::null_mut());
        // SAFETY: as above.
        checked(unsafe { shunt_configure(self.number, &raw mut raw) })?;
        Ok(Setup {
            rx_ring: raw.rx_ring,
            tx_ring: raw.tx_ring,
            ..*setup
        })
    }

    /// Has it keep the memory that it is started with, once.
    pub fn keep(&mut self, pools: Pools) {
        self.pools.get_or_insert(pools);
    }

    /// Memory to send from, once it is kept.
    pub fn sending(&self) -> Option<&Pool> {
        self.pools.as_ref().map(|pools| &pools.send)
    }

    /// Starts it, with the memory that it keeps.
    pub fn start(&mut self, setup: &Setup) -> io::Result<()> {
        let pools = self.pools.as_ref().ok_or(io::ErrorKind::InvalidInput)?;
        let raw = raw(setup, pools.receive.raw.as_ptr());
        // SAFETY: the pool lives as long as this port, and is dropped after the device was closed.
        checked(unsafe { shunt_start(self.number, &raw const raw) })
    }

    /// Has it spread frames over its queues by a key and a table.
    pub fn spread(&mut self, spread: &Spread) -> io::Result<()> {
        let count = |len| u32::try_from(len).map_err(|_| io::ErrorKind::InvalidInput);
        let (mut key, table) = (spread.key.clone(), &spread.table);
        if table.is_empty() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: both are read by the call only, no further than they are long.
        checked(unsafe {
            shunt_spread(
                self.number,
                key.as_mut_ptr(),
                count(key.len())?,
                table.as_ptr(),
                count(table.len())?,
            )
        })
    }

    pub fn stop(&mut self) {
        // SAFETY: a number.
        unsafe { shunt_stop(self.number) };
    }

    /// Lets in what is sent to these groups.
    pub fn listen_to(&self, groups: &mut [[u8; 6]]) -> io::Result<()> {
        let count = u32::try_from(groups.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: the list is read by the call only.
        checked(unsafe { shunt_groups(self.number, groups.as_mut_ptr(), count) })
    }

    /// Has [`Port::is_recalled`] say when the kernel wants the device back.
    pub fn listen_for_recall(&self) -> io::Result<()> {
        // SAFETY: a number.
        checked(unsafe { shunt_listen_for_recall(self.number) })
    }

    /// The kernel waits for the device to be closed.
    pub fn is_recalled(&self) -> bool {
        // SAFETY: a number.
        unsafe { shunt_is_recalled(self.number) != 0 }
    }

    /// Does what the kernel's request for the device does.
    pub fn recall(&self) {
        // SAFETY: a number.
        unsafe { shunt_recall(self.number) };
    }

    /// Whether its link is up; true where the device does not say.
    pub fn is_linked(&self) -> bool {
        // SAFETY: a number.
        unsafe { shunt_is_linked(self.number) != 0 }
    }

    /// What it has counted. Of one thread at a time: some drivers add up what they read from the device.
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        // SAFETY: filled by the call.
        unsafe { shunt_counts(self.number, &raw mut counts) };
        counts
    }

    /// Has `epoll` become readable when `queue` has frames.
    pub fn watch(&self, queue: u16, epoll: BorrowedFd<'_>) -> io::Result<()> {
        // SAFETY: what DPDK registers there lies in the port, which the queues close later than this epoll.
        checked(unsafe { shunt_watch(self.number, queue, epoll.as_raw_fd()) })
    }

    pub fn arm(&self, queue: u16) {
        // SAFETY: numbers.
        unsafe { shunt_arm(self.number, queue) };
    }

    /// Ends what [`Port::arm`] began, and takes what `epoll` of [`Port::watch`] has to say.
    pub fn disarm(&self, queue: u16, epoll: BorrowedFd<'_>) {
        // SAFETY: numbers; only DPDK's own descriptors are in `epoll`, as its wait assumes.
        unsafe { shunt_disarm(self.number, queue, epoll.as_raw_fd()) };
    }

    /// Appends up to `most` received frames of `queue`. Only one thread may do that for a queue.
    pub fn receive(&self, queue: u16, into: &mut Vec<Mbuf>, most: u16) -> u16 {
        into.reserve(usize::from(most));
        // SAFETY: there is room for `most` behind the length; so many as the call says are valid mbufs and ours.
        unsafe {
            let end = into.as_mut_ptr().add(into.len()).cast();
            let count = shunt_receive(self.number, queue, end, most);
            into.set_len(into.len() + usize::from(count));
            count
        }
    }

    /// Has the driver check and complete frames for their offloads; fewer than given: the next one is wrong.
    pub fn prepare(&self, queue: u16, mbufs: &mut [Mbuf]) -> usize {
        let count = u16::try_from(mbufs.len()).unwrap_or(u16::MAX);
        // SAFETY: valid mbufs, which stay ours.
        usize::from(unsafe { shunt_prepare(self.number, queue, mbufs.as_mut_ptr().cast(), count) })
    }

    /// Gives frames from the front to the device, and returns how many it took. One thread for a queue.
    pub fn send(&self, queue: u16, mbufs: &mut Vec<Mbuf>, most: usize) -> usize {
        let count = u16::try_from(mbufs.len().min(most)).unwrap_or(u16::MAX);
        // SAFETY: valid mbufs; those that were taken are the device's and forgotten here.
        unsafe {
            let taken = shunt_send(self.number, queue, mbufs.as_mut_ptr().cast(), count);
            let taken = usize::from(taken);
            mbufs.drain(..taken).for_each(std::mem::forget);
            taken
        }
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        // SAFETY: a port of ours, which nobody uses any more: queues hold a reference to it.
        unsafe { shunt_close(self.number) };
    }
}

fn raw(setup: &Setup, rx_pool: *mut Opaque) -> RawSetup {
    RawSetup {
        queues: setup.queues,
        rx_ring: setup.rx_ring,
        tx_ring: setup.tx_ring,
        mtu: setup.mtu,
        able: setup.able,
        rx_pool,
    }
}

/// Memory for mbufs. Must be dropped after all that were made of it.
#[derive(Debug)]
pub struct Pool {
    raw: NonNull<Opaque>,
    room: u16,
}

// SAFETY: DPDK's pools are made for several threads.
unsafe impl Send for Pool {}
// SAFETY: as above.
unsafe impl Sync for Pool {}

impl Pool {
    /// A pool of `count` mbufs of `room` bytes each.
    pub fn new(name: &str, count: u32, room: u16, node: i16) -> io::Result<Self> {
        let name = text(name)?;
        // SAFETY: a string that is copied.
        let raw = unsafe { shunt_pool(name.as_ptr(), count, room, c_int::from(node)) };
        let raw = NonNull::new(raw).ok_or_else(last_error)?;
        Ok(Self { raw, room })
    }

    /// An mbuf for a frame, in as many parts as it takes; `None`: all are in use.
    pub fn make(&self, len: usize) -> Option<Mbuf> {
        let len = u32::try_from(len).ok()?;
        // SAFETY: the pool is alive.
        NonNull::new(unsafe { shunt_make(self.raw.as_ptr(), len, self.room) }).map(Mbuf)
    }

    pub fn room(&self) -> usize {
        usize::from(self.room)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: see the type: nothing of it is left.
        unsafe { shunt_pool_free(self.raw.as_ptr()) };
    }
}

/// A frame in DPDK's memory, freed when dropped.
#[repr(transparent)]
#[derive(Debug)]
pub struct Mbuf(NonNull<Opaque>);

// SAFETY: an mbuf belongs to whoever holds it; nothing of it is a thread's own.
unsafe impl Send for Mbuf {}

/// A received frame as it lies in its mbuf.
pub struct Look<'a> {
    /// Its first part; all of it, where `len` is no more.
    pub first: &'a [u8],
    pub len: usize,
    pub checksum: RxChecksum,
}

impl Mbuf {
    pub fn look(&self) -> Look<'_> {
        let mut raw = RawFrame {
            data: std::ptr::null(),
            first_len: 0,
            len: 0,
            checksum: 0,
        };
        let bytes = |len: u32| usize::try_from(len).unwrap_or(0);
        // SAFETY: a valid mbuf; its first part has `first_len` bytes, which nobody writes while we hold it: the
        // device has handed it over.
        let first = unsafe {
            shunt_look(self.0.as_ptr(), &raw mut raw);
            std::slice::from_raw_parts(raw.data, bytes(raw.first_len))
        };
        Look {
            first,
            len: bytes(raw.len),
            checksum: match raw.checksum {
                1 => RxChecksum::Verified,
                2 => RxChecksum::Partial,
                _ => RxChecksum::Unknown,
            },
        }
    }

    /// Copies what fits of all parts, and returns how many bytes that were.
    pub fn gather(&self, target: &mut [u8]) -> usize {
        let len = u32::try_from(target.len()).unwrap_or(u32::MAX);
        // SAFETY: a valid mbuf, and room for `len` bytes.
        let count = unsafe { shunt_gather(self.0.as_ptr(), target.as_mut_ptr(), len) };
        usize::try_from(count).unwrap_or(0)
    }

    /// Has `fill` write each part in turn, told how many bytes came before it.
    pub fn fill(&mut self, mut fill: impl FnMut(usize, &mut [u8])) {
        let (mut part, mut at) = (self.0.as_ptr(), 0);
        while !part.is_null() {
            let (mut data, mut len) = (std::ptr::null_mut(), 0);
            // SAFETY: a valid part of our mbuf, whose `len` bytes are ours alone.
            let bytes = unsafe {
                part = shunt_part(part, &raw mut data, &raw mut len);
                std::slice::from_raw_parts_mut(data, usize::try_from(len).unwrap_or(0))
            };
            fill(at, bytes);
            at += bytes.len();
        }
    }

    /// Asks the device for `offload`; its headers must lie in the first part, which is checked.
    pub fn offload(&mut self, offload: &Offload) {
        let first = self.look().first.len();
        let is_inside = offload.ip < offload.transport
            && offload.transport < offload.payload
            && usize::from(offload.payload) <= first
            // What the pseudo header and the sum's field take.
            && usize::from(offload.transport - offload.ip) >= if offload.is_v6 != 0 { 40 } else { 20 }
            && usize::from(offload.payload - offload.transport) >= if offload.is_tcp != 0 { 20 } else { 8 };
        if is_inside {
            // SAFETY: a valid mbuf, whose first part holds all that is read and written.
            unsafe { shunt_offload(self.0.as_ptr(), offload) };
        }
    }
}

impl Drop for Mbuf {
    fn drop(&mut self) {
        // SAFETY: ours alone, and the pool is alive.
        unsafe { shunt_free(self.0.as_ptr()) };
    }
}

/// Frames on their way to another core's queue: from any thread to one.
#[derive(Debug)]
pub struct Ring {
    raw: NonNull<Opaque>,
}

// SAFETY: any thread may put; that only one takes is `Queue`'s, of which each core has one.
unsafe impl Send for Ring {}
// SAFETY: as above.
unsafe impl Sync for Ring {}

impl Ring {
    /// A ring for `count` frames less one; `count` is a power of two.
    pub fn new(name: &str, count: u32, node: i16) -> io::Result<Self> {
        let name = text(name)?;
        // SAFETY: a string that is copied.
        let raw = unsafe { shunt_ring(name.as_ptr(), count, c_int::from(node)) };
        let raw = NonNull::new(raw).ok_or_else(last_error)?;
        Ok(Self { raw })
    }

    /// Puts a frame in; false: the ring is full, and the frame is freed.
    pub fn put(&self, mbuf: Mbuf) -> bool {
        // SAFETY: ring and mbuf are alive; an mbuf that was put is the ring's and forgotten here.
        let is_put = unsafe { shunt_ring_put(self.raw.as_ptr(), mbuf.0.as_ptr()) } != 0;
        if is_put {
            std::mem::forget(mbuf);
        }
        is_put
    }

    /// Appends up to `most` frames. Only one thread may do that for a ring.
    pub fn take(&self, into: &mut Vec<Mbuf>, most: u16) {
        into.reserve(usize::from(most));
        // SAFETY: as in `Port::receive`.
        unsafe {
            let end = into.as_mut_ptr().add(into.len()).cast();
            let count = shunt_ring_take(self.raw.as_ptr(), end, u32::from(most));
            into.set_len(into.len() + usize::try_from(count).unwrap_or(0));
        }
    }

    pub fn is_empty(&self) -> bool {
        // SAFETY: the ring is alive.
        unsafe { shunt_ring_is_empty(self.raw.as_ptr()) != 0 }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        let mut left = Vec::new();
        self.take(&mut left, u16::MAX);
        // SAFETY: empty, and nobody else has it.
        unsafe { shunt_ring_free(self.raw.as_ptr()) };
    }
}
