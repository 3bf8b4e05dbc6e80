//! The filter on the backing socket of a UDP socket on ANY (`client::duplicate_filter`): a program neither sees it nor takes it away, and
//! one of the program's own stands in its place while it is there.

use std::sync::Arc;

use bpf::classic::Instruction;
use client::route::EngineNetworks;
use rustix::fd::BorrowedFd;
use rustix::io::Errno;

/// See the file's head.
pub struct DuplicateFilter {
    program: Vec<Instruction>,
    is_replaced: bool,
}

impl DuplicateFilter {
    /// Attaches it; `None`: the engine is on no link of this kernel.
    pub fn attach(
        backing: BorrowedFd<'_>,
        networks: &Arc<EngineNetworks>,
    ) -> Result<Option<DuplicateFilter>, Errno> {
        let Some(program) = client::duplicate_filter(std::slice::from_ref(networks), true) else {
            return Ok(None);
        };
        let filter = DuplicateFilter {
            program,
            is_replaced: false,
        };
        filter.attach_to(backing)?;
        Ok(Some(filter))
    }

    fn attach_to(&self, backing: BorrowedFd<'_>) -> Result<(), Errno> {
        bpf::classic::attach(backing, &self.program)
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::INVAL))
    }

    /// Whether it stands, and the program is told of none.
    pub fn stands(&self) -> bool {
        !self.is_replaced
    }

    /// What setsockopt(2) says of an option before the kernel is asked.
    pub fn refusal(&self, option: (i32, i32), value: &[u8]) -> Option<Errno> {
        let is_whole = value.len() >= size_of::<i32>();
        (option == DETACH && is_whole && self.stands()).then_some(Errno::NOENT)
    }

    /// The program has set an option.
    pub fn follow(&mut self, backing: BorrowedFd<'_>, option: (i32, i32)) -> Result<(), Errno> {
        if ATTACH.contains(&option) {
            self.is_replaced = true;
        } else if option == DETACH {
            self.is_replaced = false;
            self.attach_to(backing)?;
        }
        Ok(())
    }
}

/// SO_GET_FILTER has the number of SO_ATTACH_FILTER.
pub const GET: (i32, i32) = (libc::SOL_SOCKET, libc::SO_GET_FILTER);
const ATTACH: [(i32, i32); 2] = [
    (libc::SOL_SOCKET, libc::SO_ATTACH_FILTER),
    (libc::SOL_SOCKET, libc::SO_ATTACH_BPF),
];
const DETACH: (i32, i32) = (libc::SOL_SOCKET, libc::SO_DETACH_FILTER);
