//! Maps the state region and carves the tables out of it. See mmap(2), memfd_create(2).
#![allow(unsafe_code)]

use crate::config::Limits;
use crate::sockets::datagrams::DatagramRow;
use crate::sockets::rows::SocketRow;
use rustix::fd::OwnedFd;
use rustix::fs::MemfdFlags;
use rustix::mm::{MapFlags, ProtFlags};
use stack::Tables;
use stack::tables::{
    ConnectionRecord, FLIGHT_ROOMS_DEFAULT, FlightBlock, ListenerRecord, RANGE_ROOMS_DEFAULT,
    RangeBlock, TablesHeader, TimeWaitRecord,
};
use stack::udp::UdpRecord;
use zerocopy::FromZeros;

/// Tables begin at multiples of this.
const ALIGN: usize = 4096;

/// Why there is no state region.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The sum of the tables does not fit an address space.
    #[error("the tables would be too large: lower the limits")]
    TooLarge,
    /// A system call failed.
    #[error("cannot {0} the state region: {1}")]
    System(&'static str, rustix::io::Errno),
}

/// The mapped region. It stays mapped until the process ends, so the tables live as long.
pub struct State {
    /// The memory file, for whoever takes the engine's place.
    pub file: OwnedFd,
    /// The stack's tables.
    pub tables: Tables<'static>,
    /// The engine's sockets.
    pub sockets: &'static mut [SocketRow],
    /// Positions of datagram sockets, by the stack's row.
    pub datagrams: &'static mut [DatagramRow],
}

impl State {
    /// A fresh region with as many rows as `limits` say, and `rows` sockets: all zero, which every row type allows;
    /// untouched pages cost nothing.
    ///
    /// # Errors
    /// [`StateError`].
    pub fn create(limits: &Limits, rows: usize) -> Result<Self, StateError> {
        let system = |what| move |errno| StateError::System(what, errno);
        let places = Places::of(limits, rows)?;
        let file = rustix::fs::memfd_create(c"shunt-state", MemfdFlags::CLOEXEC)
            .map_err(system("create"))?;
        let file = hostif::host_hooks::relocate_fd(file);
        rustix::fs::ftruncate(&file, places.len()?).map_err(system("size"))?;
        Self::map(file, limits, rows, &places)
    }

    /// The region of an engine that has ended, with the same limits. Nobody else may map it any more.
    ///
    /// # Errors
    /// [`StateError`]: it has another size.
    pub fn adopt(file: OwnedFd, limits: &Limits, rows: usize) -> Result<Self, StateError> {
        let system = |what| move |errno| StateError::System(what, errno);
        let places = Places::of(limits, rows)?;
        let stat = rustix::fs::fstat(&file).map_err(system("look at"))?;
        if u64::try_from(stat.st_size) != Ok(places.len()?) {
            return Err(system("adopt")(rustix::io::Errno::INVAL));
        }
        Self::map(file, limits, rows, &places)
    }

    fn map(
        file: OwnedFd,
        limits: &Limits,
        rows: usize,
        places: &Places,
    ) -> Result<Self, StateError> {
        let flags = MapFlags::SHARED | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice replaces nothing.
        let base = unsafe {
            rustix::mm::mmap(
                core::ptr::null_mut(),
                places.end,
                ProtFlags::READ | ProtFlags::WRITE,
                flags,
                &file,
                0,
            )
        }
        .map_err(|errno| StateError::System("map", errno))?
        .cast::<u8>();
        // SAFETY: the offsets are disjoint, page-aligned (which is enough for every row type), inside
        // the mapping, and each is used once; the mapping is never undone, zeroed memory is a valid
        // value of every type (`FromZeros`), as is whatever an engine of this version left there: rows are plain numbers. No other
        // process maps the file: it is fresh, or its engine has ended.
        let state = unsafe {
            Self {
                tables: Tables {
                    header: &mut slice_at::<TablesHeader>(base, places.header, 1)[0],
                    connections: slice_at(base, places.connections, limits.connections),
                    listeners: slice_at(base, places.listeners, limits.listeners),
                    time_waits: slice_at(base, places.time_waits, limits.time_waits),
                    udp: slice_at(base, places.udp, limits.datagrams),
                    range_blocks: slice_at(base, places.range_blocks, range_blocks_of(limits)),
                    flight_blocks: slice_at(base, places.flight_blocks, flight_blocks_of(limits)),
                },
                sockets: slice_at(base, places.sockets, rows),
                datagrams: slice_at(base, places.datagrams, limits.datagrams),
                file,
            }
        };
        Ok(state)
    }
}

fn range_blocks_of(limits: &Limits) -> usize {
    limits.connections.min(RANGE_ROOMS_DEFAULT)
}

fn flight_blocks_of(limits: &Limits) -> usize {
    limits.connections.min(FLIGHT_ROOMS_DEFAULT)
}

/// Where each table begins.
struct Places {
    header: usize,
    connections: usize,
    listeners: usize,
    time_waits: usize,
    sockets: usize,
    udp: usize,
    datagrams: usize,
    range_blocks: usize,
    flight_blocks: usize,
    end: usize,
}

impl Places {
    fn of(limits: &Limits, rows: usize) -> Result<Self, StateError> {
        let mut end = 0_usize;
        let mut place = |count: usize, bytes: usize| -> Result<usize, StateError> {
            let start = end;
            let padded = count.checked_mul(bytes);
            let padded = padded.and_then(|bytes| bytes.checked_next_multiple_of(ALIGN));
            let next = padded.and_then(|bytes| start.checked_add(bytes));
            end = next.ok_or(StateError::TooLarge)?;
            Ok(start)
        };
        Ok(Self {
            header: place(1, size_of::<TablesHeader>())?,
            connections: place(limits.connections, size_of::<ConnectionRecord>())?,
            listeners: place(limits.listeners, size_of::<ListenerRecord>())?,
            time_waits: place(limits.time_waits, size_of::<TimeWaitRecord>())?,
            sockets: place(rows, size_of::<SocketRow>())?,
            udp: place(limits.datagrams, size_of::<UdpRecord>())?,
            datagrams: place(limits.datagrams, size_of::<DatagramRow>())?,
            range_blocks: place(range_blocks_of(limits), size_of::<RangeBlock>())?,
            flight_blocks: place(flight_blocks_of(limits), size_of::<FlightBlock>())?,
            end,
        })
    }

    fn len(&self) -> Result<u64, StateError> {
        u64::try_from(self.end).map_err(|_| StateError::TooLarge)
    }
}

/// # Safety
/// `base + offset` must begin `len` values of `T` in zeroed memory that is mapped for ever, aligned
/// for `T`, and covered by no other reference.
unsafe fn slice_at<T: FromZeros>(base: *mut u8, offset: usize, len: usize) -> &'static mut [T] {
    // SAFETY: the caller promises exactly what these two calls need.
    unsafe { core::slice::from_raw_parts_mut(base.add(offset).cast::<T>(), len) }
}
