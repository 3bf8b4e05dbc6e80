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
        let mut end = 0_usize;
        let mut place = |bytes: Option<usize>| -> Result<usize, StateError> {
            let start = end;
            let padded = bytes
                .and_then(|b| b.checked_next_multiple_of(ALIGN))
                .ok_or(StateError::TooLarge)?;
            end = end.checked_add(padded).ok_or(StateError::TooLarge)?;
            Ok(start)
        };
        let header_at = place(Some(size_of::<TablesHeader>()))?;
        let connections_at = place(
            limits
                .connections
                .checked_mul(size_of::<ConnectionRecord>()),
        )?;
        let listeners_at = place(limits.listeners.checked_mul(size_of::<ListenerRecord>()))?;
        let time_waits_at = place(limits.time_waits.checked_mul(size_of::<TimeWaitRecord>()))?;
        let sockets_at = place(rows.checked_mul(size_of::<SocketRow>()))?;
        let udp_at = place(limits.datagrams.checked_mul(size_of::<UdpRecord>()))?;
        let datagrams_at = place(limits.datagrams.checked_mul(size_of::<DatagramRow>()))?;
        let range_blocks = limits.connections.min(RANGE_ROOMS_DEFAULT);
        let range_blocks_at = place(range_blocks.checked_mul(size_of::<RangeBlock>()))?;
        let flight_blocks = limits.connections.min(FLIGHT_ROOMS_DEFAULT);
        let flight_blocks_at = place(flight_blocks.checked_mul(size_of::<FlightBlock>()))?;

        let file = rustix::fs::memfd_create(c"shunt-state", MemfdFlags::CLOEXEC)
            .map_err(system("create"))?;
        let file = hostif::host_hooks::relocate_fd(file);
        let bytes = u64::try_from(end).map_err(|_| StateError::TooLarge)?;
        rustix::fs::ftruncate(&file, bytes).map_err(system("size"))?;
        let flags = MapFlags::SHARED | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice replaces nothing.
        let base = unsafe {
            rustix::mm::mmap(
                core::ptr::null_mut(),
                end,
                ProtFlags::READ | ProtFlags::WRITE,
                flags,
                &file,
                0,
            )
        }
        .map_err(system("map"))?
        .cast::<u8>();
        // SAFETY: the offsets are disjoint, page-aligned (which is enough for every row type), inside
        // the mapping, and each is used once; the mapping is never undone, zeroed memory is a valid
        // value of every type (`FromZeros`), and no other process maps the file.
        let state = unsafe {
            Self {
                tables: Tables {
                    header: &mut slice_at::<TablesHeader>(base, header_at, 1)[0],
                    connections: slice_at(base, connections_at, limits.connections),
                    listeners: slice_at(base, listeners_at, limits.listeners),
                    time_waits: slice_at(base, time_waits_at, limits.time_waits),
                    udp: slice_at(base, udp_at, limits.datagrams),
                    range_blocks: slice_at(base, range_blocks_at, range_blocks),
                    flight_blocks: slice_at(base, flight_blocks_at, flight_blocks),
                },
                sockets: slice_at(base, sockets_at, rows),
                datagrams: slice_at(base, datagrams_at, limits.datagrams),
                file,
            }
        };
        Ok(state)
    }
}

/// # Safety
/// `base + offset` must begin `len` values of `T` in zeroed memory that is mapped for ever, aligned
/// for `T`, and covered by no other reference.
unsafe fn slice_at<T: FromZeros>(base: *mut u8, offset: usize, len: usize) -> &'static mut [T] {
    // SAFETY: the caller promises exactly what these two calls need.
    unsafe { core::slice::from_raw_parts_mut(base.add(offset).cast::<T>(), len) }
}
