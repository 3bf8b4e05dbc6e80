//! The files that this process has shared with its engine: the few used last.
//!
//! No mutex: it might be locked by another thread when this one forks. The list is replaced as a
//! whole. A file that falls out of it is given back when the last call that uses it has ended; one
//! that a forked child finds in it is its parent's and is passed over.

use core::sync::atomic::{AtomicI64, Ordering};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use client::Shared;
use rustix::fs::Stat;
use rustix::time::ClockId;

use client::SharedFile;
use switch::stream::Stream;

/// Files remembered. The engine holds them open, so a deleted one keeps its place on the disk.
const FILES_MAX: usize = 8;
/// A file that was not sent for so long gives way to any other.
const IDLE_S: i64 = 60;
/// statfs(2) numbers of file systems whose files the engine reads: ext2 to ext4, XFS, btrfs, F2FS, tmpfs.
const FILE_SYSTEMS: [u64; 5] = [0xef53, 0x5846_5342, 0x9123_683e, 0xf2f5_2010, 0x0102_1994];

/// A file that was asked for before.
pub struct Known {
    device: u64,
    inode: u64,
    /// `None`: the engine does not read it.
    file: Option<SharedFile>,
    used_s: AtomicI64,
}

static KNOWN: Shared<Vec<Arc<Known>>> = Shared::empty();

impl Known {
    /// Whether this is the file, as the part of the engine that serves `stream` knows it.
    fn is(&self, stat: &Stat, stream: &Stream) -> bool {
        let serves = |file: &SharedFile| stream.has_file(file);
        self.device == stat.st_dev
            && self.inode == stat.st_ino
            && self.file.as_ref().is_none_or(serves)
    }

    fn is_usable(&self) -> bool {
        self.file.as_ref().is_none_or(SharedFile::is_current)
    }

    /// The engine's handle of it.
    pub fn file(&self) -> Option<&SharedFile> {
        self.file.as_ref()
    }
}

/// The engine's handle of a file, shared now if it was not. While the engine holds a file open no
/// other gets its device and inode numbers.
pub fn find(
    stream: &Stream,
    file: BorrowedFd<'_>,
    stat: &Stat,
    may_share: bool,
) -> Option<Arc<Known>> {
    let now_s = rustix::time::clock_gettime(ClockId::MonotonicCoarse).tv_sec;
    let list = KNOWN.load();
    let known = list
        .iter()
        .flat_map(|list| list.iter())
        .find(|known| known.is(stat, stream) && known.is_usable());
    if let Some(known) = known {
        known.used_s.store(now_s, Ordering::Relaxed);
        return known.file.is_some().then(|| Arc::clone(known));
    }
    if !may_share {
        return None;
    }
    let is_local = rustix::fs::fstatfs(file).is_ok_and(|system| {
        u64::try_from(system.f_type).is_ok_and(|number| FILE_SYSTEMS.contains(&number))
    });
    let shared = if is_local {
        stream.share_file(file)
    } else {
        None
    };
    let known = Arc::new(Known {
        device: stat.st_dev,
        inode: stat.st_ino,
        file: shared,
        used_s: AtomicI64::new(now_s),
    });
    remember(&known, stat, stream, now_s);
    known.file.is_some().then_some(known)
}

fn remember(known: &Arc<Known>, stat: &Stat, stream: &Stream, now_s: i64) {
    KNOWN.change(|current| {
        let keeps = |one: &&Arc<Known>| {
            let idle_s = now_s - one.used_s.load(Ordering::Relaxed);
            !one.is(stat, stream) && one.is_usable() && idle_s < IDLE_S
        };
        let mut list: Vec<Arc<Known>> = current
            .iter()
            .flat_map(|list| list.iter())
            .filter(keeps)
            .cloned()
            .collect();
        list.sort_by_key(|one| core::cmp::Reverse(one.used_s.load(Ordering::Relaxed)));
        list.truncate(FILES_MAX - 1);
        list.push(Arc::clone(known));
        Some(Arc::new(list))
    });
}
