//! Where a thread is, sampled by the kernel, see perf_event_open(2). Only what the system calls need.

#![allow(unsafe_code)]

use std::{
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    ptr::NonNull,
    sync::atomic::{AtomicU64, Ordering},
};

/// struct perf_event_attr as it first was; later kernels take the shorter one.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_type: u32,
    config1: u64,
}

/// PERF_TYPE_SOFTWARE and its PERF_COUNT_SW_CPU_CLOCK: a timer, which virtual machines have too.
const SOFTWARE: u32 = 1;
const CPU_CLOCK: u64 = 0;
/// PERF_SAMPLE_IP and PERF_SAMPLE_CALLCHAIN.
const ADDRESS_AND_CALLERS: u64 = 1 | 1 << 5;
/// Disabled at first, no hypervisor, no callers in user space.
const FLAGS: u64 = 1 | 1 << 6 | 1 << 22;
const ENABLE: libc::Ioctl = 0x2400;
const DISABLE: libc::Ioctl = 0x2401;
/// PERF_RECORD_SAMPLE and PERF_RECORD_LOST.
const SAMPLE: u32 = 9;
const LOST: u32 = 2;
/// Where the first page has the ends of the ring.
const HEAD: usize = 1024;
const TAIL: usize = 1032;
const PAGE: usize = 4096;
/// Bytes of the ring, a power of two: some ten thousand samples.
const RING: usize = 4 << 20;

/// Samples of one thread.
#[derive(Debug)]
pub struct Sampler {
    descriptor: OwnedFd,
    pages: NonNull<u8>,
}

impl Sampler {
    /// Samples each so many nanoseconds of a thread's processor time, kernel included; 0 is the calling thread.
    pub fn open(period_ns: u64, thread: i32) -> io::Result<Self> {
        let attributes = Attributes {
            kind: SOFTWARE,
            size: u32::try_from(size_of::<Attributes>()).map_err(io::Error::other)?,
            config: CPU_CLOCK,
            sample_period: period_ns,
            sample_type: ADDRESS_AND_CALLERS,
            flags: FLAGS,
            ..Attributes::default()
        };
        // SAFETY: the kernel reads `size` bytes of the structure, which lives through the call.
        let descriptor = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                &raw const attributes,
                thread,
                -1,
                -1,
                0,
            )
        };
        let descriptor = i32::try_from(descriptor).map_err(io::Error::other)?;
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call above made this descriptor, and nobody else owns it.
        let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
        // SAFETY: a new mapping at a place of the kernel's choice.
        let pages = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                PAGE + RING,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                descriptor.as_raw_fd(),
                0,
            )
        };
        if pages == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let pages = NonNull::new(pages.cast()).ok_or_else(io::Error::last_os_error)?;
        Ok(Self { descriptor, pages })
    }

    /// Begins.
    pub fn start(&self) -> io::Result<()> {
        self.control(ENABLE)
    }

    /// Ends.
    pub fn stop(&self) -> io::Result<()> {
        self.control(DISABLE)
    }

    fn control(&self, request: libc::Ioctl) -> io::Result<()> {
        // SAFETY: these two requests take no pointer.
        match unsafe { libc::ioctl(self.descriptor.as_raw_fd(), request, 0) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn end(&self, at: usize) -> &AtomicU64 {
        // SAFETY: the first page is mapped as long as self lives, the place is aligned, and the kernel too touches it
        // as a whole only.
        unsafe { &*self.pages.as_ptr().add(at).cast::<AtomicU64>() }
    }

    /// Takes the samples that are there, each as its address, and those in the kernel from the innermost function outwards; how
    /// many the kernel had no room for.
    pub fn take(&mut self, mut each: impl FnMut(u64, &[u64])) -> u64 {
        let head = self.end(HEAD).load(Ordering::Acquire);
        let mut tail = self.end(TAIL).load(Ordering::Relaxed);
        let mut lost = 0;
        let mut addresses = Vec::new();
        while tail < head {
            let [kind, size] = {
                let word = self.word(tail);
                [word & 0xffff_ffff, word >> 48]
            };
            let words = size / 8;
            // Nothing that the kernel wrote is so short; a loop must end nevertheless.
            if words == 0 {
                break;
            }
            if kind == u64::from(SAMPLE) && words >= 3 {
                let callers = self.word(tail + 16).min(words - 3);
                addresses.clear();
                addresses.extend((0..callers).map(|n| self.word(tail + 24 + 8 * n)));
                each(self.word(tail + 8), &addresses);
            } else if kind == u64::from(LOST) && words >= 3 {
                lost += self.word(tail + 16);
            }
            tail += size;
        }
        self.end(TAIL).store(tail, Ordering::Release);
        lost
    }

    /// The eight bytes at a place of the stream; records are aligned to eight and the ring is a multiple of it.
    fn word(&self, at: u64) -> u64 {
        let place = usize::try_from(at % RING as u64).unwrap_or(0) & !7;
        // SAFETY: the place is within the ring, which is mapped behind the first page, and aligned; the kernel does not
        // write between tail and head.
        unsafe {
            self.pages
                .as_ptr()
                .add(PAGE + place)
                .cast::<u64>()
                .read_volatile()
        }
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        // SAFETY: this is the mapping that open() made, and nothing of it is used afterwards.
        unsafe {
            libc::munmap(self.pages.as_ptr().cast(), PAGE + RING);
        }
    }
}
