//! What the supervisor keeps open of the threads that call: opened anew for each call it would be half of the system calls that one
//! costs. A number may be another thread's by now: what is open of one that has ended says ESRCH, and is opened again.

use std::cell::RefCell;
use std::collections::HashMap;

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

/// Threads of which something is kept open.
const THREADS_MAX: usize = 512;
/// Of the limit of open files so much at most.
const LIMIT_DIVISOR: u64 = 16;
/// A thread's status has some 1,500 bytes.
const STATUS_BYTES: usize = 4096;

type Files = RefCell<HashMap<u32, OwnedFd>>;

thread_local! {
    static THREADS: Files = RefCell::default();
    static STATUSES: Files = RefCell::default();
}

/// Asks the descriptor of a thread (pidfd_open(2)), which `open` makes.
pub fn ask_thread<T>(
    tid: u32,
    open: impl Fn() -> Result<OwnedFd, Errno>,
    ask: impl Fn(BorrowedFd<'_>) -> Result<T, Errno>,
) -> Result<T, Errno> {
    THREADS.with(|files| asked(files, tid, open, ask))
}

/// What /proc says of a thread's state (proc_pid_status(5)).
pub fn status(tid: u32) -> Result<String, Errno> {
    let open = || {
        let path = format!("/proc/{tid}/status");
        rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
    };
    let read = |file: BorrowedFd<'_>| {
        let mut bytes = [0; STATUS_BYTES];
        let len = rustix::io::pread(file, &mut bytes, 0)?;
        // A program may give itself any name.
        Ok(String::from_utf8_lossy(&bytes[..len]).into_owned())
    };
    STATUSES.with(|files| asked(files, tid, open, read))
}

fn asked<T>(
    files: &Files,
    tid: u32,
    open: impl Fn() -> Result<OwnedFd, Errno>,
    ask: impl Fn(BorrowedFd<'_>) -> Result<T, Errno>,
) -> Result<T, Errno> {
    let mut files = files.borrow_mut();
    if let Some(file) = files.get(&tid) {
        match ask(file.as_fd()) {
            Err(Errno::SRCH) => drop(files.remove(&tid)),
            answer => return answer,
        }
    }
    let file = open()?;
    let answer = ask(file.as_fd());
    if files.len() >= threads_max() {
        files.clear();
    }
    files.insert(tid, file);
    answer
}

fn threads_max() -> usize {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(limit / LIMIT_DIVISOR).map_or(THREADS_MAX, |limit| limit.min(THREADS_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn what_is_open_of_a_thread_is_asked_until_it_says_that_the_thread_has_ended() {
        let files = Files::default();
        let opened = Cell::new(0);
        let open = || {
            opened.set(opened.get() + 1);
            rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC)
        };
        for _ in 0..2 {
            assert_eq!(
                asked(&files, 7, open, |_| Err::<(), _>(Errno::BADF)),
                Err(Errno::BADF)
            );
        }
        assert_eq!(opened.get(), 1);
        let has_ended = Cell::new(true);
        let ask = |_: BorrowedFd<'_>| match has_ended.replace(false) {
            true => Err(Errno::SRCH),
            false => Ok(5),
        };
        assert_eq!(asked(&files, 7, open, ask), Ok(5));
        assert_eq!(opened.get(), 2);
    }

    #[test]
    fn a_thread_may_have_any_name() {
        let named = std::thread::spawn(|| {
            rustix::thread::set_name(c"\xff\xfe").unwrap();
            let tid = rustix::thread::gettid().as_raw_nonzero().get();
            status(tid.cast_unsigned()).unwrap()
        });
        assert!(named.join().unwrap().contains("SigBlk:"));
    }

    #[test]
    fn a_status_is_read_again_each_time() {
        let tid = rustix::thread::gettid()
            .as_raw_nonzero()
            .get()
            .cast_unsigned();
        let threads = |text: &str| text.lines().any(|line| line == format!("Pid:\t{tid}"));
        assert!(threads(&status(tid).unwrap()) && threads(&status(tid).unwrap()));
        let (tell, told) = std::sync::mpsc::channel();
        let (end, wait) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            let tid = rustix::thread::gettid().as_raw_nonzero().get();
            tell.send(tid.cast_unsigned()).unwrap();
            let _ = wait.recv();
        });
        let other = told.recv().unwrap();
        assert!(status(other).is_ok());
        drop(end);
        thread.join().unwrap();
        // It is gone a moment after its memory is free.
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while status(other).is_ok() && std::time::Instant::now() < deadline {
            std::thread::yield_now();
        }
        assert_eq!(status(other), Err(Errno::NOENT));
    }
}
