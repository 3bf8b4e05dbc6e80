//! Which connections are a core's own, and the way of a packet to the core that serves it when the device
//! could not tell: it came in fragments, or behind IPv6 extension headers.
//!
//! Rare, and open to strangers: so the first core has [`BUFFERS`] buffers for each other core from the
//! start. Without a free one the packet is lost, and its sender sends it again.

use super::Sibling;
use super::section::Section;
use core::net::SocketAddr;
use hostif::Steering;
use stack::{Detour, RxChecksum};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Packets on their way to one core at most.
const BUFFERS: usize = 8;
/// Bytes of the longest: Ethernet and IPv6 headers before all that the latter can announce.
const BUFFER_LEN: usize = 14 + 40 + 65_535;

/// A packet that another core has taken in.
pub struct Packet {
    bytes: Box<[u8]>,
    len: usize,
    /// Its transport checksum.
    pub checksum: RxChecksum,
}

impl Packet {
    /// The whole frame.
    pub fn frame(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Where a core gives buffers back.
pub struct Returns(SyncSender<Box<[u8]>>);

impl Returns {
    /// The packet is done with.
    pub fn give_back(&self, packet: Packet) {
        // The channel holds all buffers that there are; it is closed when the first core has ended.
        let _ = self.0.try_send(packet.bytes);
    }
}

/// The way to another core.
pub(super) struct CrossShardQueue {
    sibling: Sibling,
    free: Receiver<Box<[u8]>>,
}

impl CrossShardQueue {
    /// A way to `sibling` with all its buffers.
    pub(super) fn new(sibling: Sibling) -> (Self, Returns) {
        let (returns, free) = sync_channel(BUFFERS);
        for _ in 0..BUFFERS {
            let _ = returns.try_send(vec![0; BUFFER_LEN].into_boxed_slice());
        }
        (Self { sibling, free }, Returns(returns))
    }

    fn pass(&self, detour: &Detour<'_>) {
        let (header, packet) = (&detour.header, detour.packet);
        let len = header.len() + packet.len();
        if len > BUFFER_LEN {
            return;
        }
        let Ok(mut bytes) = self.free.try_recv() else {
            return;
        };
        bytes[..header.len()].copy_from_slice(header);
        bytes[header.len()..len].copy_from_slice(packet);
        let packet = Packet {
            bytes,
            len,
            checksum: detour.checksum,
        };
        self.sibling.leave_packet(packet);
    }
}

/// What a core knows of whose a connection is.
pub struct ShardOwner {
    core: u16,
    steering: Steering,
    /// Of the first core: the ways to the others, from core 1 on.
    ways: Vec<CrossShardQueue>,
}

impl ShardOwner {
    pub(super) fn new(core: u16, steering: Steering, ways: Vec<CrossShardQueue>) -> Self {
        Self {
            core,
            steering,
            ways,
        }
    }

    /// Which core this is.
    pub fn core(&self) -> u16 {
        self.core
    }

    /// Which part of a file with the state of all cores is this one's.
    pub fn section(&self) -> Section {
        Section {
            core: self.core,
            cores: self.steering.cores,
        }
    }

    /// Whether the packets of this connection arrive at this core.
    #[inline]
    pub fn is_own(&self, local: SocketAddr, remote: SocketAddr) -> bool {
        self.steering.core_of(local, remote) == self.core
    }

    /// Gives a packet to the core that serves it; false: that is this one.
    pub fn try_pass_on(&self, detour: &Detour<'_>) -> bool {
        let core = self.steering.core_of(detour.local, detour.remote);
        let way = usize::from(core)
            .checked_sub(1)
            .and_then(|at| self.ways.get(at));
        match way {
            Some(way) if core != self.core => {
                way.pass(detour);
                true
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Message, Shard};
    use core::net::SocketAddr;
    use hostif::Steering;
    use stack::{Detour, RxChecksum};

    const STEERING: Steering = Steering { cores: 3, key: 9 };

    /// A packet of a connection of `core`.
    fn detour(core: u16) -> Detour<'static> {
        let local = SocketAddr::from(([10, 0, 0, 1], 80));
        let remote = |port| SocketAddr::from(([10, 0, 0, 2], port));
        let port = (1..).find(|port| STEERING.core_of(local, remote(*port)) == core);
        Detour {
            local,
            remote: remote(port.unwrap()),
            header: [7; 14],
            packet: &[9; 5_000],
            checksum: RxChecksum::Partial,
        }
    }

    #[test]
    fn a_packet_reaches_the_core_that_serves_it_and_its_buffer_comes_back() {
        let mut shards = Shard::all(STEERING).unwrap();
        let homes: Vec<_> = shards.iter_mut().map(Shard::take_owner).collect();
        for _ in 0..100 {
            assert!(homes[0].try_pass_on(&detour(2)));
            let Some(Message::Packet(packet)) = shards[2].take() else {
                panic!("no packet");
            };
            assert_eq!(packet.frame(), [&[7; 14][..], &[9; 5_000]].concat());
            assert_eq!(packet.checksum, RxChecksum::Partial);
            shards[2].give_back(packet);
        }
        assert!(!homes[0].try_pass_on(&detour(0)), "its own");
        assert!(!homes[2].try_pass_on(&detour(1)), "only the first does");
        assert!(shards[1].take().is_none());
    }

    #[test]
    fn a_core_that_is_behind_gets_no_more_than_there_are_buffers() {
        let mut shards = Shard::all(STEERING).unwrap();
        let home = shards[0].take_owner();
        for _ in 0..1_000 {
            assert!(home.try_pass_on(&detour(1)), "lost, not the first core's");
        }
        let left = core::iter::from_fn(|| shards[1].take()).count();
        assert_eq!(left, super::BUFFERS);
    }
}
