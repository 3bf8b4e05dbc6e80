//! The thread whose system call waits: its memory, its descriptors, what /proc says of them.
//!
//! A thread may end at any time and its number be used again: what was read counts only while the
//! notification still stands, which the supervisor asks before it acts.

mod files;

use std::fs;

use rustix::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use crate::sys;

/// Longest name or option value that is read of a program; the kernel's own limits are lower.
const READ_MAX: usize = 4096;

/// Longest payload of a datagram, or list of its pieces.
const LONG_MAX: usize = 64 * 1024;
/// From here on every program may bind to a port, unless the system says otherwise.
pub const FIRST_UNPRIVILEGED_PORT: u16 = 1024;
/// capabilities(7).
const CAP_NET_BIND_SERVICE: u64 = 1 << 10;

/// PIDFD_THREAD of linux/pidfd.h (Linux 6.9): the thread itself, whatever its process.
const THREAD: PidfdFlags = PidfdFlags::from_bits_retain(0x80);

/// See the file's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The thread.
    pub tid: u32,
}

impl Caller {
    /// A duplicate of one of its descriptors. EBADF: it has none of this number; EPERM: the supervisor may
    /// not look into it.
    pub fn descriptor(self, fd: RawFd) -> Result<OwnedFd, Errno> {
        // A program may pass any number; one below 0 is no descriptor for our own calls either.
        if fd < 0 {
            return Err(Errno::BADF);
        }
        let get = |thread: BorrowedFd<'_>| pidfd_getfd(thread, fd, PidfdGetfdFlags::empty());
        files::ask_thread(self.tid, || self.open(), get)
    }

    fn open(self) -> Result<OwnedFd, Errno> {
        let pid = |number: i32| Pid::from_raw(number).ok_or(Errno::SRCH);
        let thread = pid(i32::try_from(self.tid).map_err(|_| Errno::SRCH)?)?;
        match pidfd_open(thread, THREAD) {
            // An older kernel, which takes processes only.
            Err(Errno::INVAL) => pidfd_open(pid(self.process()?)?, PidfdFlags::empty()),
            opened => opened,
        }
    }

    /// The process that the thread belongs to.
    fn process(self) -> Result<i32, Errno> {
        let status = files::status(self.tid)?;
        let line = status.lines().find_map(|line| line.strip_prefix("Tgid:"));
        line.and_then(|number| number.trim().parse().ok())
            .ok_or(Errno::SRCH)
    }

    /// Whether a signal is about to take it out of its call: one for this thread (`false`: for any thread of its process) that it does
    /// not block. See proc_pid_status(5).
    pub fn signalled(self) -> Option<bool> {
        let status = files::status(self.tid).ok()?;
        let mask = |name| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
                .unwrap_or_default()
        };
        let taken = !mask("SigBlk:");
        let (own, shared) = (mask("SigPnd:") & taken, mask("ShdPnd:") & taken);
        ((own | shared) != 0).then_some(own != 0)
    }

    /// What a file of its folder in /proc says.
    pub fn read_proc(self, name: &str) -> Result<String, Errno> {
        let path = format!("/proc/{}/{name}", self.tid);
        fs::read_to_string(path)
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::SRCH))
    }

    /// Copies some of its memory.
    pub fn read(self, address: u64, len: usize) -> Result<Vec<u8>, Errno> {
        let mut bytes = vec![0; len.min(READ_MAX)];
        let read = sys::read_memory(self.tid, address, &mut bytes)?;
        if read < bytes.len() {
            return Err(Errno::FAULT);
        }
        Ok(bytes)
    }

    /// As `read`, of a payload, which may be longer.
    pub fn read_long(self, address: u64, len: usize) -> Result<Vec<u8>, Errno> {
        let mut bytes = vec![0; len.min(LONG_MAX)];
        if bytes.is_empty() {
            return Ok(bytes);
        }
        if sys::read_memory(self.tid, address, &mut bytes)? < len {
            return Err(Errno::FAULT);
        }
        Ok(bytes)
    }

    /// Whether it may bind to a port (ip(7)): that below the first unprivileged one takes a capability.
    pub fn may_bind(self, port: u16) -> bool {
        if !(1..FIRST_UNPRIVILEGED_PORT).contains(&port) {
            return true;
        }
        let status = files::status(self.tid).unwrap_or_default();
        let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        let effective = effective.and_then(|text| u64::from_str_radix(text.trim(), 16).ok());
        effective.is_some_and(|effective| effective & CAP_NET_BIND_SERVICE != 0)
    }

    /// One number of its memory.
    pub fn read_number(self, address: u64) -> Result<u32, Errno> {
        let bytes = self.read(address, 4)?;
        let number = bytes.first_chunk().ok_or(Errno::FAULT)?;
        Ok(u32::from_ne_bytes(*number))
    }

    /// Changes some of its memory.
    pub fn write(self, address: u64, bytes: &[u8]) -> Result<(), Errno> {
        if bytes.is_empty() {
            return Ok(());
        }
        if sys::write_memory(self.tid, address, bytes)? < bytes.len() {
            return Err(Errno::FAULT);
        }
        Ok(())
    }

    /// Writes a name to a buffer whose length is at `room_at`, as getsockname(2) does: as much as fits, and the length of the
    /// whole.
    pub fn write_name(self, address: u64, room_at: u64, value: &[u8]) -> Result<(), Errno> {
        let room = self.read_number(room_at)?;
        let room = usize::try_from(room.cast_signed()).map_err(|_| Errno::INVAL)?;
        let given = &value[..value.len().min(room)];
        self.write(address, given)?;
        let len = u32::try_from(value.len()).map_err(|_| Errno::INVAL)?;
        self.write(room_at, &len.to_ne_bytes())
    }

    /// Whether a descriptor is closed on exec.
    pub fn closes_on_exec(self, fd: RawFd) -> bool {
        let info = self.read_proc(&format!("fdinfo/{fd}")).unwrap_or_default();
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
        let flags = flags.and_then(|text| i32::from_str_radix(text.trim(), 8).ok());
        flags.is_some_and(|flags| flags & libc::O_CLOEXEC != 0)
    }

    /// Tells the user something where the program would: on its standard error, without waiting for its reader.
    pub fn say(self, text: &str) {
        if let Ok(stderr) = self.descriptor(libc::STDERR_FILENO) {
            client::say_to(stderr.as_fd(), text);
        }
    }

    /// A descriptor of its own that shows the same socket as `cookie`, if `fd` still does.
    pub fn same_socket(self, fd: RawFd, cookie: u64) -> Option<OwnedFd> {
        let found = self.descriptor(fd).ok()?;
        (sys::cookie(found.as_fd()) == Ok(cookie)).then_some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> Caller {
        let tid = rustix::thread::gettid().as_raw_nonzero().get();
        Caller {
            tid: u32::try_from(tid).unwrap(),
        }
    }

    fn address(value: *const u8) -> u64 {
        u64::try_from(value.addr()).unwrap()
    }

    #[test]
    fn memory_is_read_and_written_as_far_as_it_exists() {
        let mut value = *b"before";
        let at = address(value.as_mut_ptr());
        assert_eq!(own().read(at, 6).unwrap(), b"before");
        own().write(at, b"behind").unwrap();
        assert_eq!(own().read(at, 6).unwrap(), b"behind");
        assert_eq!(own().read(8, 1), Err(Errno::FAULT));
        assert_eq!(own().write(8, b"x"), Err(Errno::FAULT));
    }

    #[test]
    fn a_name_is_cut_to_its_room_and_its_length_is_told() {
        let place = [0_u8; 8];
        let room = 4_u32.to_ne_bytes();
        let (at, room_at) = (address(place.as_ptr()), address(room.as_ptr()));
        own().write(room_at, &4_u32.to_ne_bytes()).unwrap();
        own().write_name(at, room_at, b"sixsix").unwrap();
        assert_eq!(own().read_number(room_at), Ok(6));
        assert_eq!(own().read(at, 6).unwrap(), b"sixs\0\0");
        own().write(room_at, &u32::MAX.to_ne_bytes()).unwrap();
        let refused = own().write_name(at, room_at, b"x");
        assert_eq!(refused, Err(Errno::INVAL));
    }

    #[test]
    fn a_descriptor_is_known_by_its_socket_and_not_by_its_number() {
        use rustix::fd::AsRawFd as _;
        use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
        let (one, other) = socketpair(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        let cookie = sys::cookie(&one).unwrap();
        assert!(own().same_socket(one.as_raw_fd(), cookie).is_some());
        assert!(own().same_socket(other.as_raw_fd(), cookie).is_none());
        assert!(own().closes_on_exec(one.as_raw_fd()));
        assert!(!own().closes_on_exec(libc::STDIN_FILENO));
    }
}
