//! The messages of a call in its program's memory: `struct msghdr` and `struct mmsghdr` of recv(2) and send(2), and
//! the arguments of recvfrom and sendto as one of them.

use rustix::io::Errno;

use crate::caller::Caller;
use crate::stopped_call::{Call, low_half};

/// Offsets in `struct msghdr` on 64-bit machines.
const NAME_LEN: u64 = 8;
const CONTROL_LEN: u64 = 40;
const FLAGS: u64 = 48;
const HEADER_BYTES: usize = 56;
/// `struct cmsghdr`: a length of eight bytes, level, type.
const CONTROL_HEADER: usize = 16;
/// `struct mmsghdr`: a message and how long it was.
const LEN_OF_SEVERAL: u64 = 56;
const BYTES_OF_SEVERAL: u64 = 64;
const _: () = assert!(size_of::<libc::msghdr>() == HEADER_BYTES);
const _: () = assert!(size_of::<libc::mmsghdr>() == 64);
/// Linux `UIO_MAXIOV`.
pub const MESSAGES_MAX: usize = 1024;

/// Where in a program's memory a message is.
pub struct MessageLayout {
    /// Address and length of the name.
    pub name: (u64, usize),
    /// Address and length of the pieces of payload.
    pub pieces: Vec<(u64, usize)>,
    /// Address and length of the control messages.
    pub control: (u64, usize),
    /// Of the header, where there is one.
    header: Option<u64>,
    /// Of the name's length.
    name_len: u64,
}

/// As `put_cmsg`: the message that does not fit is cut, and says how long it is then.
fn cut(control: &[u8], room: usize) -> Vec<u8> {
    let mut given = control[..control.len().min(room)].to_vec();
    let mut at = 0;
    while let Some(len) = given.get(at..).and_then(|rest| rest.first_chunk()) {
        let len = usize::from_ne_bytes(*len);
        let left = given.len() - at;
        if left < CONTROL_HEADER {
            break;
        }
        if len > left {
            given[at..at + 8].copy_from_slice(&left.to_ne_bytes());
            return given;
        }
        at += len.max(CONTROL_HEADER).next_multiple_of(8);
    }
    given.truncate(at);
    given
}

/// Whether a call has several messages.
pub fn has_several(number: i64) -> bool {
    [libc::SYS_recvmmsg, libc::SYS_sendmmsg].contains(&number)
}

/// Whether a call sends.
pub fn sends(number: i64) -> bool {
    [libc::SYS_sendto, libc::SYS_sendmsg, libc::SYS_sendmmsg].contains(&number)
}

/// How many messages a call has.
pub fn count(call: &Call, number: i64) -> usize {
    if !has_several(number) {
        return 1;
    }
    let count = u32::from_ne_bytes(low_half(call.arguments[2]));
    usize::try_from(count)
        .unwrap_or(MESSAGES_MAX)
        .min(MESSAGES_MAX)
}

/// The flags of a call.
pub fn flags(call: &Call, number: i64) -> i32 {
    let at = match number {
        libc::SYS_recvmsg | libc::SYS_sendmsg => 2,
        _ => 3,
    };
    i32::from_ne_bytes(low_half(call.arguments[at]))
}

impl MessageLayout {
    /// Of one message of a call.
    pub fn of(call: &Call, number: i64, index: usize) -> Result<MessageLayout, Errno> {
        let [_, first, second, _, fifth, sixth] = call.arguments;
        let len = usize::try_from(second).unwrap_or(usize::MAX);
        match number {
            libc::SYS_sendto => Ok(MessageLayout {
                name: (fifth, usize::try_from(sixth).map_err(|_| Errno::INVAL)?),
                pieces: vec![(first, len)],
                control: (0, 0),
                header: None,
                name_len: 0,
            }),
            libc::SYS_recvfrom => Ok(MessageLayout {
                name: (fifth, 0),
                pieces: vec![(first, len)],
                control: (0, 0),
                header: None,
                name_len: sixth,
            }),
            number => {
                let index = u64::try_from(index).map_err(|_| Errno::INVAL)?;
                let several = u64::from(has_several(number));
                Self::read(call.caller, first + several * index * BYTES_OF_SEVERAL)
            }
        }
    }

    fn read(caller: Caller, at: u64) -> Result<MessageLayout, Errno> {
        let bytes = caller.read(at, HEADER_BYTES)?;
        let (words, _) = bytes.as_chunks::<8>();
        let word = |index: usize| u64::from_ne_bytes(words[index]);
        let size = |index: usize| usize::try_from(word(index)).unwrap_or(usize::MAX);
        let name_len = u32::from_ne_bytes(low_half(word(1)));
        let parts = size(3);
        if parts > MESSAGES_MAX {
            return Err(Errno::MSGSIZE);
        }
        let mut pieces = Vec::with_capacity(parts);
        let listed = caller.read_long(word(2), parts * size_of::<libc::iovec>())?;
        for part in listed.as_chunks::<16>().0 {
            let (halves, _) = part.as_chunks::<8>();
            // `import_iovec`: a length is an ssize_t.
            let len = isize::try_from(u64::from_ne_bytes(halves[1])).map_err(|_| Errno::INVAL)?;
            let len = usize::try_from(len).map_err(|_| Errno::INVAL)?;
            pieces.push((u64::from_ne_bytes(halves[0]), len));
        }
        Ok(MessageLayout {
            name: (word(0), usize::try_from(name_len).unwrap_or(0)),
            pieces,
            control: (word(4), size(5)),
            header: Some(at),
            name_len: at + NAME_LEN,
        })
    }

    /// The name that a sending call gives.
    pub fn read_name(&self, caller: Caller) -> Result<Vec<u8>, Errno> {
        match self.name {
            (0, _) | (_, 0) => Ok(Vec::new()),
            (_, len) if len > size_of::<libc::sockaddr_storage>() => Err(Errno::INVAL),
            (at, len) => caller.read(at, len),
        }
    }

    /// Its control messages.
    pub fn read_control(&self, caller: Caller) -> Result<Vec<u8>, Errno> {
        match self.control {
            (0, _) | (_, 0) => Ok(Vec::new()),
            (at, len) if len <= 4096 => caller.read(at, len),
            _ => Err(Errno::NOBUFS),
        }
    }

    /// Bytes of its buffers for payload.
    pub fn len(&self) -> usize {
        let lengths = self.pieces.iter().map(|piece| piece.1);
        lengths.fold(0, usize::saturating_add)
    }

    /// Its payload, which must not be longer than a datagram can be.
    pub fn read_payload(&self, caller: Caller) -> Result<Vec<u8>, Errno> {
        if self.len() > usize::from(u16::MAX) {
            return Err(Errno::MSGSIZE);
        }
        let mut payload = Vec::with_capacity(self.len());
        for &(at, len) in &self.pieces {
            payload.extend(caller.read_long(at, len)?);
        }
        Ok(payload)
    }

    /// Some of its payload: at most `max` bytes from the one after `skipped`.
    pub fn read_piece(
        &self,
        caller: Caller,
        mut skipped: usize,
        max: usize,
    ) -> Result<Vec<u8>, Errno> {
        for &(at, len) in &self.pieces {
            if skipped < len {
                let from = at.wrapping_add(u64::try_from(skipped).map_err(|_| Errno::FAULT)?);
                return caller.read_long(from, max.min(len - skipped));
            }
            skipped -= len;
        }
        Ok(Vec::new())
    }

    /// Fills it in. The caller decides what `told` says of the payload's length.
    pub fn write(
        &self,
        caller: Caller,
        payload: &[u8],
        (name, control): (&[u8], &[u8]),
        flags: i32,
    ) -> Result<(), Errno> {
        self.write_payload(caller, 0, payload)?;
        self.write_header(caller, (name, control), flags)
    }

    /// Its payload, or more of it: behind so many bytes that are there.
    pub fn write_payload(
        &self,
        caller: Caller,
        mut skipped: usize,
        payload: &[u8],
    ) -> Result<(), Errno> {
        let mut left = payload;
        for &(at, len) in &self.pieces {
            let before = skipped.min(len);
            skipped -= before;
            let (now, later) = left.split_at((len - before).min(left.len()));
            let from = at.wrapping_add(u64::try_from(before).map_err(|_| Errno::FAULT)?);
            caller.write(from, now)?;
            left = later;
        }
        Ok(())
    }

    /// All but the payload.
    pub fn write_header(
        &self,
        caller: Caller,
        (name, control): (&[u8], &[u8]),
        flags: i32,
    ) -> Result<(), Errno> {
        if self.name.0 != 0 {
            caller.write_name(self.name.0, self.name_len, name)?;
        }
        let Some(header) = self.header else {
            return Ok(());
        };
        if self.name.0 == 0 {
            caller.write(self.name_len, &0_u32.to_ne_bytes())?;
        }
        let given = cut(control, self.control.1);
        let mut flags = flags;
        if given.len() < control.len() {
            flags |= libc::MSG_CTRUNC;
        }
        if self.control.0 != 0 {
            caller.write(self.control.0, &given)?;
        }
        caller.write(header + CONTROL_LEN, &given.len().to_ne_bytes())?;
        caller.write(header + FLAGS, &flags.to_ne_bytes())
    }

    /// Of several: how long this one was.
    pub fn write_len(&self, caller: Caller, len: usize) -> Result<(), Errno> {
        let Some(header) = self.header else {
            return Ok(());
        };
        let len = u32::try_from(len).map_err(|_| Errno::INVAL)?;
        caller.write(header + LEN_OF_SEVERAL, &len.to_ne_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(data: &[u8]) -> Vec<u8> {
        let len = CONTROL_HEADER + data.len();
        let mut bytes = [&len.to_ne_bytes()[..], &[7; 8], data].concat();
        bytes.resize(len.next_multiple_of(8), 0);
        bytes
    }

    #[test]
    fn a_piece_begins_behind_what_was_skipped_and_ends_with_its_part() {
        let tid = rustix::thread::gettid().as_raw_nonzero().get();
        let caller = Caller {
            tid: tid.cast_unsigned(),
        };
        let (one, two) = (*b"abc", *b"defg");
        let at = |bytes: &[u8]| u64::try_from(bytes.as_ptr().expose_provenance()).unwrap();
        let place = MessageLayout {
            name: (0, 0),
            pieces: vec![(at(&one), one.len()), (0, 0), (at(&two), two.len())],
            control: (0, 0),
            header: None,
            name_len: 0,
        };
        for (skipped, max, expected) in [(0, 9, "abc"), (2, 9, "c"), (3, 2, "de"), (5, 9, "fg")] {
            let piece = place.read_piece(caller, skipped, max).unwrap();
            assert_eq!(piece, expected.as_bytes());
        }
        assert!(place.read_piece(caller, 7, 9).unwrap().is_empty());
    }

    #[test]
    fn control_messages_are_cut_as_the_kernel_cuts_them() {
        let both = [message(&[1; 4]), message(&[2; 20])].concat();
        assert_eq!(cut(&both, 1000), both);
        assert_eq!(cut(&both, 24), both[..24]);
        assert_eq!(cut(&both, 30), both[..24], "no room for a header");
        let second = cut(&both, 24 + 28);
        assert_eq!(second.len(), 24 + 28);
        assert_eq!(second[24..32], 28_usize.to_ne_bytes());
        assert_eq!(second[40..], [2; 12]);
        assert!(cut(&both, 0).is_empty());
    }
}
