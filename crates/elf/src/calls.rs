//! Whether a program's own code makes socket calls without libc, sets up an io_uring, or asks which descriptors are ready: an
//! instruction that loads such a call's number, and soon after it the one that enters the kernel.
//!
//! A guess from the code: a number that comes from elsewhere (a `syscall(number, ...)` of one's own) is not
//! seen, and bytes that merely look like it cost the program a supervisor, which changes nothing else.

use std::io::{self, Read, Seek, SeekFrom};

/// No more code than this is looked at; the scan takes about a millisecond per 10 MiB.
const LOOK_MAX_BYTES: u64 = 64 << 20;
const CHUNK_BYTES: usize = 256 << 10;
/// The instructions between number and entry.
const BETWEEN_MAX_BYTES: usize = 40;

/// connect, accept, bind, listen, accept4, io_uring_setup on x86-64.
const SOCKETS: [u16; 6] = [42, 43, 49, 50, 288, 425];
/// poll, select, pselect6, ppoll; epoll's create, wait, ctl, pwait, create1, pwait2.
const READINESS: [u16; 10] = [7, 23, 270, 271, 213, 232, 233, 281, 291, 441];
/// epoll's pwait, create1, pwait2, which few other things have for their first argument.
const HANDED_ON: [u16; 3] = [281, 291, 441];
/// `syscall`.
const ENTER: [u8; 2] = [0x0f, 0x05];
/// `mov rax, [rsp + imm8]`, in front of that byte.
const LOAD_FROM_STACK: [u8; 4] = [0x48, 0x8b, 0x44, 0x24];

/// What a program's code does past libc.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnCalls {
    /// It makes sockets, or sets up an io_uring.
    pub sockets: bool,
    /// It asks which descriptors are ready.
    pub readiness: bool,
    /// It enters the kernel by a function that is given the number, as a Rust crate does that was not optimised.
    enters_by_function: bool,
}

impl OwnCalls {
    fn add(&mut self, code: &[u8]) {
        let pairs = code.windows(ENTER.len()).enumerate();
        for (at, _) in pairs.filter(|(_, pair)| *pair == ENTER) {
            let before = &code[at.saturating_sub(BETWEEN_MAX_BYTES)..at];
            for number in before.windows(5).filter_map(number_loaded) {
                self.sockets |= SOCKETS.contains(&number);
                self.readiness |= READINESS.contains(&number);
            }
            let before_place = &before[..before.len().saturating_sub(1)];
            self.enters_by_function |= before_place.ends_with(&LOAD_FROM_STACK);
        }
    }

    fn is_all(self) -> bool {
        self.sockets && self.readiness
    }
}

/// Looks through the parts of the file. Processors other than x86-64 are not known: nothing is found.
pub fn find(file: &mut (impl Read + Seek), code: &[(u64, u64)]) -> io::Result<OwnCalls> {
    let mut found = OwnCalls::default();
    if cfg!(not(target_arch = "x86_64")) {
        return Ok(found);
    }
    each_piece(file, code, &mut |piece| {
        found.add(piece);
        found.is_all()
    })?;
    if found.enters_by_function && !found.readiness {
        each_piece(file, code, &mut |piece| {
            let mut numbers = piece.windows(6).filter_map(number_handed_on);
            found.readiness = numbers.any(|number| HANDED_ON.contains(&number));
            found.readiness
        })?;
    }
    Ok(found)
}

/// Reads the code piece by piece, until enough was seen.
fn each_piece(
    file: &mut (impl Read + Seek),
    code: &[(u64, u64)],
    look: &mut dyn FnMut(&[u8]) -> bool,
) -> io::Result<()> {
    let mut budget = LOOK_MAX_BYTES;
    let mut buffer = vec![0; BETWEEN_MAX_BYTES + CHUNK_BYTES];
    for &(offset, len) in code {
        file.seek(SeekFrom::Start(offset))?;
        let mut part = file.take(len.min(budget));
        budget -= len.min(budget);
        // What was at the end of the piece before stands in front of this one.
        let mut kept = 0;
        loop {
            let read = part.read(&mut buffer[kept..])?;
            if read == 0 {
                break;
            }
            let end = kept + read;
            if look(&buffer[..end]) {
                return Ok(());
            }
            kept = end.min(BETWEEN_MAX_BYTES);
            buffer.copy_within(end - kept..end, 0);
        }
    }
    Ok(())
}

/// `mov eax, imm32`.
fn number_loaded(code: &[u8]) -> Option<u16> {
    match code {
        [0xb8, low, high, 0, 0] => Some(u16::from_le_bytes([*low, *high])),
        _ => None,
    }
}

/// `mov edi, imm32`, and the `call` behind it.
fn number_handed_on(code: &[u8]) -> Option<u16> {
    match code {
        [0xbf, low, high, 0, 0, 0xe8] => Some(u16::from_le_bytes([*low, *high])),
        _ => None,
    }
}

#[cfg(test)]
#[cfg(target_arch = "x86_64")]
mod tests {
    use std::io::Cursor;

    use super::*;

    /// mov eax, number; mov rdi, rbx; syscall.
    fn call(number: u16) -> Vec<u8> {
        let [low, high] = number.to_le_bytes();
        vec![0xb8, low, high, 0, 0, 0x48, 0x89, 0xdf, 0x0f, 0x05]
    }

    fn found(code: &[u8]) -> (bool, bool) {
        let len = u64::try_from(code.len()).unwrap();
        let found = find(&mut Cursor::new(code), &[(0, len)]).unwrap();
        (found.sockets, found.readiness)
    }

    #[test]
    fn a_connect_of_ones_own_is_seen_and_a_write_is_not() {
        assert_eq!(found(&call(42)), (true, false));
        assert_eq!(found(&call(425)), (true, false));
        assert_eq!(found(&call(1)), (false, false));
        assert_eq!(found(&[0x0f, 0x05]), (false, false));
    }

    #[test]
    fn an_epoll_of_ones_own_is_seen() {
        for number in READINESS {
            assert_eq!(found(&call(number)), (false, true));
        }
        assert_eq!(found(&[call(233), call(42)].concat()), (true, true));
    }

    #[test]
    fn an_epoll_is_seen_whose_number_is_given_to_a_function() {
        // mov rax, [rsp + 0x18]; syscall.
        let function = [0x48, 0x8b, 0x44, 0x24, 0x18, 0x0f, 0x05];
        // mov edi, 281; call.
        let caller = [0xbf, 0x19, 0x01, 0, 0, 0xe8, 0, 0, 0, 0];
        assert_eq!(found(&[&caller[..], &function].concat()), (false, true));
        assert_eq!(found(&[&function[..], &caller].concat()), (false, true));
        assert_eq!(found(&caller), (false, false));
        assert_eq!(found(&function), (false, false));
    }

    #[test]
    fn a_call_across_two_pieces_is_seen_once_they_are_read() {
        for shift in 0..12 {
            let mut code = vec![0x90; BETWEEN_MAX_BYTES + CHUNK_BYTES - shift];
            code.extend(call(42));
            assert_eq!(found(&code), (true, false));
            assert_eq!(found(&code[..code.len() - 10]), (false, false));
        }
    }
}
