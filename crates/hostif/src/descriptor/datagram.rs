//! The options of a datagram socket, all of them in one command. See ip(7), udp(7).

use super::{Malformed, high, join, low};

/// What the engine acts on; the kernel's view of it stays on the backing socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DatagramOptions {
    /// SO_BROADCAST.
    pub broadcast: bool,
    /// SO_REUSEPORT.
    pub reuse_port: bool,
    /// IP_RECVERR, IPV6_RECVERR.
    pub error_queue: bool,
    /// IPV6_V6ONLY.
    pub v6_only: bool,
    /// UDP_GRO.
    pub merged: bool,
    /// IP_MULTICAST_LOOP.
    pub multicast_loop: bool,
    /// IP_TTL.
    pub ttl: u8,
    /// IP_TOS.
    pub tos: u8,
    /// IP_MULTICAST_TTL.
    pub multicast_ttl: u8,
    /// IP_MTU_DISCOVER, Linux's number.
    pub mtu_discovery: u8,
    /// IP_MULTICAST_IF: the engine's interface counted from 1; 0 as routed.
    pub multicast_interface: u32,
    /// SO_SNDBUF, before the first bind; 0: the engine's default.
    pub send_bytes: u32,
    /// SO_RCVBUF, before the first bind; 0: the engine's default.
    pub receive_bytes: u32,
}

impl Default for DatagramOptions {
    fn default() -> DatagramOptions {
        DatagramOptions {
            broadcast: false,
            reuse_port: false,
            error_queue: false,
            v6_only: false,
            merged: false,
            multicast_loop: true,
            ttl: 64,
            tos: 0,
            multicast_ttl: 1,
            // IP_PMTUDISC_WANT, Linux's default.
            mtu_discovery: 1,
            multicast_interface: 0,
            send_bytes: 0,
            receive_bytes: 0,
        }
    }
}

const BROADCAST: u32 = 1;
const REUSE_PORT: u32 = 1 << 1;
const ERROR_QUEUE: u32 = 1 << 2;
const MULTICAST_LOOP: u32 = 1 << 3;
const V6_ONLY: u32 = 1 << 4;
const MERGED: u32 = 1 << 5;
const ALL: u32 = (1 << 6) - 1;

impl DatagramOptions {
    /// As two words of switches and numbers.
    pub(super) fn encode(&self) -> [u64; 3] {
        let given = |on: bool, bit: u32| if on { bit } else { 0 };
        let switches = given(self.broadcast, BROADCAST)
            | given(self.reuse_port, REUSE_PORT)
            | given(self.error_queue, ERROR_QUEUE)
            | given(self.v6_only, V6_ONLY)
            | given(self.merged, MERGED)
            | given(self.multicast_loop, MULTICAST_LOOP);
        let small = [self.ttl, self.tos, self.multicast_ttl, self.mtu_discovery];
        [
            join(switches, u32::from_le_bytes(small)),
            join(self.multicast_interface, self.send_bytes),
            u64::from(self.receive_bytes),
        ]
    }

    pub(super) fn decode(words: [u64; 3]) -> Result<DatagramOptions, Malformed> {
        let switches = low(words[0]);
        if switches & !ALL != 0 {
            return Err(Malformed);
        }
        let has = |bit: u32| switches & bit != 0;
        let [ttl, tos, multicast_ttl, mtu_discovery] = high(words[0]).to_le_bytes();
        Ok(DatagramOptions {
            broadcast: has(BROADCAST),
            reuse_port: has(REUSE_PORT),
            error_queue: has(ERROR_QUEUE),
            v6_only: has(V6_ONLY),
            merged: has(MERGED),
            multicast_loop: has(MULTICAST_LOOP),
            ttl,
            tos,
            multicast_ttl,
            mtu_discovery,
            multicast_interface: low(words[1]),
            send_bytes: high(words[1]),
            receive_bytes: low(words[2]),
        })
    }
}
