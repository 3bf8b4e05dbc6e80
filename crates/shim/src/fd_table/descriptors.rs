//! Which descriptor numbers the switch serves, and what stands behind each.
//!
//! The question is asked by every call of the program; `tracked` has the answer "not ours". The answer itself is a [`Shared`] in a chunk that is made when first needed.
//!
//! Numbers from [`LIMIT`] on are never accelerated. A number that is closed behind the switch's back (by a system call
//! of the program's own) keeps its entry until a symbol of the switch hands the number out again.

mod tracked;

use std::os::fd::RawFd;
use std::sync::{Arc, OnceLock};

use client::{Loaded, Shared};

use crate::fd_table::file::File;
use crate::fd_table::unknown;
use crate::process;
use crate::sys::Inside;
use switch::stream::Stream;

pub use tracked::{LIMIT, is_tracked, tracked_in};

const CHUNK: usize = 1024;

static CHUNKS: [OnceLock<Box<Chunk>>; LIMIT / CHUNK] = [const { OnceLock::new() }; LIMIT / CHUNK];

/// A line of the cache for each: threads that use neighbouring numbers do not meet there.
#[repr(align(64))]
struct CacheLine(Shared<File>);

type Chunk = [CacheLine; CHUNK];

/// A looked-up entry; it stays valid when another thread closes the number meanwhile.
pub type Entry = Loaded<'static, File>;

/// What stands behind the number.
pub fn lookup(fd: RawFd) -> Option<Arc<File>> {
    borrow(fd)?.as_ref().map(Arc::clone)
}

/// What stands behind the number, without touching the reference count; for calls that do not sleep.
pub fn borrow(fd: RawFd) -> Option<Entry> {
    is_tracked(fd).then(|| borrow_tracked(fd)).flatten()
}

/// As [`borrow`], of a number that is tracked.
#[inline(always)]
pub fn borrow_tracked(fd: RawFd) -> Option<Entry> {
    unknown::resolve(fd);
    Some(slot(fd)?.load())
}

/// What stands behind the number as far as it is known: in a forked child the engines are not asked.
pub fn known(fd: RawFd) -> Option<Arc<File>> {
    slot(fd)?.load_full()
}

/// The file that has this stream, if this process has one.
pub fn file_with(stream: &Stream) -> Option<Arc<File>> {
    tracked_in(0, RawFd::MAX)
        .filter_map(known)
        .find(|file| file.socket().is_some_and(|socket| socket.is_on(stream)))
}

/// From now on the number is asked about, though nothing is known to stand behind it.
pub fn follow(fd: RawFd) {
    tracked::mark(fd, true);
}

/// Puts `file` behind the number and counts the reference. Whatever stood there has been closed.
pub fn insert(fd: RawFd, file: Arc<File>) {
    if process::is_borrowed_memory() {
        return;
    }
    let Some(slot) = slot_or_new(fd) else { return };
    file.add_descriptor();
    let previous = slot.swap(Some(file));
    tracked::mark(fd, true);
    if let Some(previous) = previous {
        previous.drop_descriptor();
    }
}

/// Takes the entry away. The caller owns the reference that the number held, and must hand it to
/// [`File::drop_descriptor`] once the kernel's descriptor is closed too.
pub fn take(fd: RawFd) -> Option<Arc<File>> {
    if !is_tracked(fd) || process::is_borrowed_memory() {
        return None;
    }
    unknown::forget(fd);
    tracked::mark(fd, false);
    slot(fd)?.swap(None)
}

/// Forgets what stood behind the number, if anything: the kernel has just handed the number out
/// anew, so whatever it was is closed.
pub fn forget(fd: RawFd) {
    if let Some(file) = take(fd) {
        file.drop_descriptor();
    }
}

/// From now on no number is the switch's, though nothing was closed: what stood behind them is another process's.
pub fn leave_all() {
    for fd in tracked_in(0, RawFd::MAX) {
        tracked::mark(fd, false);
    }
}

fn slot(fd: RawFd) -> Option<&'static Shared<File>> {
    let number = usize::try_from(fd).ok()?;
    Some(&CHUNKS.get(number / CHUNK)?.get()?[number % CHUNK].0)
}

fn slot_or_new(fd: RawFd) -> Option<&'static Shared<File>> {
    let number = usize::try_from(fd).ok()?;
    let chunk = CHUNKS.get(number / CHUNK)?;
    Some(&chunk.get_or_init(new_chunk)[number % CHUNK].0)
}

/// Made in place: it is as large as some threads' whole stack.
fn new_chunk() -> Box<Chunk> {
    let slots: Box<[CacheLine]> = (0..CHUNK).map(|_| CacheLine(Shared::empty())).collect();
    slots
        .try_into()
        .unwrap_or_else(|_| unreachable!("as many were made"))
}

/// Whether the number is the library's own and the call does not come from the library itself.
pub fn is_private(fd: RawFd) -> bool {
    client::is_private(fd) && !Inside::is_active()
}

/// Whether a close of this number is the program's and has to be kept from happening. The library's own
/// (an engine inside the program drops descriptors as any program does) is not, and ends the number's time.
pub fn is_kept_open(fd: RawFd) -> bool {
    let is_private = is_private(fd);
    if !is_private && client::is_private(fd) {
        client::unmark(fd);
    }
    is_private
}

/// The library's own numbers in `first..=last`, in order.
pub fn private_in(first: RawFd, last: RawFd) -> impl Iterator<Item = RawFd> {
    // Above the limit of open files there are none, and the marks of a million numbers take a while.
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let limit = limit
        .and_then(|limit| RawFd::try_from(limit).ok())
        .unwrap_or(RawFd::MAX);
    let end = last
        .saturating_add(1)
        .min(limit)
        .min(RawFd::try_from(LIMIT).unwrap_or(RawFd::MAX));
    (first.max(client::lowest_private())..end).filter(|&fd| client::is_private(fd))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fd_table::file::Kind;
    use crate::socket::Socket;

    fn file() -> Arc<File> {
        File::new(Kind::Socket(Socket::default()))
    }

    #[test]
    fn a_number_is_tracked_from_insert_to_take() {
        let fd = 700_001;
        assert!(!is_tracked(fd) && lookup(fd).is_none());
        let file = file();
        insert(fd, Arc::clone(&file));
        assert!(is_tracked(fd) && Arc::ptr_eq(&lookup(fd).unwrap(), &file));
        assert!(Arc::ptr_eq(&take(fd).unwrap(), &file));
        assert!(!is_tracked(fd) && take(fd).is_none());
    }

    #[test]
    fn duplicates_share_the_file_and_the_last_reference_is_known() {
        let (first, second) = (700_101, 700_102);
        let file = file();
        insert(first, Arc::clone(&file));
        assert!(file.is_last_reference());
        insert(second, Arc::clone(&file));
        assert!(!file.is_last_reference());
        forget(first);
        assert!(file.is_last_reference() && is_tracked(second));
        forget(second);
    }

    #[test]
    fn what_replaces_a_file_lets_go_of_it() {
        let fd = 700_201;
        let (old, new) = (file(), file());
        insert(fd, Arc::clone(&old));
        let sleeper = old.sleeper();
        insert(fd, Arc::clone(&new));
        assert!(old.is_last_reference(), "only the sleeping call is left");
        assert!(Arc::ptr_eq(&lookup(fd).unwrap(), &new));
        drop(sleeper);
        forget(fd);
    }

    #[test]
    fn ranges_name_tracked_numbers_in_order() {
        for fd in [700_363, 700_320, 700_399] {
            insert(fd, file());
        }
        assert_eq!(
            tracked_in(700_300, 700_399).collect::<Vec<_>>(),
            [700_320, 700_363, 700_399]
        );
        assert_eq!(tracked_in(700_321, 700_398).collect::<Vec<_>>(), [700_363]);
        for fd in [700_363, 700_320, 700_399] {
            forget(fd);
        }
    }

    #[test]
    fn numbers_out_of_range_are_never_tracked() {
        let beyond = RawFd::try_from(LIMIT).unwrap();
        insert(beyond, file());
        insert(-1, file());
        assert!(!is_tracked(beyond) && !is_tracked(-1) && !is_tracked(RawFd::MAX));
    }

    #[test]
    fn lookups_race_with_replacement_without_harm() {
        let fd = 700_501;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..5_000 {
                    insert(fd, file());
                    forget(fd);
                }
            });
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..5_000 {
                        if let Some(entry) = borrow(fd) {
                            assert!(entry.as_ref().is_none_or(|file| file.epoll().is_none()));
                        }
                    }
                });
            }
        });
    }
}
