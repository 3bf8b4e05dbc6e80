//! Epoll interests in a descriptor that changes its file: epoll(7) knows a file and a number, so what a program
//! put into its sets before connect or listen is put there again for the end of the pair.
//!
//! The sets are found in /proc, and so are the interests. To change one the supervisor, which has one thread,
//! puts the file at the program's number in its own table for a moment.

use std::collections::HashMap;
use std::fs;

use rustix::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use rustix::io::Errno;

use crate::caller::Caller;
use crate::sys;

/// Threads whose sets are remembered.
const THREADS_MAX: usize = 256;
/// Sets of one process that are looked at.
const SETS_MAX: usize = 64;

/// Which descriptors of which threads are epoll sets.
#[derive(Default)]
pub struct Sets(HashMap<u32, Vec<RawFd>>);

/// An interest that has to be made again.
struct Interest {
    set: OwnedFd,
    events: u32,
    data: u64,
}

impl Sets {
    /// A program makes a set: what is remembered may lack it.
    pub fn forget(&mut self) {
        self.0.clear();
    }

    /// Moves the interests in the caller's `fd` from one file to another; `exchange` puts that in its place.
    pub fn follow<T>(
        &mut self,
        caller: Caller,
        fd: RawFd,
        (old, new): (BorrowedFd<'_>, BorrowedFd<'_>),
        exchange: impl FnOnce() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let interests = self.interests(caller, fd, old);
        let exchanged = exchange()?;
        for interest in interests {
            // The supervisor's own number for the set must not be the one that the file is put at.
            let Ok(set) = rustix::io::fcntl_dupfd_cloexec(&interest.set, fd.saturating_add(1))
            else {
                continue;
            };
            let set = set.as_fd();
            let _ = sys::at_number(fd, old, || sys::epoll_delete(set, fd));
            let _ = sys::at_number(fd, new, || {
                sys::epoll_add(set, fd, interest.events, interest.data)
            });
        }
        Ok(exchanged)
    }

    fn interests(&mut self, caller: Caller, fd: RawFd, file: BorrowedFd<'_>) -> Vec<Interest> {
        if self.0.len() >= THREADS_MAX {
            self.0.clear();
        }
        let sets = self
            .0
            .entry(caller.tid)
            .or_insert_with(|| find_sets(caller));
        let Ok(inode) = rustix::fs::fstat(file).map(|stat| stat.st_ino) else {
            return Vec::new();
        };
        let known = sets.iter().filter_map(|&number| {
            // With thousands of interests /proc takes a while.
            if sys::is_known_to(caller.tid, number, fd) == Some(false) {
                return None;
            }
            let text = caller.read_proc(&format!("fdinfo/{number}")).ok()?;
            let (events, data) = parse(&text, fd, inode)?;
            let set = caller.descriptor(number).ok()?;
            Some(Interest { set, events, data })
        });
        known.collect()
    }
}

fn find_sets(caller: Caller) -> Vec<RawFd> {
    let Ok(entries) = fs::read_dir(format!("/proc/{}/fd", caller.tid)) else {
        return Vec::new();
    };
    let is_set = |entry: &fs::DirEntry| {
        fs::read_link(entry.path())
            .is_ok_and(|target| target.as_os_str() == "anon_inode:[eventpoll]")
    };
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    let sets = entries.filter_map(Result::ok).filter(is_set);
    sets.filter_map(number).take(SETS_MAX).collect()
}

/// Events and data of the interest in a file, as /proc shows them (proc_pid_fdinfo(5)): a line reads
/// `tfd: 5 events: 19 data: 5 pos:0 ino:61 sdev:d`, all but the first number in hexadecimal.
fn parse(text: &str, fd: RawFd, inode: u64) -> Option<(u32, u64)> {
    text.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let mut value = |name| (words.next()? == name).then(|| words.next()).flatten();
        let number: RawFd = value("tfd:")?.parse().ok()?;
        let events = u32::from_str_radix(value("events:")?, 16).ok()?;
        let data = u64::from_str_radix(value("data:")?, 16).ok()?;
        let file = words.find_map(|word| word.strip_prefix("ino:"))?;
        let is_it = number == fd && u64::from_str_radix(file, 16) == Ok(inode);
        is_it.then_some((events, data))
    })
}

/// The data of the interest that a line tells of.
pub fn data(line: &str) -> Option<u64> {
    let mut words = line.split_whitespace();
    words.find(|word| *word == "data:")?;
    u64::from_str_radix(words.next()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::epoll::{self, EventData, EventFlags};
    use rustix::fd::AsRawFd;
    use rustix::net::{AddressFamily, SocketType, socket};

    #[test]
    fn an_interest_is_read_as_proc_shows_it() {
        let text = "pos:\t0\nflags:\t02\nmnt_id:\t15\nino:\t1057\n\
                    tfd:        5 events: 80002019 data:  100000005  pos:0 ino:61 sdev:d\n\
                    tfd:       11 events:       19 data:                b  pos:0 ino:62 sdev:d\n";
        assert_eq!(parse(text, 5, 0x61), Some((0x8000_2019, 0x1_0000_0005)));
        assert_eq!(parse(text, 11, 0x62), Some((0x19, 0xb)));
        assert_eq!(parse(text, 11, 0x61), None, "another file had the number");
        assert_eq!(parse(text, 1, 0x61), None);
        assert_eq!(parse("tfd: x\n\n", 1, 1), None);
    }

    #[test]
    fn interests_follow_the_number_to_another_file() {
        let caller = Caller {
            tid: rustix::thread::gettid()
                .as_raw_nonzero()
                .get()
                .cast_unsigned(),
        };
        let set = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let old = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        let (new, peer) = std::os::unix::net::UnixStream::pair().unwrap();
        let number = old.as_raw_fd();
        let data = EventData::new_u64(77);
        epoll::add(&set, &old, data, EventFlags::IN | EventFlags::ET).unwrap();
        let kept = rustix::io::dup(&old).unwrap();
        let exchange = || {
            std::mem::forget(old);
            sys::replace(number, new.as_fd())
        };
        let files = (kept.as_fd(), new.as_fd());
        let mut sets = Sets::default();
        sets.follow(caller, number, files, exchange).unwrap();
        let mut events = Vec::with_capacity(4);
        let soon = rustix::event::Timespec::default();
        epoll::wait(
            &set,
            rustix::buffer::spare_capacity(&mut events),
            Some(&soon),
        )
        .unwrap();
        assert!(
            events.is_empty(),
            "an unconnected socket hangs up: it is not heard any more"
        );
        std::io::Write::write_all(&mut &peer, b"x").unwrap();
        epoll::wait(
            &set,
            rustix::buffer::spare_capacity(&mut events),
            Some(&soon),
        )
        .unwrap();
        assert_eq!(events.len(), 1);
        let (flags, data) = (events[0].flags, events[0].data.u64());
        assert_eq!((flags, data), (EventFlags::IN, 77));
    }
}
