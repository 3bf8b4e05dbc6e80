//! Both addresses of a socket, as far as they are known.

use core::net::SocketAddr;
use core::sync::atomic::{AtomicU64, Ordering};

use super::SocketHeader;
use crate::descriptor::{address_bytes, address_from_bytes, high, join, low};

impl SocketHeader<'_> {
    /// Sets the addresses: the local one when bound, both before `Flags::CONNECTED`.
    pub fn engine_set_addresses(&self, local: Option<SocketAddr>, remote: Option<SocketAddr>) {
        let place = |cells: &[AtomicU64; 2], address: Option<SocketAddr>| -> (u8, u16) {
            let Some(address) = address else {
                return (0, 0);
            };
            let (family, bytes) = address_bytes(address.ip());
            for (cell, half) in cells.iter().zip(bytes.chunks_exact(8)) {
                let half = half.try_into().expect("invariant: chunks of eight");
                cell.store(u64::from_le_bytes(half), Ordering::Relaxed);
            }
            (family, address.port())
        };
        let (local_family, local_port) = place(&self.raw.local, local);
        let (remote_family, remote_port) = place(&self.raw.remote, remote);
        let families = u32::from_le_bytes([local_family, remote_family, 0, 0]);
        let ports = u32::from(local_port) | (u32::from(remote_port) << 16);
        self.raw
            .families_ports
            .store(join(families, ports), Ordering::Release);
    }

    /// The local and the remote address, as far as they are known.
    #[must_use]
    pub fn addresses(&self) -> (Option<SocketAddr>, Option<SocketAddr>) {
        let word = self.raw.families_ports.load(Ordering::Acquire);
        let [local_family, remote_family, _, _] = low(word).to_le_bytes();
        let [a, b, c, d] = high(word).to_le_bytes();
        let read = |cells: &[AtomicU64; 2], family: u8, port: [u8; 2]| {
            let mut bytes = [0; 16];
            for (half, cell) in bytes.chunks_exact_mut(8).zip(cells) {
                half.copy_from_slice(&cell.load(Ordering::Relaxed).to_le_bytes());
            }
            let address = address_from_bytes(family, bytes)?;
            Some(SocketAddr::new(address, u16::from_le_bytes(port)))
        };
        (
            read(&self.raw.local, local_family, [a, b]),
            read(&self.raw.remote, remote_family, [c, d]),
        )
    }
}
