//! The requests of netdevice(7) that a supervisor repeats for a program.
#![allow(unsafe_code)]

use client::addresses::netdevice::ENTRY;
use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::io::Errno;

use crate::sys::check;

/// A request about one interface, whose name `entry` begins with; the answer stands there.
pub fn ask_interface(fd: BorrowedFd<'_>, request: u32, entry: &mut [u8]) -> Result<(), Errno> {
    if entry.len() < ENTRY {
        return Err(Errno::INVAL);
    }
    // SAFETY: such a request reads and writes one `ifreq`, which the buffer has room for; the kernel does not mind how it
    // is aligned.
    check(unsafe {
        libc::ioctl(
            fd.as_raw_fd(),
            libc::c_ulong::from(request),
            entry.as_mut_ptr(),
        )
    })
    .map(drop)
}

/// SIOCGIFCONF: how many bytes of the room were filled, or, without room, are needed.
pub fn list(fd: BorrowedFd<'_>, room: Option<&mut [u8]>) -> Result<usize, Errno> {
    let (start, len) = room.map_or((std::ptr::null_mut(), 0), |room| {
        (room.as_mut_ptr(), room.len())
    });
    let mut list = libc::ifconf {
        ifc_len: i32::try_from(len).map_err(|_| Errno::INVAL)?,
        ifc_ifcu: libc::__c_anonymous_ifc_ifcu {
            ifcu_buf: start.cast(),
        },
    };
    // SAFETY: the kernel writes as many bytes as it is told there is room for, and the length.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::SIOCGIFCONF, &raw mut list) })?;
    usize::try_from(list.ifc_len).map_err(|_| Errno::IO)
}

#[cfg(test)]
mod tests {
    use rustix::fd::AsFd;
    use rustix::net::{AddressFamily, SocketType, socket};

    use super::*;

    #[test]
    fn interfaces_are_listed_and_asked() {
        let one = socket(AddressFamily::INET, SocketType::DGRAM, None).unwrap();
        let needed = list(one.as_fd(), None).unwrap();
        let mut room = vec![0; needed];
        assert_eq!(list(one.as_fd(), Some(&mut room)), Ok(needed));
        for entry in room.chunks_exact_mut(ENTRY) {
            let told = entry.to_vec();
            let request = u32::try_from(libc::SIOCGIFADDR).unwrap();
            ask_interface(one.as_fd(), request, entry).unwrap();
            assert_eq!(told, entry);
        }
        let mut nobody = [0; ENTRY];
        let request = u32::try_from(libc::SIOCGIFADDR).unwrap();
        let asked = ask_interface(one.as_fd(), request, &mut nobody);
        assert_eq!(asked, Err(Errno::NODEV));
    }
}
