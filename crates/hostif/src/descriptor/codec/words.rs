//! Addresses and ports as words.

use core::net::SocketAddr;

use super::Word0;
use crate::descriptor::{Malformed, Words, address_bytes, address_from_bytes, high, join, low};

pub(super) fn halves(bytes: [u8; 16]) -> [u64; 2] {
    let (first, second) = bytes.split_at(8);
    [first, second].map(|half| {
        u64::from_le_bytes(
            half.try_into()
                .expect("invariant: half of sixteen is eight"),
        )
    })
}

pub(super) fn address_words(address: SocketAddr) -> (u8, [u64; 2]) {
    let (family, bytes) = address_bytes(address.ip());
    (family, halves(bytes))
}

pub(super) fn whole(words: [u64; 2]) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&words[0].to_le_bytes());
    bytes[8..].copy_from_slice(&words[1].to_le_bytes());
    bytes
}

pub(super) fn address(family: u8, words: [u64; 2], port: u16) -> Result<SocketAddr, Malformed> {
    Ok(SocketAddr::new(
        address_from_bytes(family, whole(words)).ok_or(Malformed)?,
        port,
    ))
}

/// The peer and the local address of a connect.
pub(super) fn connect_ends(
    first: &Word0,
    words: &Words,
) -> Result<(SocketAddr, Option<SocketAddr>), Malformed> {
    let remote = address(
        first.families[0],
        [words[2], words[3]],
        port(low(words[6]))?,
    )?;
    let local = match first.families[1] {
        0 => None,
        family => Some(address(
            family,
            [words[4], words[5]],
            port(high(words[6]))?,
        )?),
    };
    Ok((remote, local))
}

pub(super) fn connect_words(
    word: Word0,
    id: u64,
    remote: SocketAddr,
    local: Option<SocketAddr>,
) -> Words {
    let (family, [a, b]) = address_words(remote);
    let (local_family, [c, d]) = local.map_or((0, [0; 2]), address_words);
    let word = Word0 {
        families: [family, local_family],
        ..word
    };
    let local_port = local.map_or(0, |local| local.port());
    let ports = join(u32::from(remote.port()), u32::from(local_port));
    [word.encode(), id, a, b, c, d, ports]
}

pub(super) fn port(half: u32) -> Result<u16, Malformed> {
    u16::try_from(half).map_err(|_| Malformed)
}
