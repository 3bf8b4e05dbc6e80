//! select(2) and pselect(2), translated to poll as Linux defines them: readable is POLLIN, hang-up or
//! error; writable is POLLOUT or error; exceptional is POLLPRI.
//!
//! Sets larger than FD_SETSIZE work, as they do in Linux: `nfds` bounds them, and the kernel's table of descriptors.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicI32, Ordering};

use rustix::io::Errno;

use crate::fd_table::{descriptors, inherited};
use crate::outcome::Switched;
use crate::wait::poll;
use crate::wait::sleep::{Deadline, SignalMask};
use switch::readiness::{ERR, HUP, IN, OUT, PRI, RDNORM, WRNORM};

/// POLLRDBAND and POLLWRBAND count as readable and writable (fs/select.c).
const READABLE: u32 = IN | RDNORM | 0x080 | HUP | ERR;
const WRITABLE: u32 = OUT | WRNORM | 0x200 | ERR;
const EXCEPTIONAL: u32 = PRI;
const INVALID: u32 = 0x020;

/// The largest table of descriptors that was seen.
static TABLE_LEN: AtomicI32 = AtomicI32::new(0);

/// How far the sets are looked at. The kernel cuts `nfds` down to its table of the process's descriptors (fs/select.c), and programs
/// rely on that: they pass what getdtablesize(3) says, beside sets of FD_SETSIZE.
pub fn within_the_table(nfds: RawFd) -> RawFd {
    /// FD_SETSIZE.
    const SET: RawFd = 1_024;
    if nfds <= SET || nfds <= TABLE_LEN.load(Ordering::Relaxed) {
        return nfds;
    }
    let len = inherited::table_len().unwrap_or(SET).max(SET);
    TABLE_LEN.fetch_max(len, Ordering::Relaxed);
    nfds.min(len)
}

/// The three sets of a select call as words of bits; a null pointer is an empty slice.
pub struct Sets<'a> {
    /// Wait for readable.
    pub read: &'a mut [u64],
    /// Wait for writable.
    pub write: &'a mut [u64],
    /// Wait for exceptional conditions.
    pub except: &'a mut [u64],
}

impl Sets<'_> {
    /// Whether any number below `nfds` in a set is tracked.
    pub fn concern(&self, nfds: RawFd) -> bool {
        descriptors::tracked_in(0, nfds - 1).any(|fd| self.wish(fd) != 0)
    }

    fn wish(&self, fd: RawFd) -> u32 {
        let mut wish = 0;
        for (set, events) in [
            (&*self.read, READABLE),
            (&*self.write, WRITABLE),
            (&*self.except, EXCEPTIONAL),
        ] {
            if has(set, fd) {
                wish |= events;
            }
        }
        wish
    }
}

/// select(2): the number of bits that are set in the results.
pub fn select(
    nfds: RawFd,
    sets: &mut Sets<'_>,
    deadline: Deadline,
    mask: SignalMask<'_>,
) -> Switched<i32> {
    let mut fds: Vec<libc::pollfd> = (0..within_the_table(nfds))
        .filter_map(|fd| {
            Some(sets.wish(fd))
                .filter(|wish| *wish != 0)
                .map(|wish| poll::entry(fd, wish))
        })
        .collect();
    if poll::poll(&mut fds, deadline, mask)?.is_none() {
        return Ok(None);
    }
    if fds
        .iter()
        .any(|fd| u32::from(fd.revents.cast_unsigned()) & INVALID != 0)
    {
        return Err(Errno::BADF);
    }
    let mut count = 0;
    for (set, events) in [
        (&mut *sets.read, READABLE),
        (&mut *sets.write, WRITABLE),
        (&mut *sets.except, EXCEPTIONAL),
    ] {
        count += answer(set, &fds, events);
    }
    Ok(Some(count))
}

/// Leaves in `set` what it asked for and what holds.
fn answer(set: &mut [u64], fds: &[libc::pollfd], events: u32) -> i32 {
    let mut count = 0;
    for fd in fds
        .iter()
        .filter(|fd| u32::from(fd.revents.cast_unsigned()) & events == 0)
    {
        clear(set, fd.fd);
    }
    for fd in fds {
        count += i32::from(has(set, fd.fd));
    }
    count
}

fn place(fd: RawFd) -> Option<(usize, u64)> {
    let number = usize::try_from(fd).ok()?;
    Some((number / 64, 1 << (number % 64)))
}

fn has(set: &[u64], fd: RawFd) -> bool {
    place(fd).is_some_and(|(word, bit)| set.get(word).is_some_and(|word| word & bit != 0))
}

fn clear(set: &mut [u64], fd: RawFd) {
    if let Some((word, bit)) = place(fd)
        && let Some(word) = set.get_mut(word)
    {
        *word &= !bit;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_keep_only_what_was_asked_and_holds() {
        let mut read = [0b110];
        let ready = |fd, revents| libc::pollfd {
            fd,
            events: 0,
            revents,
        };
        let fds = [ready(1, libc::POLLIN), ready(2, libc::POLLOUT)];
        assert_eq!(answer(&mut read, &fds, READABLE), 1);
        assert_eq!(read, [0b010]);
    }

    #[test]
    fn a_hang_up_is_readable_and_an_error_is_both() {
        let fds = [libc::pollfd {
            fd: 0,
            events: 0,
            revents: libc::POLLHUP | libc::POLLERR,
        }];
        assert_eq!(answer(&mut [1], &fds, READABLE), 1);
        assert_eq!(answer(&mut [1], &fds, WRITABLE), 1);
        assert_eq!(answer(&mut [1], &fds, EXCEPTIONAL), 0);
    }

    #[test]
    fn numbers_beyond_a_set_are_not_in_it() {
        assert!(!has(&[u64::MAX], 64));
        assert!(!has(&[], 0));
        assert!(!has(&[1], -1));
    }
}
