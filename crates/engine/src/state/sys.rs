//! Maps the state region and carves the tables out of it. See mmap(2), memfd_create(2).
#![allow(unsafe_code)]

use super::rows::{
    ChannelRow, EngineRow, ExtentRow, HandleRow, HoldRow, MembershipRow, RegionRow, SessionRow,
    Undo,
};
use crate::sockets::datagrams::DatagramRow;
use crate::sockets::rows::SocketRow;
use engine_config::Limits;
use rustix::fd::{FromRawFd as _, OwnedFd, RawFd};
use rustix::fs::MemfdFlags;
use rustix::mm::{MapFlags, ProtFlags};
use shards::section::Section;
use stack::Tables;
use stack::tables::{
    ConnectionRecord, FLIGHT_ROOMS_DEFAULT, FlightBlock, ListenerRecord, RANGE_ROOMS_DEFAULT,
    RangeBlock, TABLES_VERSION, TablesHeader, TimeWaitRecord, UndoRow,
};
use stack::udp::UdpRecord;
use zerocopy::{FromBytes as _, FromZeros};

/// Tables begin at multiples of this.
const ALIGN: usize = 4096;
/// Regions for each program: one outlives its program while another holds a socket in it.
const REGIONS_PER_SESSION: usize = 4;
/// Descriptors that programs have left here, for each of them.
const HANDLES_PER_SESSION: usize = 64;
/// Holders of a socket besides the first, for each socket.
const HOLDS_PER_SOCKET: usize = 2;
/// Pairs of programs that may pass bytes through memory at a time.
const CHANNEL_REGIONS: usize = 64;
/// Groups of datagram sockets, and sources of them, that the next engine knows.
const MEMBERSHIPS: usize = 4_096;
/// Extents in files that the next engine knows; what is beyond is read into windows.
const EXTENTS: usize = 4_096;
/// Version of the rows that are the engine's own.
const ROWS_VERSION: u32 = 4;

/// Why there is no state region.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The sum of the tables does not fit an address space.
    #[error("the tables would be too large: lower the limits")]
    TooLarge,
    /// Another kind of engine has left it.
    #[error("the state is of an engine with other limits or another layout")]
    Foreign,
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
    /// Options of datagram sockets, by the socket's row, as they travel.
    pub datagram_options: &'static mut [[u64; 4]],
    /// The socket's row that is being changed, as it was.
    pub undo_socket: &'static mut Undo<SocketRow>,
    /// The same of a datagram socket's positions.
    pub undo_datagram: &'static mut Undo<DatagramRow>,
    /// The engine.
    pub engine: &'static mut EngineRow,
    /// Attached programs, by slot.
    pub sessions: &'static mut [SessionRow],
    /// Regions.
    pub regions: &'static mut [RegionRow],
    /// What programs have left here.
    pub handles: &'static mut [HandleRow],
    /// Who holds a socket besides the first.
    pub holds: &'static mut [HoldRow],
    /// Memory between two programs.
    pub channels: &'static mut [ChannelRow],
    /// Groups of datagram sockets.
    pub memberships: &'static mut [MembershipRow],
    /// What of streams is in files.
    pub extents: &'static mut [ExtentRow],
}

/// Whether a descriptor of that number is open.
pub fn is_open(number: RawFd) -> bool {
    if number < 0 {
        return false;
    }
    // SAFETY: the call takes a number; of one that is not open it says EBADF.
    let fd = unsafe { rustix::fd::BorrowedFd::borrow_raw(number) };
    rustix::io::fcntl_getfd(fd).is_ok()
}

/// What is open under a number that a row names; `None`: nothing.
pub fn take(number: RawFd) -> Option<OwnedFd> {
    if !is_open(number) {
        return None;
    }
    // SAFETY: it is open, and a row names it: the engine that owned it is gone, and each row is taken up once.
    Some(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Another descriptor of what is open under a number; `None`: nothing is.
pub fn duplicate(number: RawFd) -> Option<OwnedFd> {
    if number < 0 {
        return None;
    }
    // SAFETY: the call takes a number; of one that is not open it says EBADF.
    let fd = unsafe { rustix::fd::BorrowedFd::borrow_raw(number) };
    rustix::io::fcntl_dupfd_cloexec(fd, 0).ok()
}

/// Two engines of which one goes on with the other's rows agree in this: versions, and the size of everything.
pub fn layout(limits: &Limits, rows: usize) -> u64 {
    let numbers = [
        u64::from(ROWS_VERSION),
        u64::from(TABLES_VERSION),
        u64::from(hostif::MAX_VERSION),
        size_of::<ConnectionRecord>() as u64,
        size_of::<ListenerRecord>() as u64,
        size_of::<TimeWaitRecord>() as u64,
        size_of::<UdpRecord>() as u64,
        size_of::<SocketRow>() as u64,
        size_of::<DatagramRow>() as u64,
        size_of::<SessionRow>() as u64,
        size_of::<EngineRow>() as u64,
        limits.connections as u64,
        limits.listeners as u64,
        limits.time_waits as u64,
        limits.datagrams as u64,
        limits.sessions as u64,
        limits.region.region_bytes(),
        rows as u64,
    ];
    // FNV-1a, over words.
    numbers.iter().fold(0xcbf2_9ce4_8422_2325, |sum, number| {
        (sum ^ number).wrapping_mul(0x0100_0000_01b3)
    })
}

impl State {
    /// A fresh region with as many rows as `limits` say, and `rows` sockets: all zero, which every row type allows;
    /// untouched pages cost nothing.
    ///
    /// # Errors
    /// [`StateError`].
    pub fn create(limits: &Limits, rows: usize) -> Result<Self, StateError> {
        let system = |what| move |errno| StateError::System(what, errno);
        let file = rustix::fs::memfd_create(c"shunt-state", MemfdFlags::CLOEXEC)
            .map_err(system("create"))?;
        let file = hostif::host_hooks::relocate_fd(file);
        Self::create_in(file, limits, rows, Section::ONLY)
    }

    /// The same in a file that somebody else holds as well. The first core comes first: what was in the file is gone then.
    ///
    /// # Errors
    /// [`StateError`].
    pub fn create_in(
        file: OwnedFd,
        limits: &Limits,
        rows: usize,
        section: Section,
    ) -> Result<Self, StateError> {
        let system = |what| move |errno| StateError::System(what, errno);
        let places = Places::of(limits, rows)?;
        let (start, whole) = section.place(places.len()?).ok_or(StateError::TooLarge)?;
        if section.core == 0 {
            rustix::fs::ftruncate(&file, 0).map_err(system("size"))?;
            rustix::fs::ftruncate(&file, whole).map_err(system("size"))?;
        }
        Self::map(file, limits, rows, (&places, start))
    }

    /// The region of a core of an engine that has ended, with the same limits. Nobody else may map it any more.
    ///
    /// # Errors
    /// [`StateError`]: the file has another size.
    pub fn adopt(
        file: OwnedFd,
        limits: &Limits,
        rows: usize,
        section: Section,
    ) -> Result<Self, StateError> {
        let places = Places::of(limits, rows)?;
        let start = start_of(&file, &places, section)?;
        Self::map(file, limits, rows, (&places, start))
    }

    /// The engine's row of such a region, read and not mapped.
    ///
    /// # Errors
    /// [`StateError`]: it has another size.
    pub fn engine_row(
        file: &OwnedFd,
        limits: &Limits,
        rows: usize,
        section: Section,
    ) -> Result<EngineRow, StateError> {
        let system = |what| move |errno| StateError::System(what, errno);
        let places = Places::of(limits, rows)?;
        let start = start_of(file, &places, section)?;
        let mut bytes = [0; size_of::<EngineRow>()];
        let at = u64::try_from(places.engine).map_err(|_| StateError::TooLarge)?;
        let read = rustix::io::pread(file, &mut bytes[..], start + at).map_err(system("read"))?;
        if read < bytes.len() {
            return Err(StateError::Foreign);
        }
        EngineRow::read_from_bytes(&bytes).map_err(|_| StateError::Foreign)
    }

    fn map(
        file: OwnedFd,
        limits: &Limits,
        rows: usize,
        (places, start): (&Places, u64),
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
                start,
            )
        }
        .map_err(|errno| StateError::System("map", errno))?
        .cast::<u8>();
        // SAFETY: the offsets are disjoint, page-aligned (which is enough for every row type), inside
        // the mapping, which no other section of the file overlaps, and each is used once; the mapping is never undone, zeroed memory is a valid
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
                    undo: Some(&mut slice_at::<UndoRow>(base, places.undo, 1)[0]),
                },
                datagram_options: slice_at(base, places.datagram_options, rows),
                undo_socket: &mut slice_at(base, places.undo_socket, 1)[0],
                undo_datagram: &mut slice_at(base, places.undo_datagram, 1)[0],
                engine: &mut slice_at(base, places.engine, 1)[0],
                sessions: slice_at(base, places.sessions, limits.sessions),
                regions: slice_at(base, places.regions, limits.sessions * REGIONS_PER_SESSION),
                handles: slice_at(base, places.handles, limits.sessions * HANDLES_PER_SESSION),
                holds: slice_at(base, places.holds, rows * HOLDS_PER_SOCKET),
                channels: slice_at(base, places.channels, CHANNEL_REGIONS),
                memberships: slice_at(base, places.memberships, MEMBERSHIPS),
                extents: slice_at(base, places.extents, EXTENTS),
                sockets: slice_at(base, places.sockets, rows),
                datagrams: slice_at(base, places.datagrams, limits.datagrams),
                file,
            }
        };
        #[cfg(test)]
        super::rows::crash::pass();
        Ok(state)
    }
}

/// Where a section begins in the file of an engine that has ended.
fn start_of(file: &OwnedFd, places: &Places, section: Section) -> Result<u64, StateError> {
    let stat = rustix::fs::fstat(file).map_err(|errno| StateError::System("look at", errno))?;
    let (start, whole) = section.place(places.len()?).ok_or(StateError::TooLarge)?;
    if u64::try_from(stat.st_size) != Ok(whole) {
        return Err(StateError::Foreign);
    }
    Ok(start)
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
    undo: usize,
    datagram_options: usize,
    undo_socket: usize,
    undo_datagram: usize,
    engine: usize,
    sessions: usize,
    regions: usize,
    handles: usize,
    holds: usize,
    channels: usize,
    memberships: usize,
    extents: usize,
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
            undo: place(1, size_of::<UndoRow>())?,
            datagram_options: place(rows, size_of::<[u64; 4]>())?,
            undo_socket: place(1, size_of::<Undo<SocketRow>>())?,
            undo_datagram: place(1, size_of::<Undo<DatagramRow>>())?,
            engine: place(1, size_of::<EngineRow>())?,
            sessions: place(limits.sessions, size_of::<SessionRow>())?,
            regions: place(
                limits.sessions * REGIONS_PER_SESSION,
                size_of::<RegionRow>(),
            )?,
            handles: place(
                limits.sessions * HANDLES_PER_SESSION,
                size_of::<HandleRow>(),
            )?,
            holds: place(rows * HOLDS_PER_SOCKET, size_of::<HoldRow>())?,
            channels: place(CHANNEL_REGIONS, size_of::<ChannelRow>())?,
            memberships: place(MEMBERSHIPS, size_of::<MembershipRow>())?,
            extents: place(EXTENTS, size_of::<ExtentRow>())?,
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
