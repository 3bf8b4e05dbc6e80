//! What a program at a socket or a TCX hook sees of a packet beside its bytes: `struct __sk_buff` of linux/bpf.h.

/// Offset of the packet's type.
pub const PACKET_TYPE: i16 = 4;
/// Offset of the EtherType, as [`network_half`] gives it.
pub const PROTOCOL: i16 = 16;
/// Offset of whether there is a VLAN tag.
pub const VLAN_PRESENT: i16 = 20;

/// A type (linux/if_packet.h): for this station, and not for a group.
pub const PACKET_HOST: i32 = 0;
/// For another station.
pub const PACKET_OTHERHOST: i32 = 3;

/// A half word as `__sk_buff` and a frame hold the network's.
#[must_use]
pub fn network_half(number: u16) -> i32 {
    i32::from(u16::from_ne_bytes(number.to_be_bytes()))
}
