//! Which local ends the listeners and UDP sockets of an engine have: memory that the engine alone can write, and that
//! programs look into before each connection and each datagram over loopback, where the engine and the kernel have sockets
//! at the same addresses (docs/decisions/0042-loopback.md). See memfd_create(2), F_SEAL_FUTURE_WRITE.
//!
//! Each port of TCP and of UDP has a cache line of words, one for an address. An end that finds no free word is not named: what
//! is for it goes by the kernel then, which has it as well.

use core::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use rustix::fd::{AsFd as _, BorrowedFd, OwnedFd};

use crate::cursor::Cells;
use crate::region::RegionError;
use crate::sync::Ordering;
use crate::sys::{self, Mapping};

/// Addresses of one port that are named.
const ADDRESSES_MAX: usize = 8;
const PORTS: usize = 1 << 16;
const TRANSPORTS: usize = 2;
const WORDS: usize = TRANSPORTS * PORTS * ADDRESSES_MAX;
const BYTES: u64 = WORDS as u64 * 8;
/// Nobody has port 0: what its line begins with says what the file is.
const MAGIC: u64 = u64::from_le_bytes(*b"SHUNTHO1");

/// Which protocol's ports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transport {
    /// Of TCP: of listeners, also those that are being made.
    Tcp,
    /// Of UDP.
    Udp,
}

/// See the file's head.
pub struct Holders {
    words: Cells,
    file: Option<OwnedFd>,
}

impl Holders {
    /// Engine: makes the memory, with no end named.
    ///
    /// # Errors
    /// A system call failed.
    pub fn create() -> Result<Holders, RegionError> {
        let (file, memory) = sys::create_to_show(c"shunt-holders", BYTES)?;
        let words = words(&Arc::new(memory))?;
        words[0].store(MAGIC, Ordering::Release);
        Ok(Holders {
            words,
            file: Some(file),
        })
    }

    /// Program: maps what the engine has handed over, to be read.
    ///
    /// # Errors
    /// It is something else, or cannot be mapped.
    pub fn map(file: BorrowedFd<'_>) -> Result<Holders, RegionError> {
        let words = words(&Arc::new(Mapping::to_read(file, BYTES)?))?;
        if words[0].load(Ordering::Acquire) == MAGIC {
            Ok(Holders { words, file: None })
        } else {
            Err(RegionError::Foreign)
        }
    }

    /// The memory file; only its maker keeps it.
    #[must_use]
    pub fn file(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(|file| file.as_fd())
    }

    fn line(&self, transport: Transport, port: u16) -> &[crate::sync::AtomicU64] {
        let first = match transport {
            Transport::Tcp => 0,
            Transport::Udp => PORTS,
        };
        let start = (first + usize::from(port)) * ADDRESSES_MAX;
        &self.words[start..start + ADDRESSES_MAX]
    }

    /// Engine: these are the addresses at which sockets have that port now. Those that stay are named all the while.
    pub fn name(&self, transport: Transport, port: u16, addresses: impl Iterator<Item = IpAddr>) {
        // What a program has mapped it cannot write.
        if port == 0 || self.file.is_none() {
            return;
        }
        let mut words = [0; ADDRESSES_MAX];
        let mut count = 0;
        for word in addresses.map(word) {
            if count < words.len() && !words[..count].contains(&word) {
                words[count] = word;
                count += 1;
            }
        }
        let line = self.line(transport, port);
        for cell in line {
            if !words[..count].contains(&cell.load(Ordering::Relaxed)) {
                cell.store(0, Ordering::Release);
            }
        }
        for word in &words[..count] {
            let is_there = |cell: &crate::sync::AtomicU64| cell.load(Ordering::Relaxed) == *word;
            let is_free = |cell: &&crate::sync::AtomicU64| cell.load(Ordering::Relaxed) == 0;
            if !line.iter().any(is_there)
                && let Some(cell) = line.iter().find(is_free)
            {
                cell.store(*word, Ordering::Release);
            }
        }
    }

    /// Program: whether a socket has that end, by its address or by the one for all of its family.
    #[must_use]
    pub fn have(&self, transport: Transport, end: SocketAddr) -> bool {
        if end.port() == 0 {
            return false;
        }
        let all = match end.ip() {
            IpAddr::V4(_) => IpAddr::V4(core::net::Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => IpAddr::V6(core::net::Ipv6Addr::UNSPECIFIED),
        };
        let wanted = [word(end.ip()), word(all)];
        let cells = self.line(transport, end.port()).iter();
        let mut named = cells.map(|cell| cell.load(Ordering::Acquire));
        named.any(|word| wanted.contains(&word))
    }
}

fn words(memory: &Arc<Mapping>) -> Result<Cells, RegionError> {
    memory.cells(0, WORDS).ok_or(RegionError::Foreign)
}

/// An address in one word, never 0. Two of IPv6 can have the same, which no host has by chance; an address of this
/// host's own that nobody has at a port of the engine would be asked for there, and be refused.
fn word(address: IpAddr) -> u64 {
    const V4: u64 = 1 << 32;
    const V6: u64 = 1 << 63;
    match address {
        IpAddr::V4(address) => V4 | u64::from(address.to_bits()),
        IpAddr::V6(address) => {
            let bits = address.to_bits().to_le_bytes();
            let (low, high) = bits.split_at(8);
            let half = |bytes: &[u8]| {
                bytes
                    .iter()
                    .rev()
                    .fold(0, |sum, byte| sum << 8 | u64::from(*byte))
            };
            V6 | (half(low) ^ half(high).rotate_left(29))
        }
    }
}

#[cfg(test)]
mod tests;
