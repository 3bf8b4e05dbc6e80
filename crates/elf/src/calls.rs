//! Whether a program's own code makes socket calls without libc, or sets up an io_uring: an instruction that
//! loads such a call's number, and soon after it the one that enters the kernel.
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
const NUMBERS: [u16; 6] = [42, 43, 49, 50, 288, 425];
/// `syscall`.
const ENTER: [u8; 2] = [0x0f, 0x05];
/// `mov eax, imm32`.
const LOAD_NUMBER: u8 = 0xb8;

/// Looks through the parts of the file. Processors other than x86-64 are not known: nothing is found.
pub fn are_in(file: &mut (impl Read + Seek), code: &[(u64, u64)]) -> io::Result<bool> {
    if cfg!(not(target_arch = "x86_64")) {
        return Ok(false);
    }
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
            if are_among(&buffer[..end]) {
                return Ok(true);
            }
            kept = end.min(BETWEEN_MAX_BYTES);
            buffer.copy_within(end - kept..end, 0);
        }
    }
    Ok(false)
}

fn are_among(code: &[u8]) -> bool {
    code.windows(ENTER.len())
        .enumerate()
        .filter(|(_, window)| *window == ENTER)
        .any(|(at, _)| loads_number(&code[at.saturating_sub(BETWEEN_MAX_BYTES)..at]))
}

fn loads_number(before: &[u8]) -> bool {
    before.windows(5).any(|window| {
        window[0] == LOAD_NUMBER
            && window[3..] == [0, 0]
            && NUMBERS.contains(&u16::from_le_bytes([window[1], window[2]]))
    })
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    /// mov eax, number; mov rdi, rbx; syscall.
    fn call(number: u16) -> Vec<u8> {
        let [low, high] = number.to_le_bytes();
        vec![0xb8, low, high, 0, 0, 0x48, 0x89, 0xdf, 0x0f, 0x05]
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn a_connect_of_ones_own_is_seen_and_a_write_is_not() {
        assert!(are_among(&call(42)));
        assert!(are_among(&call(425)));
        assert!(!are_among(&call(1)));
        assert!(!are_among(&[0x0f, 0x05]));
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn a_call_across_two_pieces_is_seen_once_they_are_read() {
        for shift in 0..12 {
            let mut code = vec![0x90; BETWEEN_MAX_BYTES + CHUNK_BYTES - shift];
            code.extend(call(42));
            let len = u64::try_from(code.len()).unwrap();
            assert!(are_in(&mut Cursor::new(&code), &[(0, len)]).unwrap());
            assert!(!are_in(&mut Cursor::new(&code), &[(0, len - 10)]).unwrap());
        }
    }
}
