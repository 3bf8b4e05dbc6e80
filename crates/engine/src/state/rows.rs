//! What the engine knows beside its sockets, as plain data: the engine itself, the programs that are attached, their regions,
//! the descriptors that they have left here. A descriptor is a number: whoever goes on has the same ones open.
//!
//! A row is there or it is not: `used` is stored last when it is made, and first when it goes. What changes meanwhile is one
//! word at a time.

use core::sync::atomic::{Ordering, compiler_fence};
use hostif::byte_channel::region::SLOTS;
use nic::af_packet::{Geometry, Numbers};
use rustix::fd::{AsRawFd, RawFd};
use stack::PackedAddress;
use zerocopy::{FromBytes, FromZeros, Immutable, KnownLayout};

/// What is stored before is stored before what follows: between the two whoever goes on may find the rows.
#[inline]
pub(crate) fn fence() {
    compiler_fence(Ordering::SeqCst);
    #[cfg(test)]
    crash::pass();
}

/// An engine that ends at a store that was chosen before.
#[cfg(test)]
pub(crate) mod crash {
    use std::cell::Cell;
    use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

    thread_local! {
        static LEFT: Cell<Option<u32>> = const { Cell::new(None) };
        static AT_EACH: Cell<Option<fn()>> = const { Cell::new(None) };
    }

    struct Crash;

    /// Acts, up to fence `n` of this thread, counted from 0. Whether it has come so far, and has ended there.
    pub(crate) fn during(n: u32, act: impl FnOnce()) -> bool {
        LEFT.set(Some(n));
        let ended = catch_unwind(AssertUnwindSafe(act));
        LEFT.set(None);
        match ended {
            Ok(()) => false,
            Err(reason) if reason.is::<Crash>() => true,
            Err(reason) => resume_unwind(reason),
        }
    }

    /// Has that done at each fence of this thread, and when rows are mapped.
    pub(crate) fn at_each_fence(act: fn()) {
        AT_EACH.set(Some(act));
    }

    pub(crate) fn pass() {
        if let Some(act) = AT_EACH.get() {
            act();
        }
        match LEFT.get() {
            Some(0) => {
                LEFT.set(None);
                resume_unwind(Box::new(Crash));
            }
            left => LEFT.set(left.map(|left| left - 1)),
        }
    }
}

/// A descriptor in a row: its number plus one; 0: none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, FromBytes, Immutable, KnownLayout)]
#[repr(transparent)]
pub struct Held(u32);

impl Held {
    /// That of an open descriptor.
    pub fn of(fd: &impl AsRawFd) -> Self {
        Self(u32::try_from(fd.as_raw_fd()).map_or(0, |number| number + 1))
    }

    /// Its number.
    pub fn number(self) -> Option<RawFd> {
        self.0
            .checked_sub(1)
            .and_then(|number| RawFd::try_from(number).ok())
    }
}

/// A row of a table that is there or not.
pub trait Slot: Copy + FromZeros {
    /// 1: it is there.
    fn used_mut(&mut self) -> &mut u32;

    /// Makes the row.
    fn put(&mut self, mut value: Self) {
        self.clear();
        // No store of the copy says that the row is there.
        *value.used_mut() = 0;
        *self = value;
        fence();
        *self.used_mut() = 1;
        fence();
    }

    /// The row goes.
    fn clear(&mut self) {
        *self.used_mut() = 0;
        fence();
    }
}

macro_rules! slots {
    ($($row:ident),*) => {
        $(impl Slot for $row {
            fn used_mut(&mut self) -> &mut u32 {
                &mut self.used
            }
        })*
    };
}

/// The engine, as one of its cores knows it. The first core's is put last: all are there if that one is.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct EngineRow {
    /// 1: an engine has begun to serve with this file.
    pub used: u32,
    /// Of the last session and the last region that were made.
    pub last_session: u32,
    pub last_region: u32,
    /// The control socket.
    pub listener: Held,
    /// See [`super::layout`].
    pub layout: u64,
    /// `CLOCK_MONOTONIC` when the core's time was [`crate::process::clock::STARTED`], nanoseconds.
    pub origin_ns: u64,
    /// The stack's secret.
    pub secret: [u8; 16],
    /// The key of the hash that spreads connections over cores: whoever goes on spreads them alike.
    pub steering_key: u32,
    pub reserved: u32,
    pub device: DeviceRow,
}

/// The device, where the next engine can go on with it.
#[derive(Clone, Copy, Debug, Default, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct DeviceRow {
    /// Stored last; none: there is nothing to go on with.
    socket: Held,
    kernel_drop: Held,
    frame_bytes: u32,
    frame_count: u32,
}

impl DeviceRow {
    /// Another device, or none.
    pub fn put(&mut self, device: Option<&Numbers>) {
        self.socket = Held::default();
        fence();
        let Some(device) = device else {
            return;
        };
        self.kernel_drop = device
            .kernel_drop
            .map_or(Held::default(), |number| Held::of(&number));
        self.frame_bytes = device.geometry.frame_bytes;
        self.frame_count = device.geometry.frame_count;
        fence();
        self.socket = Held::of(&device.socket);
        fence();
    }

    /// What is to be taken up.
    pub fn numbers(&self) -> Option<Numbers> {
        Some(Numbers {
            socket: self.socket.number()?,
            kernel_drop: self.kernel_drop.number(),
            geometry: Geometry {
                frame_bytes: self.frame_bytes,
                frame_count: self.frame_count,
            },
        })
    }
}

/// Closings for which a program may wait at a time; more of them are told before their descriptors are closed.
pub const CLOSINGS: usize = 8;

/// An attached program, in its slot.
#[derive(Clone, Copy, Debug, FromZeros, Immutable, KnownLayout)]
#[repr(C)]
pub struct SessionRow {
    pub used: u32,
    pub number: u32,
    pub pid: i32,
    pub uid: u32,
    /// The control channel.
    pub control: Held,
    /// A request was taken, and its answer has not been sent: 1.
    pub owes_answer: u32,
    /// The doorbells, and the region's number, which is set last; 0: the program has said no hello yet.
    pub program_bell: Held,
    pub engine_bell: Held,
    pub region: u32,
    /// When it is rung.
    pub ring_every: u32,
    pub ring_after_us: u32,
    /// A command that accepts takes this row, plus one, and has not told yet.
    pub accepted: u32,
    /// The position of the command that is carried out, plus one.
    pub command: u64,
    /// Completions that the program was told before that.
    pub told: u64,
    /// Tokens of what was closed, while the descriptors are not.
    pub closings: [u32; CLOSINGS],
}

/// A region.
#[derive(Clone, Copy, Debug, FromZeros, Immutable, KnownLayout)]
#[repr(C)]
pub struct RegionRow {
    pub used: u32,
    pub number: u32,
    /// The session for which it was made.
    pub session: u32,
    pub uid: u32,
    pub file: Held,
}

/// A descriptor that a program has left with its engine: a prepared backing socket, or a file to send from.
#[derive(Clone, Copy, Debug, FromZeros, Immutable, KnownLayout)]
#[repr(C)]
pub struct HandleRow {
    pub used: u32,
    /// The session's slot.
    pub slot: u32,
    pub handle: u32,
    /// 1: a file.
    pub is_file: u32,
    pub file: Held,
}

/// A program that holds a socket besides the first.
#[derive(Clone, Copy, Debug, FromZeros, Immutable, KnownLayout)]
#[repr(C)]
pub struct HoldRow {
    pub used: u32,
    /// The socket's row, and which use of it.
    pub row: u32,
    pub generation: u32,
    /// The session's slot.
    pub slot: u32,
}

/// Memory through which two programs of this engine pass the bytes of their connections (`byte_channels`).
#[derive(Clone, Copy, Debug, FromZeros, Immutable, KnownLayout)]
#[repr(C)]
pub struct ChannelRow {
    pub used: u32,
    /// Stays when the row goes: later ones have higher numbers.
    pub number: u32,
    /// The numbers of the regions of both programs, side 0 first.
    pub regions: [u32; 2],
    pub file: Held,
    /// Who uses each side of each slot, as [`hostif::SocketId::to_bits`] has it; 0: nobody.
    pub owners: [[u64; 2]; SLOTS as usize],
}

/// What a datagram socket hears of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromZeros, Immutable, KnownLayout)]
#[repr(C)]
pub struct MembershipRow {
    pub used: u32,
    /// The socket's row, and which use of it.
    pub row: u32,
    pub generation: u32,
    /// See `sockets/memberships.rs`.
    pub kind: u32,
    /// The stack's number of the interface.
    pub interface: u32,
    pub group: PackedAddress,
    pub source: PackedAddress,
}

/// Bytes of a connection's stream that are in a file and not in its window (`device/files.rs`).
#[derive(Clone, Copy, Debug, FromZeros, Immutable, KnownLayout)]
#[repr(C)]
pub struct ExtentRow {
    pub used: u32,
    /// The socket's row, and which use of it.
    pub row: u32,
    pub generation: u32,
    /// Open as long as the row is there.
    pub file: Held,
    /// Stream offsets.
    pub start: u64,
    pub end: u64,
    /// Where in the file `start` is.
    pub offset: u64,
}

slots!(
    EngineRow,
    SessionRow,
    RegionRow,
    HandleRow,
    HoldRow,
    MembershipRow,
    ChannelRow,
    ExtentRow
);

/// A row as it was before the change that is under way.
#[derive(Clone, Copy, Debug, FromZeros, Immutable, KnownLayout)]
#[repr(C)]
pub struct Undo<T> {
    /// Its place plus one; 0: none yet.
    index_plus_one: u32,
    reserved: u32,
    row: T,
}

/// A row that says when it is being changed.
pub trait Fenced: Copy {
    /// Odd while the row is being changed.
    fn sequence_mut(&mut self) -> &mut u32;
}

impl<T: Fenced> Undo<T> {
    /// Changes row `index`; what a crash interrupts can be undone.
    pub fn change<R>(&mut self, index: u32, row: &mut T, change: impl FnOnce(&mut T) -> R) -> R {
        // While this is written the row is whole, and nobody asks for it.
        self.row = *row;
        self.index_plus_one = index.wrapping_add(1);
        fence();
        *row.sequence_mut() |= 1;
        fence();
        let result = change(row);
        fence();
        let sequence = row.sequence_mut();
        *sequence = (*sequence | 1).wrapping_add(1);
        fence();
        result
    }

    /// Undoes the change that was interrupted, if one was.
    pub fn roll_back(&mut self, rows: &mut [T]) {
        let index = self.index_plus_one.checked_sub(1);
        let index = index.and_then(|index| usize::try_from(index).ok());
        let Some(row) = index.and_then(|index| rows.get_mut(index)) else {
            return;
        };
        let sequence = *row.sequence_mut();
        let mut before = self.row;
        if sequence.is_multiple_of(2) || before.sequence_mut().wrapping_add(1) != sequence {
            return;
        }
        *before.sequence_mut() = sequence;
        // Whoever is stopped in here finds the row as interrupted as it was.
        *row = before;
        fence();
        *row.sequence_mut() = sequence.wrapping_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct Pair {
        sequence: u32,
        both: [u64; 2],
    }

    impl Fenced for Pair {
        fn sequence_mut(&mut self) -> &mut u32 {
            &mut self.sequence
        }
    }

    #[test]
    fn an_interrupted_change_is_undone_and_a_whole_one_is_not() {
        let row = |both| Pair { sequence: 4, both };
        let mut undo = Undo {
            index_plus_one: 0,
            reserved: 0,
            row: row([0, 0]),
        };
        let mut rows = [row([1, 1]), row([2, 2])];
        undo.change(1, &mut rows[1], |row| row.both = [3, 3]);
        undo.roll_back(&mut rows);
        assert_eq!(rows[1].both, [3, 3]);
        let before = rows;
        undo.change(1, &mut rows[1], |row| row.both = [4, 4]);
        (rows[1].sequence, rows[1].both[1]) = (before[1].sequence + 1, 3);
        undo.roll_back(&mut rows);
        assert_eq!(rows[1].both, [3, 3]);
        assert!(rows[1].sequence.is_multiple_of(2));
    }

    #[test]
    fn a_change_has_happened_or_not_wherever_its_engine_ends_and_the_one_that_undoes_it() {
        let row = |both| Pair { sequence: 4, both };
        for (n, m) in (0..8).flat_map(|n| (0..4).map(move |m| (n, m))) {
            let mut rows = [row([1, 1]), row([2, 2])];
            let mut undo = Undo {
                index_plus_one: 0,
                reserved: 0,
                row: row([0, 0]),
            };
            undo.change(0, &mut rows[0], |row| row.both = [5, 5]);
            let crashed = crash::during(n, || {
                undo.change(1, &mut rows[1], |row| {
                    row.both[0] = 3;
                    fence();
                    row.both[1] = 3;
                });
            });
            crash::during(m, || undo.roll_back(&mut rows));
            undo.roll_back(&mut rows);
            assert_eq!(rows[0].both, [5, 5], "{n} {m}");
            let [old, new] = [[2, 2], [3, 3]];
            assert!(
                rows[1].both == new || crashed && rows[1].both == old,
                "{n} {m} {rows:?}"
            );
            assert!(
                rows.iter().all(|row| row.sequence.is_multiple_of(2)),
                "{n} {m}"
            );
        }
    }

    #[test]
    fn a_row_is_there_as_a_whole_or_not_at_all_wherever_its_engine_ends() {
        let whole = |number| HoldRow {
            used: 1,
            row: number,
            generation: number,
            slot: number,
        };
        for n in 0..8 {
            let mut row = HoldRow::new_zeroed();
            crash::during(n, || {
                row.put(whole(1));
                row.put(whole(2));
                row.clear();
            });
            let is_whole = row.row == row.generation && row.generation == row.slot;
            assert!(row.used == 0 || is_whole, "{n} {row:?}");
        }
    }

    #[test]
    fn a_device_is_there_as_a_whole_or_not_at_all_wherever_its_engine_ends() {
        let device = |frame_count| Numbers {
            socket: 7,
            kernel_drop: None,
            geometry: Geometry {
                frame_bytes: frame_count,
                frame_count,
            },
        };
        let mut ends = 0;
        for n in 0..8 {
            let mut row = DeviceRow::default();
            let ended = crash::during(n, || {
                row.put(Some(&device(1)));
                row.put(Some(&device(2)));
            });
            ends += u32::from(ended);
            let whole = |found: Numbers| found == device(1) || found == device(2);
            assert!(row.numbers().is_none_or(whole), "{n} {row:?}");
            assert!(ended || row.numbers() == Some(device(2)), "{n}");
        }
        assert_eq!(ends, 6);
        let mut row = DeviceRow::default();
        row.put(Some(&device(1)));
        row.put(None);
        assert_eq!(row.numbers(), None);
    }

    #[test]
    fn a_descriptor_in_a_row_is_none_unless_it_was_put_there() {
        assert_eq!(Held::new_zeroed().number(), None);
        assert_eq!(Held::of(&std::io::stderr()).number(), Some(2));
    }
}
