//! Descriptors that leave the sight of the sessions: through exec(3), posix_spawn(3), SCM_RIGHTS. Whoever has one and
//! passes it to the engine holds its socket from then on. See docs/decisions/0037-descriptors-that-are-handed-on.md.
//!
//! A socket that no session holds lives on as long as its descriptor is open anywhere, as in the kernel. The system
//! tells nobody when the last one is closed. But an epoll set loses an entry at that moment, and shows its entries in
//! /proc/self/fdinfo: so the engine enters its duplicate, closes it, and looks now and then (epoll(7), proc(5)).

use crate::held_ports;
use crate::programs::Answered;
use crate::programs::resume::Taken;
use crate::programs::session::Session;
use crate::programs::users::{ProgramFd, Users};
use crate::sockets::rows::{Kind, Marks};
use crate::sockets::{Identity, Sockets};
use hostif::SocketId;
use hostif::control::{Adopted, Reply};
use hostif::id::IdMap;
use rustix::event::epoll;
use rustix::fd::{AsRawFd as _, OwnedFd, RawFd};
use rustix::io::Errno;
use stack::Stack;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use tcp::{Duration, Instant};

/// Sockets that may be without a session at a time; what comes after them is closed.
const ORPHANS_MAX: usize = 4_096;
/// A program that ends closes its descriptors a moment after its channel.
const FIRST_PAUSE: Duration = Duration::from_ms(1);
/// The longest time between two looks.
const LAST_PAUSE: Duration = Duration::from_ms(128);
/// How long a socket without a session lives where the system does not tell of its descriptors.
const BLIND: Duration = Duration::from_secs(5);

/// What became of a batch's sockets.
#[derive(Default)]
struct Entered {
    /// They are in the set, as far as they can be.
    is_done: bool,
    /// The engine's duplicates, which their rows name until they are closed.
    backings: Vec<(SocketId, ProgramFd)>,
    /// What holds the ports of connections, by [`SocketId::to_bits`].
    ports: IdMap<u64, ProgramFd>,
}

/// Sockets that lost their last session at the same time.
struct OrphanBatch {
    /// Has an entry for each of them, once they are entered, unless its descriptors are all closed.
    set: Arc<OwnedFd>,
    entered: Arc<Mutex<Entered>>,
    sockets: Vec<SocketId>,
    since: Instant,
    next_look: Instant,
    pause: Duration,
}

/// All orphans of a core; every batch has at least one socket.
pub struct Orphans {
    batches: Vec<OrphanBatch>,
    users: Arc<Users>,
}

impl Orphans {
    /// When to look again.
    pub fn next_look(&self) -> Option<Instant> {
        self.batches.iter().map(|batch| batch.next_look).min()
    }

    fn count(&self) -> usize {
        self.batches.iter().map(|batch| batch.sockets.len()).sum()
    }
}

impl Orphans {
    /// None yet.
    pub fn new(users: Arc<Users>) -> Self {
        Self {
            batches: Vec::new(),
            users,
        }
    }

    /// The session has a descriptor: it holds the socket behind it from now on.
    pub(crate) fn adopt(
        &mut self,
        sockets: &mut Sockets,
        (slot, session): (usize, &mut Session),
        descriptors: Vec<ProgramFd>,
    ) -> Answered {
        let unknown = || (Errno::NOENT, "not a socket of this engine".to_owned());
        let backing = descriptors.into_iter().next().ok_or_else(unknown)?;
        let identity = Identity::of(&*backing).map_err(|_| unknown())?;
        let row = sockets.backed_by(identity).ok_or_else(unknown)?;
        let is_orphan = sockets.has(row, Marks::ORPHAN);
        // One that its last holder has closed is on its way out.
        if !is_orphan && sockets.holders(row).is_empty() {
            return Err(unknown());
        }
        let record = *sockets.row(row);
        let id = sockets.id(row).ok_or_else(unknown)?;
        let owner = sockets.regions.owner(record.region);
        // Root too: whoever shares the memory can keep its locks.
        if owner.is_some_and(|owner| owner.uid != session.user.uid) {
            let text =
                "this socket belongs to another user's program, whose memory it lies in".to_owned();
            return Err((Errno::ACCESS, text));
        }
        if session.sockets.insert(row) {
            sockets.hold(row, slot);
        }
        sockets.set_mark(row, Marks::SHARED, true);
        if is_orphan {
            // In this order: where it is an orphan still, whoever goes on enters it once more.
            sockets.set_backing(row, backing);
            sockets.set_mark(row, Marks::ORPHAN, false);
            self.forget_orphan(id);
        }
        let adopted = Adopted {
            socket: id,
            region: record.region,
            header: record.header,
        };
        Ok((Reply::Adopted(adopted), Vec::new()))
    }

    /// No session holds these any more, or the last one is about to let go of them. Returns those that are to be closed; the others may have
    /// descriptors somewhere.
    #[must_use]
    pub(crate) fn begin(&mut self, now: Instant, sockets: &mut Sockets, rows: &[u32]) -> Vec<u32> {
        if rows.is_empty() {
            return Vec::new();
        }
        // While their backing sockets can still be asked.
        sockets.read_identities();
        let mut room = ORPHANS_MAX.saturating_sub(self.count());
        let set = epoll::create(epoll::CreateFlags::CLOEXEC).map(hostif::host_hooks::relocate_fd);
        let (mut entries, mut closed) = (Vec::new(), Vec::new());
        for &row in rows {
            let backing = sockets.companion(row).backing.take();
            match (&set, backing, sockets.id(row)) {
                (Ok(_), Some(backing), Some(id)) if room > 0 => {
                    room -= 1;
                    let is_held = sockets.holds_port(row);
                    sockets.set_mark(row, Marks::ORPHAN, true);
                    entries.push((id, backing, is_held));
                }
                (_, backing, _) => {
                    sockets.keep_backing(row, backing);
                    closed.push(row);
                }
            }
        }
        if let Ok(set) = set {
            self.enter(now, set, entries);
        }
        closed
    }

    fn enter(&mut self, now: Instant, set: OwnedFd, entries: Vec<(SocketId, ProgramFd, bool)>) {
        let Some((_, first, _)) = entries.first() else {
            return;
        };
        let (set, entered) = (Arc::new(set), Arc::<Mutex<Entered>>::default());
        let user = Arc::clone(first.user());
        self.batches.push(OrphanBatch {
            set: Arc::clone(&set),
            entered: Arc::clone(&entered),
            sockets: entries.iter().map(|(id, ..)| *id).collect(),
            since: now,
            next_look: now,
            pause: FIRST_PAUSE,
        });
        // To enter what is in somebody's set already takes a lock of the whole system, which may be kept.
        user.run(move || {
            let mut ports = IdMap::default();
            let mut backings = Vec::new();
            for (id, backing, is_held) in entries {
                // Before the engine's duplicate closes, which may be the last.
                if is_held && let Ok(socket) = held_ports::beside(&backing) {
                    ports.insert(id.to_bits(), backing.user().keep(socket));
                }
                let data = epoll::EventData::new_u64(id.to_bits());
                // Without an entry it counts as closed.
                let _ = epoll::add(&*set, &*backing, data, epoll::EventFlags::empty());
                backings.push((id, backing));
            }
            *lock(&entered) = Entered {
                is_done: true,
                backings,
                ports,
            };
        });
    }

    /// After a restart: sockets that were without a session, with the sets that show their descriptors. Those that were not entered yet have
    /// their backing sockets.
    pub(crate) fn resume(&mut self, now: Instant, sockets: &mut Sockets, taken: &mut Taken) {
        let orphans = (0..sockets.used()).filter(|row| sockets.has(*row, Marks::ORPHAN));
        let orphans = orphans.filter(|row| sockets.row(*row).kind != Kind::Free);
        let (again, orphans): (Vec<_>, Vec<_>) = orphans.partition(|row| sockets.has_backing(*row));
        let mut sets: BTreeMap<Option<RawFd>, Vec<SocketId>> = BTreeMap::new();
        for row in orphans {
            let set = sockets.row(row).backing.number();
            sets.entry(set).or_default().extend(sockets.id(row));
        }
        let closed = self.begin(now, sockets, &again);
        let closed = closed.into_iter().filter_map(|row| sockets.id(row));
        sets.entry(None).or_default().extend(closed);
        for (set, ids) in sets.into_iter().filter(|(_, ids)| !ids.is_empty()) {
            // Without the set nobody knows of a descriptor: an empty one says that all are closed.
            let set = set
                .and_then(|number| taken.take_number(number))
                .or_else(|| epoll::create(epoll::CreateFlags::CLOEXEC).ok());
            let shown = set.as_ref().and_then(entries_of).into_iter().flatten();
            for (id, inode) in shown {
                if let Some(id) = ids.iter().find(|one| one.to_bits() == id) {
                    sockets.know_orphan(*id, inode);
                }
            }
            let entered = Entered {
                is_done: true,
                ..Entered::default()
            };
            self.batches.extend(set.map(|set| OrphanBatch {
                set: Arc::new(set),
                entered: Arc::new(Mutex::new(entered)),
                sockets: ids,
                since: now,
                next_look: now,
                pause: FIRST_PAUSE,
            }));
        }
    }

    /// Looks at all of them the next time.
    pub(crate) fn hurry(&mut self, now: Instant) {
        for batch in &mut self.batches {
            batch.next_look = now;
        }
    }

    /// Closes the engine's duplicates as far as the descriptors are entered; whether there were any.
    pub(crate) fn close_duplicates(&self, sockets: &mut Sockets) -> bool {
        let count = self.batches.iter().map(|batch| {
            let mut entered = lock(&batch.entered);
            let_go(&mut entered, &batch.set, sockets)
        });
        count.sum::<usize>() > 0
    }

    /// Returns the rows of those whose descriptors are all closed, as far as a look is due, with what holds their ports: they are to
    /// be closed.
    pub(crate) fn poll(
        &mut self,
        now: Instant,
        sockets: &mut Sockets,
    ) -> Vec<(u32, Option<ProgramFd>)> {
        let mut closed = Vec::new();
        for batch in &mut self.batches {
            if batch.next_look > now {
                continue;
            }
            batch.next_look = now + batch.pause;
            batch.pause = (batch.pause + batch.pause).min(LAST_PAUSE);
            // The user's thread may be kept for as long as its programs like: it is looked at no more often for that.
            let mut entered = lock(&batch.entered);
            if !entered.is_done {
                continue;
            }
            let_go(&mut entered, &batch.set, sockets);
            let open = entries_of(&batch.set).unwrap_or_else(|| {
                let is_over = now >= batch.since + BLIND;
                let all = batch.sockets.iter().filter(|_| !is_over);
                all.map(|id| (id.to_bits(), 0)).collect()
            });
            batch.sockets.retain(|id| {
                if open.contains_key(&id.to_bits()) {
                    return true;
                }
                if let Some(row) = sockets.row_of(id.to_bits()) {
                    sockets.end_orphan(row);
                    closed.push((row, entered.ports.remove(&id.to_bits())));
                }
                false
            });
        }
        self.batches.retain(|batch| !batch.sockets.is_empty());
        closed
    }

    /// While a connection ends, and in TIME-WAIT, the kernel is not to give its port to another program. What could not be held
    /// before, because the backing socket listened or an engine before this one ended, may have been given to somebody since, who
    /// keeps it.
    pub(crate) fn hold_port(
        &self,
        stack: &Stack<'_>,
        sockets: &mut Sockets,
        (row, held): (u32, Option<ProgramFd>),
    ) {
        let connection = sockets.row(row).connection();
        let connection = connection.filter(|_| sockets.holds_port(row));
        let ends = connection.and_then(|connection| stack.addresses(connection).ok());
        if let Some((local, _)) = ends {
            let again = || {
                let own = self.users.user(rustix::process::geteuid().as_raw());
                Some(own.ok()?.keep(held_ports::bound_to(local).ok()?))
            };
            sockets.keep_backing(row, held.or_else(again));
        }
    }

    fn forget_orphan(&mut self, id: SocketId) {
        for batch in &mut self.batches {
            batch.sockets.retain(|one| *one != id);
            let mut entered = lock(&batch.entered);
            entered.ports.remove(&id.to_bits());
            entered.backings.retain(|(one, _)| *one != id);
        }
        self.batches.retain(|batch| !batch.sockets.is_empty());
    }
}

/// The rows show the set from now on, and not the engine's duplicates, which are closed; how many.
fn let_go(entered: &mut Entered, set: &OwnedFd, sockets: &mut Sockets) -> usize {
    let count = entered.backings.len();
    for (id, backing) in entered.backings.drain(..) {
        let row = sockets.row_of(id.to_bits());
        if let Some(row) = row.filter(|row| sockets.has(*row, Marks::ORPHAN)) {
            sockets.show_orphan(row, set);
        }
        // A row names what is open: it is closed after that.
        drop(backing);
    }
    count
}

/// Held for moments only, by the engine and by a user's thread.
fn lock(entered: &Mutex<Entered>) -> std::sync::MutexGuard<'_, Entered> {
    entered.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The data of the entries of an epoll set of this process, and the inode of each; `None`: the system does not say.
fn entries_of(set: &OwnedFd) -> Option<IdMap<u64, u64>> {
    let path = format!("/proc/self/fdinfo/{}", set.as_raw_fd());
    let text = std::fs::read_to_string(path).ok()?;
    Some(parse(&text))
}

/// Lines like `tfd:        5 events:       19 data:         2a00000007  pos:0 ino:1f sdev:8`.
fn parse(text: &str) -> IdMap<u64, u64> {
    let entries = text.lines().filter(|line| line.starts_with("tfd:"));
    let data = entries.filter_map(|line| {
        let mut words = line.split_whitespace();
        words.find(|word| *word == "data:")?;
        let data = words.next()?;
        let inode = words.find_map(|word| word.strip_prefix("ino:"))?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        Some((number(data)?, number(inode)?))
    });
    data.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_entries_of_a_set_are_read_from_what_the_system_shows() {
        let text = "pos:\t0\nflags:\t02000002\nmnt_id:\t15\nino:\t42\n\
                    tfd:        5 events:       19 data:         2a00000007  pos:0 ino:1f sdev:8\n\
                    tfd:       11 events:        0 data:                 9  pos:0 ino:2f sdev:8\n";
        let mut read: Vec<(u64, u64)> = parse(text).into_iter().collect();
        read.sort_unstable();
        assert_eq!(read, [(9, 0x2f), (0x2a_0000_0007, 0x1f)]);
    }

    #[test]
    fn an_entry_lives_as_long_as_any_descriptor_of_its_file() {
        let set = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let file = rustix::net::socket(
            rustix::net::AddressFamily::INET,
            rustix::net::SocketType::STREAM,
            None,
        )
        .unwrap();
        let data = epoll::EventData::new_u64(7);
        epoll::add(&set, &file, data, epoll::EventFlags::empty()).unwrap();
        let elsewhere = rustix::io::fcntl_dupfd_cloexec(&file, 0).unwrap();
        drop(file);
        assert!(entries_of(&set).unwrap().contains_key(&7));
        drop(elsewhere);
        assert!(entries_of(&set).unwrap().is_empty());
    }
}
