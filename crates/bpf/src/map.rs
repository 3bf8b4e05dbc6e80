//! Maps: what programs and this process share. Read first: bpf(2), `BPF_MAP_CREATE` and following.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};

use crate::{Error, sys};

/// What kind of map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum MapKind {
    /// Keys of any bytes.
    Hash = 1,
    /// Keys are indexes, four bytes; every entry exists from the start.
    Array = 2,
    /// Keys are a prefix length (four bytes, this machine's order) and bits; the longest match is found.
    LongestPrefix = 11,
    /// Indexes to AF_XDP sockets.
    Sockets = 17,
    /// Values without keys, first in, first out.
    Queue = 22,
}

/// A map; it lives as long as this or a program that uses it.
#[derive(Debug)]
pub struct Map {
    fd: OwnedFd,
    key_bytes: usize,
    value_bytes: usize,
}

impl Map {
    /// A map of at most `entries`; `name` is what `bpftool map` shows, 15 letters of it.
    ///
    /// # Errors
    /// No privilege, no such kind, no memory.
    pub fn create(
        kind: MapKind,
        name: &str,
        key_bytes: u32,
        value_bytes: u32,
        entries: u32,
    ) -> Result<Self, Error> {
        // linux/bpf.h, BPF_F_NO_PREALLOC: a map of prefixes is refused without.
        let flags = u32::from(kind == MapKind::LongestPrefix);
        let created = sys::create_map(kind as u32, [key_bytes, value_bytes, entries, flags], name);
        let fd = created.map_err(Error::of("making a BPF map"))?;
        let size = |bytes| usize::try_from(bytes).expect("invariant: usize has 32 bits at least");
        Ok(Self {
            fd,
            key_bytes: size(key_bytes),
            value_bytes: size(value_bytes),
        })
    }

    /// Sets the value of `key`, which may be new.
    ///
    /// # Errors
    /// The map is full (`E2BIG`), or an index lies behind its end.
    ///
    /// # Panics
    /// If key or value are not of the map's sizes.
    pub fn update(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        self.check(key, value.len());
        sys::update(self.fd(), key, value)
    }

    /// Puts a socket at an index of a map of sockets.
    ///
    /// # Errors
    /// It is no AF_XDP socket of a bound queue, or the index lies behind the end.
    pub fn set_socket(&self, index: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        self.update(&index.to_ne_bytes(), &socket.as_raw_fd().to_ne_bytes())
    }

    /// Removes `key`; whether it was there.
    ///
    /// # Errors
    /// The kind of map does not allow it.
    ///
    /// # Panics
    /// If the key is not of the map's size.
    pub fn delete(&self, key: &[u8]) -> io::Result<bool> {
        self.check(key, self.value_bytes);
        found(sys::delete(self.fd(), key))
    }

    /// Copies the value of `key`; whether there is one.
    ///
    /// # Errors
    /// The kind of map does not allow it.
    ///
    /// # Panics
    /// If key or value are not of the map's sizes.
    pub fn look_up(&self, key: &[u8], value: &mut [u8]) -> io::Result<bool> {
        self.check(key, value.len());
        found(sys::look_up(self.fd(), key, value))
    }

    /// Takes the oldest value of a map of kind [`MapKind::Queue`]; whether there was one.
    ///
    /// # Errors
    /// The kind of map does not allow it.
    ///
    /// # Panics
    /// If the value is not of the map's size.
    pub fn pop(&self, value: &mut [u8]) -> io::Result<bool> {
        self.check(&[], value.len());
        found(sys::pop(self.fd(), value))
    }

    /// The map's descriptor, to be handed to another process or kept for it.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The kernel reads and writes as many bytes as the map was made with.
    fn check(&self, key: &[u8], value_bytes: usize) {
        assert!(
            key.len() == self.key_bytes && value_bytes == self.value_bytes,
            "invariant: keys and values have the map's sizes"
        );
    }
}

fn found(result: io::Result<()>) -> io::Result<bool> {
    match result {
        Ok(()) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(false),
        Err(error) => Err(error),
    }
}
