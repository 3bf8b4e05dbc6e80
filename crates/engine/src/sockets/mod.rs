//! The engine's sockets: rows, who holds them, their headers and windows. What the stack tells them is in
//! `host.rs`.

pub mod backing;
mod capacity;
pub mod copies;
pub mod datagrams;
mod holding;
mod host;
mod identity;
mod memberships;
pub mod notify;
mod place;
mod publish;
pub mod region;
mod resume;
pub mod rows;
pub mod shares;
pub mod signals;
pub mod user_buffer;

use crate::device::link::SendWindow;
use crate::errno;
use crate::programs::users::{FinishedSender, ProgramFd};
use crate::sockets::copies::Copies;
use crate::sockets::datagrams::DatagramRow;
use crate::sockets::holding::Holds;
use crate::sockets::identity::Identities;
pub use crate::sockets::identity::Identity;
use crate::sockets::memberships::Memberships;
use crate::sockets::notify::Dirty;
use crate::sockets::region::{Regions, SMALL_BYTES};
use crate::sockets::rows::{Kind, Marks, SocketRow, at};
use crate::sockets::shares::{Bounds, Table};
use crate::state::rows::{Held, HoldRow, MembershipRow, RegionRow, Undo};
use core::net::SocketAddr;
use hostif::datagram::Rings;
use hostif::header::SlotName;
use hostif::window::WindowSpan;
use hostif::{DatagramOptions, FastOpenKeys, Flags, HeaderPlace, SocketHeader, SocketId};
use rustix::fd::AsFd as _;
use rustix::io::Errno;
use shards::ShardOwner;
use stack::ConnectionId;
use std::collections::VecDeque;
use std::sync::Arc;
use tcp::{Instant, SocketOptions};

/// Backing sockets that outlive their connection's row because it is in TIME-WAIT, at most.
const LINGERING_MAX: usize = 4_096;

/// What the housekeeping saw last of a connection's windows.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// Received up to here.
    pub received: u64,
    /// Acknowledged up to here.
    pub acknowledged: u64,
    /// Sum of both positions when memory was last given back.
    pub freed_at: u64,
}

/// What is derived or belongs to this process only, beside each [`SocketRow`].
#[derive(Default)]
pub struct Companion {
    /// Where its header lies.
    place: Option<HeaderPlace>,
    /// Slots of the sessions that hold the socket; to be changed by `hold` and `unhold`.
    pub holders: Vec<usize>,
    /// The engine's duplicate of the backing socket; to be changed by `keep_backing`.
    pub backing: Option<ProgramFd>,
    /// The receive window.
    receive: Option<WindowSpan>,
    /// Bytes of it that the header says are offered to the peer.
    offered: u32,
    /// The program waits for free space in its send window.
    lacked_capacity: bool,
    /// Urgent data came since its holders were told of anything.
    pub is_urgent: bool,
    /// Who has to hear of acknowledgements: bits of [`hears_acks`].
    pub hears_acks: u8,
    /// The rings of a datagram socket.
    pub rings: Option<Rings>,
    /// What the program chose for a datagram socket.
    pub datagram_options: DatagramOptions,
    /// `TCP_FASTOPEN_KEY`, for when the socket listens.
    pub fast_open_keys: Option<Box<FastOpenKeys>>,
    /// Headers of the SYN that opened the connection (`TCP_SAVE_SYN`).
    pub saved_syn: Option<Box<[u8]>>,
    /// What of the kernel's is claimed for it.
    pub claim: Option<nic::sharing::Claim>,
    /// The slot of a connection to another program of this host; see `byte_channels`.
    pub slot: Option<SlotName>,
    /// Where the program is signalled of events; see `signals`.
    pub(crate) signals: Option<Box<crate::sockets::signals::Pair>>,
    /// What housekeeping saw last.
    pub seen: Seen,
}

/// Who has to hear of acknowledgements.
pub mod hears_acks {
    /// The link, which has files mapped.
    pub const FILES: u8 = 1;
    /// A program, of the time (`stamps`).
    pub const STAMPS: u8 = 1 << 1;
}

/// What of the state is the sockets'.
pub struct SocketTables {
    /// The sockets.
    pub rows: &'static mut [SocketRow],
    /// Positions of datagram sockets, by the stack's row.
    pub datagrams: &'static mut [DatagramRow],
    /// Their options, by the socket's row.
    pub datagram_options: &'static mut [[u64; 4]],
    /// See [`Undo`].
    pub undo: &'static mut Undo<SocketRow>,
    /// See [`Undo`].
    pub undo_datagram: &'static mut Undo<DatagramRow>,
    /// Regions.
    pub regions: &'static mut [RegionRow],
    /// Who holds a socket besides the first.
    pub holds: &'static mut [HoldRow],
    /// Groups of datagram sockets.
    pub memberships: &'static mut [MembershipRow],
}

/// All sockets of a core.
pub struct Sockets {
    /// Which core; part of their names.
    core: u16,
    home: ShardOwner,
    defaults: SocketOptions,
    rows: &'static mut [SocketRow],
    /// Positions of datagram sockets.
    pub datagrams: &'static mut [DatagramRow],
    datagram_options: &'static mut [[u64; 4]],
    undo: &'static mut Undo<SocketRow>,
    undo_datagram: &'static mut Undo<DatagramRow>,
    holds: Holds,
    memberships: Memberships,
    /// Of the rows that were ever used.
    companions: Vec<Companion>,
    /// By their backing sockets.
    identities: Identities,
    /// What the kernel calls a backing socket, while the command that waited for that is carried out.
    pub asked_name: Option<(SocketId, Result<SocketAddr, Errno>)>,
    free: Vec<u32>,
    used: u32,
    /// Regions that hold headers and windows.
    pub regions: Regions,
    /// Sockets whose holders are to be told.
    pub dirty: Dirty,
    /// Those with a pair for signals to which something has happened in this poll.
    pub(crate) signalled: Vec<u32>,
    /// Every pair holds a reference.
    pub(crate) pairs: Arc<()>,
    /// Send windows that the link has to learn of.
    pub new_windows: Vec<(u32, Option<SendWindow>)>,
    /// Sockets with [`hears_acks`] set, and how far their peers have acknowledged since the link heard last.
    pub acknowledged: Vec<(u32, u64)>,
    /// Connections that stand since the last poll, and slots that are used no more, for `byte_channels`.
    pub established: Vec<u32>,
    /// See there.
    pub left_slots: Vec<SlotName>,
    /// What was copied.
    pub copies: Copies,
    /// Backing sockets of connections in TIME-WAIT, until when.
    lingering: VecDeque<(Instant, ProgramFd)>,
    now: Instant,
    /// The time of day in this poll, nanoseconds since 1970, once it was asked for.
    wall_clock_ns: Option<u64>,
    /// What new receive windows are offered with.
    first_offer: u32,
    /// No window is opened further: memory is short.
    window_ceiling: u32,
}

impl Sockets {
    /// No sockets yet, over these rows of a core.
    pub fn new(
        home: ShardOwner,
        answers: FinishedSender,
        (defaults, first_offer): (SocketOptions, u32),
        bounds: Bounds,
        tables: SocketTables,
    ) -> Self {
        let rows = tables.rows;
        let core = home.core();
        Self {
            core,
            home,
            defaults,
            dirty: Dirty::new(rows.len()),
            // Capacity for all, which costs no memory before it is used.
            companions: Vec::with_capacity(rows.len()),
            identities: Identities::default(),
            asked_name: None,
            free: Vec::new(),
            used: 0,
            regions: Regions::new(core, answers, tables.regions, bounds),
            signalled: Vec::new(),
            pairs: Arc::default(),
            new_windows: Vec::new(),
            acknowledged: Vec::new(),
            established: Vec::new(),
            left_slots: Vec::new(),
            copies: Copies::default(),
            lingering: VecDeque::new(),
            now: Instant::ZERO,
            wall_clock_ns: None,
            first_offer,
            window_ceiling: u32::MAX,
            rows,
            datagrams: tables.datagrams,
            datagram_options: tables.datagram_options,
            undo: tables.undo,
            undo_datagram: tables.undo_datagram,
            holds: Holds::new(tables.holds),
            memberships: Memberships::new(tables.memberships),
        }
    }

    /// Sets the time for what callbacks do.
    pub fn set_now(&mut self, now: Instant) {
        self.now = now;
        self.wall_clock_ns = None;
    }

    /// The time of this poll.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// The time of day, nanoseconds since 1970: of the poll rather than of the packet.
    pub fn wall_clock_ns(&mut self) -> u64 {
        *self.wall_clock_ns.get_or_insert_with(|| {
            let time = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
            let part = |number: i64| u64::try_from(number).unwrap_or(0);
            part(time.tv_sec) * 1_000_000_000 + part(time.tv_nsec)
        })
    }

    /// Rows that were ever used.
    pub fn used(&self) -> u32 {
        self.used
    }

    /// Rows in use.
    pub fn count(&self) -> usize {
        at(self.used) - self.free.len()
    }

    /// A row by number.
    pub fn row(&self, row: u32) -> &SocketRow {
        &self.rows[at(row)]
    }

    /// Changes a row; what a crash interrupts has not happened.
    pub fn change<R>(&mut self, row: u32, change: impl FnOnce(&mut SocketRow) -> R) -> R {
        self.undo.change(row, &mut self.rows[at(row)], change)
    }

    /// What belongs to a row and is in this process only.
    pub fn companion(&mut self, row: u32) -> &mut Companion {
        &mut self.companions[at(row)]
    }

    /// The inode of the kernel socket behind a socket: by it /proc/PID/fd names it, see proc(5).
    pub fn backing_inode(&self, row: u32) -> Option<u64> {
        let backing = self.companions[at(row)].backing.as_ref()?;
        rustix::fs::fstat(&**backing).ok().map(|file| file.st_ino)
    }

    /// Where a socket has memory with a neighbour.
    pub fn slot(&self, row: u32) -> Option<SlotName> {
        self.companions[at(row)].slot
    }

    /// Whether the engine chose the port of its connection.
    pub fn is_port_chosen(&self, row: u32) -> bool {
        self.has(row, Marks::PORT_CHOSEN)
    }

    /// Holders of a socket.
    pub fn holders(&self, row: u32) -> &[usize] {
        &self.companions[at(row)].holders
    }

    /// The name under which programs know the socket in `row`.
    pub fn id(&self, row: u32) -> Option<SocketId> {
        SocketId::of_core(self.core, row, self.row(row).generation)
    }

    /// The row of a socket that the session in `slot` holds; stale names and those of others are nothing.
    #[inline]
    pub fn held_by(&self, id: SocketId, slot: usize) -> Option<u32> {
        let row = self.find(id)?;
        self.holders(row).contains(&slot).then_some(row)
    }

    /// What sockets begin with from now on.
    pub fn set_defaults(&mut self, options: SocketOptions, first_offer: u32) {
        self.defaults = options;
        self.first_offer = first_offer;
    }

    /// A new socket in `region`, held by nobody yet.
    pub fn create(&mut self, region: u32, kind: Kind) -> Option<u32> {
        if self.free.is_empty() && at(self.used) == self.rows.len() {
            return None;
        }
        let header = self.regions.take_header(region)?;
        let row = self.free.pop().unwrap_or_else(|| {
            self.companions.push(Companion::default());
            self.used += 1;
            self.used - 1
        });
        let options = self.defaults;
        self.change(row, |record| {
            *record = SocketRow {
                sequence: record.sequence,
                generation: record.generation.max(1),
                kind,
                region,
                header,
                ..zerocopy::FromZeros::new_zeroed()
            };
            record.options = options;
        });
        if kind == Kind::FreshDatagram {
            self.datagram_options[at(row)] = DatagramOptions::default().encode();
        }
        let region = self.regions.find(region);
        self.companions[at(row)] = Companion {
            place: region.and_then(|region| region.header_place(header)),
            ..Companion::default()
        };
        let id = self
            .id(row)
            .expect("invariant: generations of rows in use are not 0");
        self.with_header(row, |header| header.engine_reset(id));
        self.publish_congestion(row);
        Some(row)
    }

    /// Acts on the shared header of a socket.
    pub fn with_header<R>(&self, row: u32, act: impl FnOnce(SocketHeader<'_>) -> R) -> Option<R> {
        let place = self.companions[at(row)].place.as_ref()?;
        Some(act(place.header()))
    }

    /// Gives a socket its windows; `None`: the region has no more.
    pub fn give_windows(&mut self, row: u32) -> Option<(u32, u32)> {
        let (region_number, header) = (self.row(row).region, self.row(row).header);
        let pair = match self.row(row).pair() {
            Some(pair) => pair,
            None => self.take_windows(region_number)?,
        };
        let region = self.regions.find(region_number)?.clone();
        let (send, receive) = region.window_pair(pair)?;
        let window = SendWindow::of(region, send, header)?;
        let header = window.header.header();
        header.engine_set_windows(send, receive);
        self.change(row, |record| {
            record.pair_plus_one = pair + 1;
            (record.receive_base, record.send_room) = (0, 0);
        });
        self.companions[at(row)].receive = Some(receive);
        self.offer_first(row, receive.size);
        self.publish_capacity(row);
        self.new_windows.push((row, Some(window)));
        Some((receive.size, send.size))
    }

    fn take_windows(&mut self, region: u32) -> Option<u32> {
        if !self.regions.has_capacity(region, Table::Connections) {
            return None;
        }
        let pair = self.regions.take_pair(region)?;
        self.regions.take(region, Table::Connections);
        Some(pair)
    }

    /// The windows of a connection: for sending and for receiving.
    fn windows(&self, row: u32) -> Option<(WindowSpan, WindowSpan)> {
        let record = self.row(row);
        let region = self.regions.find(record.region)?;
        region.window_pair(record.pair()?)
    }

    /// The stack has named the connection of a socket.
    pub fn adopt(&mut self, row: u32, connection: ConnectionId) {
        self.change(row, |record| {
            record.kind = Kind::Connection;
            record.object_index = connection.index;
            record.object_generation = connection.generation;
        });
    }

    /// Publishes both addresses of a connection.
    pub fn set_addresses(&self, row: u32, local: SocketAddr, remote: SocketAddr) {
        self.with_header(row, |header| {
            header.engine_set_addresses(Some(local), Some(remote));
        });
    }

    /// A listener is none any more, and goes on as a socket.
    pub fn leave_listening(&mut self, row: u32) {
        self.change(row, |record| record.kind = Kind::Fresh);
        let region = self.row(row).region;
        self.regions.give_back(region, Table::Listeners);
    }

    /// The socket is gone: its name becomes stale, its memory free.
    pub fn destroy(&mut self, row: u32) {
        let record = *self.row(row);
        self.release_backing(row);
        self.memberships.forget(row);
        if let Some(pair) = record.pair() {
            let is_small = self.with_header(row, |header| {
                header.received_end().max(header.written()) <= SMALL_BYTES
            });
            let is_small = is_small.unwrap_or(false);
            self.regions.free_pair(record.region, pair, is_small);
            self.new_windows.push((row, None));
        }
        for table in record.tables().into_iter().flatten() {
            self.regions.give_back(record.region, table);
        }
        self.regions.free_header(record.region, record.header);
        self.left_slots.extend(self.companions[at(row)].slot);
        self.change(row, |record| {
            record.kind = Kind::Free;
            (record.pair_plus_one, record.holder) = (0, 0);
            record.backing = Held::default();
            record.generation = record.generation.wrapping_add(1).max(1);
        });
        self.companions[at(row)] = Companion::default();
        self.free.push(row);
    }

    /// The socket's connection was ended for a reason that only the program can be told.
    pub fn fail(&mut self, row: u32, errno: Errno) {
        self.with_header(row, |header| header.engine_set_error(errno::code(errno)));
        self.publish(row, Flags::ERROR | Flags::HUP | Flags::CLOSED);
        self.count_rx(row);
        self.count_tx(row);
    }

    /// The program may connect again, elsewhere: its backing socket is as it was.
    fn release_backing(&mut self, row: u32) {
        let listens = self.has(row, Marks::BACKING_LISTENS);
        if listens && let Some(backing) = &self.companions[at(row)].backing {
            // A socket that has been closed meanwhile needs neither.
            let _ = rustix::net::connect_unspec(&**backing);
            let _ = nic::sharing::restore(backing.as_fd());
        }
        self.set_mark(row, Marks::BACKING_LISTENS, false);
    }

    /// Keeps a backing socket until its connection's TIME-WAIT has ended.
    fn keep_lingering(&mut self, backing: ProgramFd) {
        if self.lingering.len() == LINGERING_MAX {
            self.lingering.pop_front();
        }
        self.lingering.push_back((self.now + TIME_WAIT, backing));
    }

    /// Drops the backing sockets whose TIME-WAIT has ended.
    pub fn drop_lingering(&mut self, now: Instant) {
        while self
            .lingering
            .front()
            .is_some_and(|(until, _)| *until <= now)
        {
            self.lingering.pop_front();
        }
    }

    /// Whether the packets of this connection arrive at this core.
    pub fn is_own(&self, local: SocketAddr, remote: SocketAddr) -> bool {
        self.home.is_own(local, remote)
    }

    /// The row behind a token that the stack was given.
    pub fn row_of(&self, owner: u64) -> Option<u32> {
        self.find(SocketId::from_bits(owner)?)
    }

    #[inline]
    fn find(&self, id: SocketId) -> Option<u32> {
        let row = self.rows.get(at(id.row()))?;
        let is_it = row.kind != Kind::Free && row.generation == id.generation;
        (is_it && id.core() == self.core).then_some(id.row())
    }
}

/// As long as the stack's TIME-WAIT.
const TIME_WAIT: tcp::Duration = tcp::Duration::from_secs(60);
