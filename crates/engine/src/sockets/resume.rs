//! Sockets that an engine before this one served, taken up from their rows: everything beside the rows is derived again.

use super::region::Use;
use super::rows::{Kind, Marks, SocketRow, at};
use super::{Companion, Sockets};
use crate::device::link::SendWindow;
use crate::programs::resume::Taken;
use crate::programs::users::User;
use crate::state::rows::Held;
use hostif::datagram::Rings;
use hostif::sync::lock::MAX_SESSION;
use hostif::{DatagramOptions, Layout, SocketHeader};
use rustix::fs::FileType;
use std::sync::Arc;

/// Whether it is a socket that has this number.
fn is_socket(held: Held) -> bool {
    let fd = held.number().and_then(crate::state::duplicate);
    let stat = fd.and_then(|fd| rustix::fs::fstat(fd).ok());
    stat.is_some_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Socket)
}

impl Sockets {
    /// Takes the regions up.
    pub(crate) fn resume_regions(
        &mut self,
        last: u32,
        layout: &Layout,
        taken: &mut Taken,
        user: &mut dyn FnMut(u32) -> Option<Arc<User>>,
    ) {
        self.regions.resume(last, layout, taken, user);
    }

    /// Takes the sockets up. `holds_still` says whether there is a session in a slot.
    pub(crate) fn resume(&mut self, taken: &mut Taken, holds_still: &dyn Fn(usize) -> bool) {
        let mut used = Vec::new();
        for row in 0..u32::try_from(self.rows.len()).unwrap_or(u32::MAX) {
            // What is beyond was never used.
            if self.row(row).generation == 0 {
                break;
            }
            self.used = row + 1;
            self.companions.push(Companion::default());
            if self.row(row).kind != Kind::Free {
                self.resume_row(row, taken, holds_still);
            }
            let record = self.row(row);
            if record.kind == Kind::Free {
                self.free.push(row);
            } else {
                used.push(Use {
                    region: record.region,
                    header: record.header,
                    pair: record.pair(),
                    tables: record.tables(),
                });
            }
        }
        self.regions.resume_use(&used);
        let rows = &self.rows;
        self.memberships.resume(|one| {
            let socket = rows.get(at(one.row));
            socket.is_some_and(|socket| {
                socket.kind == Kind::Datagram && socket.generation == one.generation
            })
        });
        for hold in self.holds.found() {
            let slot = usize::try_from(hold.slot).unwrap_or(usize::MAX);
            let is_its = self
                .rows
                .get(at(hold.row))
                .is_some_and(|row| row.kind != Kind::Free && row.generation == hold.generation);
            if is_its && holds_still(slot) {
                self.companions[at(hold.row)].holders.push(slot);
            } else {
                self.holds.remove(hold.row, hold.slot);
            }
        }
    }

    fn resume_row(&mut self, row: u32, taken: &mut Taken, holds_still: &dyn Fn(usize) -> bool) {
        let record = *self.row(row);
        let region = self.regions.find(record.region).cloned();
        let place = region
            .as_ref()
            .and_then(|region| region.header_place(record.header));
        let (Some(region), Some(place)) = (region, place) else {
            return self.lose(row);
        };
        // An engine that gave memory back was stopped with the lock in its hand.
        place.header().engine_release_dead(MAX_SESSION);
        let mut companion = Companion {
            place: Some(place),
            ..Companion::default()
        };
        let holder = record.holder.checked_sub(1);
        let holder = holder.and_then(|slot| usize::try_from(slot).ok());
        match holder.filter(|slot| holds_still(*slot)) {
            Some(slot) => companion.holders.push(slot),
            None => self.rows[at(row)].holder = 0,
        }
        let words = self.datagram_options[at(row)];
        if matches!(record.kind, Kind::FreshDatagram | Kind::Datagram) {
            companion.datagram_options = DatagramOptions::decode(words).unwrap_or_default();
        }
        if !record.has(Marks::ORPHAN) || is_socket(record.backing) {
            let user = self.regions.user(record.region);
            companion.backing = user.and_then(|user| taken.take(record.backing, &user));
        }
        let windows = record.pair().and_then(|pair| region.window_pair(pair));
        if let Some((send, receive)) = windows {
            match record.datagram() {
                Some(id) => {
                    let [asked_send, asked_receive] = self.datagrams[at(id.index)].rings;
                    let rings = Rings::new(send, receive, asked_send, asked_receive);
                    companion.rings = Some(rings);
                }
                None => {
                    companion.receive = Some(receive);
                    let window = SendWindow::of(region, send, record.header);
                    self.new_windows.push((row, window));
                }
            }
        }
        let has_backing = companion.backing.is_some();
        self.companions[at(row)] = companion;
        if has_backing && let Some(id) = self.id(row) {
            self.identities.unread.push(id);
        }
    }

    /// A row that makes no sense any more: its name becomes stale.
    fn lose(&mut self, row: u32) {
        let record = &mut self.rows[at(row)];
        *record = SocketRow {
            sequence: record.sequence.next_multiple_of(2),
            generation: record.generation.wrapping_add(1).max(1),
            ..zerocopy::FromZeros::new_zeroed()
        };
    }

    /// Says in the header what the row says: the engine before may have stopped in between.
    pub(crate) fn publish_again(&mut self, row: u32) {
        let record = *self.row(row);
        let flags = hostif::Flags::from_bits_truncate(record.published);
        self.with_header(row, |header: SocketHeader<'_>| {
            header.engine_set_flags(flags)
        });
        // A wake-up of nobody is a system call for each socket.
        let owes_signals = |header: SocketHeader<'_>| !header.has_sent_signals();
        if self.with_header(row, owes_signals).unwrap_or_default() {
            self.forget_signals(row);
        }
        self.count_rx(row);
        self.count_tx(row);
    }
}
