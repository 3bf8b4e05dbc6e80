//! The descriptors of the process, and those in messages (cmsg(3), SCM_RIGHTS of unix(7)).

#![allow(unsafe_code)]

use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, IntoRawFd as _, RawFd};

use libc::msghdr;
use rustix::fs::{Mode, OFlags, RawDir};

/// Tells of every open descriptor, by /proc/self/fd; without that, of the lowest. Neither allocates nor locks.
pub fn each_descriptor(tell: &mut dyn FnMut(RawFd)) {
    const LOWEST: RawFd = 64;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(folder) = rustix::fs::open(c"/proc/self/fd", flags, Mode::empty()) else {
        return (0..LOWEST).for_each(tell);
    };
    let own = folder.as_raw_fd();
    let mut space = [const { MaybeUninit::uninit() }; 1_024];
    let mut entries = RawDir::new(&folder, &mut space);
    while let Some(Ok(entry)) = entries.next() {
        let name = entry.file_name().to_str().unwrap_or_default();
        if let Ok(number) = name.parse()
            && number != own
        {
            tell(number);
        }
    }
    // SAFETY: the number is our own and used no more. Dropping it would call libc's close, which is the switch's.
    unsafe { rustix::io::close(folder.into_raw_fd()) };
}

/// How many numbers the kernel's table of this process has room for ("FDSize" of proc(5)), if that can be read. Neither allocates
/// nor locks.
pub fn table_len() -> Option<RawFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let file = rustix::fs::open(c"/proc/self/status", flags, Mode::empty()).ok()?;
    let mut text = [0; 1_024];
    let len = rustix::io::read(&file, &mut text);
    // SAFETY: as in `each_descriptor`.
    unsafe { rustix::io::close(file.into_raw_fd()) };
    // A name before it may be no UTF-8.
    let lines = text[..len.ok()?].split(|byte| *byte == b'\n');
    let mut sizes = lines.filter_map(|line| line.strip_prefix(b"FDSize:"));
    std::str::from_utf8(sizes.next()?).ok()?.trim().parse().ok()
}

/// Whether the message can carry descriptors.
///
/// # Safety
/// The message is null or valid.
pub unsafe fn has_control(message: *const msghdr) -> bool {
    // SAFETY: the caller's contract.
    let message = unsafe { message.as_ref() };
    message.is_some_and(|message| !message.msg_control.is_null() && message.msg_controllen > 0)
}

/// Tells of every descriptor that a message carries.
///
/// # Safety
/// The message is valid, and its control messages are as the kernel, or a program that sends them, has laid them out.
pub unsafe fn each_right(message: *const msghdr, tell: &mut dyn FnMut(RawFd)) {
    // SAFETY: the caller's contract; the macros of cmsg(3) stay within `msg_controllen`.
    unsafe {
        let mut control = libc::CMSG_FIRSTHDR(message);
        while let Some(header) = control.as_ref() {
            if (header.cmsg_level, header.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
                let data = libc::CMSG_DATA(control).cast::<RawFd>();
                let head = data.addr() - control.addr();
                let bytes = header.cmsg_len.saturating_sub(head);
                for at in 0..bytes / size_of::<RawFd>() {
                    tell(data.add(at).read_unaligned());
                }
            }
            control = libc::CMSG_NXTHDR(message, control);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_descriptors_are_told_of() {
        let file = std::fs::File::open("/dev/null").unwrap();
        let mut seen = Vec::new();
        each_descriptor(&mut |fd| seen.push(fd));
        assert!(seen.contains(&file.as_raw_fd()));
    }

    #[test]
    fn the_table_has_room_for_what_is_open_and_grows_with_it() {
        let before = table_len().unwrap();
        assert!(before >= 64);
        let file = std::fs::File::open("/dev/null").unwrap();
        let high = rustix::io::fcntl_dupfd_cloexec(&file, before).unwrap();
        assert!(table_len().unwrap() > high.as_raw_fd());
    }

    #[test]
    fn the_descriptors_of_a_message_are_told_of() {
        let mut control = [0_u64; 8];
        // SAFETY: the control buffer is aligned and has room for one header and two numbers.
        let seen = unsafe {
            let mut message: msghdr = std::mem::zeroed();
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = libc::CMSG_SPACE(8).try_into().unwrap();
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(8).try_into().unwrap();
            let data = libc::CMSG_DATA(header).cast::<RawFd>();
            data.write_unaligned(7);
            data.add(1).write_unaligned(11);
            let mut seen = Vec::new();
            assert!(has_control(&raw const message));
            each_right(&raw const message, &mut |fd| seen.push(fd));
            seen
        };
        assert_eq!(seen, [7, 11]);
    }
}
