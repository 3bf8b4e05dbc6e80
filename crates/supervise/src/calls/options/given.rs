//! Values of setsockopt(2) that name memory or a descriptor of the program, as this process can give them to the kernel
//! (linux/filter.h, socket(7)).

use rustix::fd::{AsRawFd, OwnedFd, RawFd};
use rustix::io::Errno;
use switch::options::names_what_is_the_programs;

use crate::caller::Caller;

/// linux/bpf_common.h: the most instructions of a filter.
const INSTRUCTIONS_MAX: usize = 4096;
/// Bytes of `struct sock_filter`.
const INSTRUCTION: usize = 8;
/// Bytes of `struct sock_fprog`: a number of instructions, and behind what aligns it where they are.
const FILTER: usize = 16;
const INSTRUCTIONS_AT: usize = 8;

/// The options whose value is a descriptor.
const BY_NUMBER: [i32; 2] = [libc::SO_ATTACH_BPF, libc::SO_ATTACH_REUSEPORT_EBPF];

/// A value, and what it names for as long as it is used.
pub struct Given {
    value: Vec<u8>,
    _instructions: Vec<u8>,
    _program: Option<OwnedFd>,
}

impl Given {
    /// Of a value as the program gave it. One of another length than the option has is left to the kernel, which refuses it.
    pub fn of(caller: Caller, (level, name): (i32, i32), value: Vec<u8>) -> Result<Given, Errno> {
        let mut given = Given {
            value,
            _instructions: Vec::new(),
            _program: None,
        };
        if !names_what_is_the_programs(level, name) {
            return Ok(given);
        }
        let number = <[u8; 4]>::try_from(given.value.as_slice());
        match number {
            Ok(number) if BY_NUMBER.contains(&name) => {
                given.take_program(caller, RawFd::from_ne_bytes(number))?;
            }
            _ if !BY_NUMBER.contains(&name) && given.value.len() == FILTER => {
                given.take_instructions(caller)?;
            }
            _ => {}
        }
        Ok(given)
    }

    /// What the kernel is given.
    pub fn value(&self) -> &[u8] {
        &self.value
    }

    fn take_program(&mut self, caller: Caller, fd: RawFd) -> Result<(), Errno> {
        let program = caller.descriptor(fd)?;
        self.value = program.as_raw_fd().to_ne_bytes().to_vec();
        self._program = Some(program);
        Ok(())
    }

    fn take_instructions(&mut self, caller: Caller) -> Result<(), Errno> {
        let count = usize::from(u16::from_ne_bytes([self.value[0], self.value[1]]));
        let (_, at) = self.value.split_at(INSTRUCTIONS_AT);
        let at = u64::from_ne_bytes(at.try_into().map_err(|_| Errno::INVAL)?);
        // The kernel says what is wrong with others before it reads one.
        let mut instructions = Vec::new();
        if (1..=INSTRUCTIONS_MAX).contains(&count) && at != 0 {
            instructions = caller.read_long(at, count * INSTRUCTION)?;
        }
        let here = match at {
            0 => 0,
            _ => instructions.as_ptr().expose_provenance(),
        };
        let here = u64::try_from(here).map_err(|_| Errno::INVAL)?;
        self.value[INSTRUCTIONS_AT..].copy_from_slice(&here.to_ne_bytes());
        self._instructions = instructions;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketType, socket};
    use switch::backing;

    use super::*;

    const ATTACH: (i32, i32) = (libc::SOL_SOCKET, libc::SO_ATTACH_FILTER);
    const ATTACH_BPF: (i32, i32) = (libc::SOL_SOCKET, libc::SO_ATTACH_BPF);

    fn filter(count: u16, at: u64) -> Vec<u8> {
        [&count.to_ne_bytes()[..], &[0; 6], &at.to_ne_bytes()].concat()
    }

    fn set(option: (i32, i32), value: Vec<u8>) -> Result<(), Errno> {
        let caller = Caller {
            tid: rustix::thread::gettid()
                .as_raw_nonzero()
                .get()
                .cast_unsigned(),
        };
        let given = Given::of(caller, option, value)?;
        let socket = socket(AddressFamily::INET, SocketType::DGRAM, None).unwrap();
        backing::set_option(socket, option.0, option.1, given.value())
    }

    #[test]
    fn a_filter_is_read_from_where_the_program_has_it() {
        // "Take all of it".
        let program: [u8; 8] = [6, 0, 0, 0, 0xff, 0xff, 0, 0];
        let at = u64::try_from(program.as_ptr().expose_provenance()).unwrap();
        assert_eq!(set(ATTACH, filter(1, at)), Ok(()));
        assert_eq!(set(ATTACH, filter(1, 8)), Err(Errno::FAULT));
        for refused in [filter(0, at), filter(1, 0), filter(u16::MAX, at)] {
            assert_eq!(set(ATTACH, refused), Err(Errno::INVAL));
        }
        for len in [4, 12] {
            assert_eq!(set(ATTACH, vec![0xff; len]), Err(Errno::INVAL));
        }
    }

    #[test]
    fn the_number_of_a_program_is_the_callers() {
        assert_eq!(
            set(ATTACH_BPF, (-1_i32).to_ne_bytes().to_vec()),
            Err(Errno::BADF)
        );
        // It is a descriptor, but of no program.
        let other = socket(AddressFamily::INET, SocketType::DGRAM, None).unwrap();
        let number = other.as_raw_fd().to_ne_bytes().to_vec();
        assert_eq!(set(ATTACH_BPF, number), Err(Errno::INVAL));
    }
}
