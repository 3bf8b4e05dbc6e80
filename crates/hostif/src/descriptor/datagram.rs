//! The options of a datagram socket, all of them in one command. See ip(7), ipv6(7), udp(7).

use super::{Malformed, high, join, low};

/// What counts for datagrams of one family; a socket of AF_INET6 has both, each with options of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FamilyOptions {
    /// IP_TTL, IPV6_UNICAST_HOPS.
    pub ttl: u8,
    /// IP_TOS, IPV6_TCLASS.
    pub tos: u8,
    /// IP_MULTICAST_TTL, IPV6_MULTICAST_HOPS.
    pub multicast_ttl: u8,
    /// IP_MTU_DISCOVER, IPV6_MTU_DISCOVER, Linux's number.
    pub mtu_discovery: u8,
    /// IP_RECVERR, IPV6_RECVERR.
    pub error_queue: bool,
    /// IP_MULTICAST_LOOP, IPV6_MULTICAST_LOOP.
    pub multicast_loop: bool,
    /// IP_MULTICAST_ALL, IPV6_MULTICAST_ALL: hears groups that other sockets have joined.
    pub multicast_all: bool,
    /// IP_MULTICAST_IF, IPV6_MULTICAST_IF: an interface by its scope; 0 as routed.
    pub multicast_interface: u32,
}

impl Default for FamilyOptions {
    fn default() -> FamilyOptions {
        FamilyOptions {
            ttl: 64,
            tos: 0,
            multicast_ttl: 1,
            // IP_PMTUDISC_WANT, Linux's default.
            mtu_discovery: 1,
            error_queue: false,
            multicast_loop: true,
            multicast_all: true,
            multicast_interface: 0,
        }
    }
}

/// What the engine acts on; the kernel's view of it stays on the backing socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DatagramOptions {
    /// SO_BROADCAST.
    pub broadcast: bool,
    /// SO_REUSEPORT.
    pub reuse_port: bool,
    /// IPV6_V6ONLY.
    pub v6_only: bool,
    /// UDP_GRO.
    pub merged: bool,
    /// Another socket of the program receives what is for everybody on the link: this one receives what is for an
    /// address of the engine's, and groups that it has joined itself.
    pub addressed_only: bool,
    /// For IPv4.
    pub v4: FamilyOptions,
    /// For IPv6.
    pub v6: FamilyOptions,
    /// SO_SNDBUF, before the first bind; 0: the engine's default.
    pub send_bytes: u32,
    /// SO_RCVBUF, before the first bind; 0: the engine's default.
    pub receive_bytes: u32,
}

const BROADCAST: u32 = 1;
const REUSE_PORT: u32 = 1 << 1;
const V6_ONLY: u32 = 1 << 2;
const MERGED: u32 = 1 << 3;
const ADDRESSED_ONLY: u32 = 1 << 4;
/// Switches of a family, shifted by one of these.
const ERROR_QUEUE: u32 = 1;
const MULTICAST_LOOP: u32 = 1 << 1;
const MULTICAST_ALL: u32 = 1 << 2;
const V4_SHIFT: u32 = 8;
const V6_SHIFT: u32 = 16;
const ALL: u32 = 0x1f | 7 << V4_SHIFT | 7 << V6_SHIFT;

fn given(on: bool, bit: u32) -> u32 {
    if on { bit } else { 0 }
}

impl FamilyOptions {
    fn switches(&self) -> u32 {
        given(self.error_queue, ERROR_QUEUE)
            | given(self.multicast_loop, MULTICAST_LOOP)
            | given(self.multicast_all, MULTICAST_ALL)
    }

    fn numbers(&self) -> u32 {
        u32::from_le_bytes([self.ttl, self.tos, self.multicast_ttl, self.mtu_discovery])
    }

    fn read(switches: u32, numbers: u32, multicast_interface: u32) -> FamilyOptions {
        let [ttl, tos, multicast_ttl, mtu_discovery] = numbers.to_le_bytes();
        let has = |bit: u32| switches & bit != 0;
        FamilyOptions {
            ttl,
            tos,
            multicast_ttl,
            mtu_discovery,
            error_queue: has(ERROR_QUEUE),
            multicast_loop: has(MULTICAST_LOOP),
            multicast_all: has(MULTICAST_ALL),
            multicast_interface,
        }
    }
}

impl DatagramOptions {
    /// As words of switches and numbers.
    pub fn encode(&self) -> [u64; 4] {
        let switches = given(self.broadcast, BROADCAST)
            | given(self.reuse_port, REUSE_PORT)
            | given(self.v6_only, V6_ONLY)
            | given(self.merged, MERGED)
            | given(self.addressed_only, ADDRESSED_ONLY)
            | self.v4.switches() << V4_SHIFT
            | self.v6.switches() << V6_SHIFT;
        [
            join(switches, self.send_bytes),
            join(self.v4.numbers(), self.v6.numbers()),
            join(self.v4.multicast_interface, self.v6.multicast_interface),
            u64::from(self.receive_bytes),
        ]
    }

    /// The options behind such words.
    ///
    /// # Errors
    /// [`Malformed`]: they are none.
    pub fn decode(words: [u64; 4]) -> Result<DatagramOptions, Malformed> {
        let switches = low(words[0]);
        if switches & !ALL != 0 {
            return Err(Malformed);
        }
        let has = |bit: u32| switches & bit != 0;
        let (v4, v6) = (switches >> V4_SHIFT, switches >> V6_SHIFT);
        Ok(DatagramOptions {
            broadcast: has(BROADCAST),
            reuse_port: has(REUSE_PORT),
            v6_only: has(V6_ONLY),
            merged: has(MERGED),
            addressed_only: has(ADDRESSED_ONLY),
            v4: FamilyOptions::read(v4, low(words[1]), low(words[2])),
            v6: FamilyOptions::read(v6, high(words[1]), high(words[2])),
            send_bytes: high(words[0]),
            receive_bytes: low(words[3]),
        })
    }
}
