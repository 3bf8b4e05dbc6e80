//! What `glue.c` offers, declared a second time; the types that use it are in `sys.rs`.
//!
//! Written by hand: thirty functions with structures of our own, where bindgen would need libclang to build and
//! would still leave out the static inlines that every packet passes. DPDK's layouts are known to C alone.

#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int};
use std::marker::PhantomData;

/// Something of DPDK's that is only passed on.
#[repr(C)]
pub(super) struct Opaque {
    bytes: [u8; 0],
    not_send: PhantomData<*mut u8>,
}

/// What a port can do, or is asked to do: sums of these.
pub mod able {
    pub const TX_CHECKSUM: u32 = 1 << 0;
    pub const TX_SEGMENTS: u32 = 1 << 1;
    pub const TX_TSO: u32 = 1 << 2;
    pub const RX_CHECKSUM: u32 = 1 << 3;
    pub const RX_SCATTER: u32 = 1 << 4;
    pub const RSS: u32 = 1 << 5;
    pub const RX_INTERRUPT: u32 = 1 << 6;
}

/// What a port says of itself.
#[repr(C)]
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct About {
    pub hardware_address: [u8; 6],
    pub mtu: u16,
    pub rx_queues: u16,
    pub tx_queues: u16,
    pub tx_segments: u16,
    pub numa_node: i16,
    pub able: u32,
    pub is_virtual: u32,
    pub driver: [u8; 32],
}

/// How a port is to be used; the rings become as long as the device takes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setup {
    pub queues: u16,
    pub rx_ring: u16,
    pub tx_ring: u16,
    pub mtu: u16,
    pub able: u32,
}

/// As C has it.
#[repr(C)]
pub(super) struct RawSetup {
    pub queues: u16,
    pub rx_ring: u16,
    pub tx_ring: u16,
    pub mtu: u16,
    pub able: u32,
    pub rx_pool: *mut Opaque,
}

/// What a port counts.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct Counts {
    /// Frames lost on their way in.
    pub lost_receiving: u64,
    /// Frames lost on their way out.
    pub lost_sending: u64,
    /// Frames that left.
    pub sent: u64,
}

/// As C has it.
#[repr(C)]
pub(super) struct RawFrame {
    pub data: *const u8,
    pub first_len: u32,
    pub len: u32,
    pub checksum: u32,
}

/// What the device is to finish of a frame.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offload {
    /// Where the IP header starts.
    pub ip: u16,
    /// Where the transport header starts.
    pub transport: u16,
    /// Where the payload starts.
    pub payload: u16,
    /// Payload bytes of each frame to be cut to; 0: not to be cut.
    pub segment: u16,
    pub is_v6: u32,
    pub is_tcp: u32,
}

unsafe extern "C" {
    pub(super) fn shunt_eal_init(count: c_int, arguments: *mut *mut c_char) -> c_int;
    pub(super) fn shunt_register_thread() -> c_int;
    pub(super) fn shunt_unregister_thread();
    pub(super) fn shunt_probe(arguments: *const c_char) -> c_int;
    pub(super) fn shunt_port_by_name(name: *const c_char, port: *mut u16) -> c_int;
    pub(super) fn shunt_about(port: u16, about: *mut About) -> c_int;
    pub(super) fn shunt_configure(port: u16, setup: *mut RawSetup) -> c_int;
    pub(super) fn shunt_start(port: u16, setup: *const RawSetup) -> c_int;
    pub(super) fn shunt_spread(
        port: u16,
        key: *mut u8,
        key_len: u32,
        table: *const u16,
        entries: u32,
    ) -> c_int;
    pub(super) fn shunt_stop(port: u16);
    pub(super) fn shunt_close(port: u16);
    pub(super) fn shunt_listen_for_recall(port: u16) -> c_int;
    pub(super) fn shunt_is_recalled(port: u16) -> c_int;
    pub(super) fn shunt_recall(port: u16);
    pub(super) fn shunt_groups(port: u16, groups: *mut [u8; 6], count: u32) -> c_int;
    pub(super) fn shunt_is_linked(port: u16) -> c_int;
    pub(super) fn shunt_counts(port: u16, counts: *mut Counts);
    pub(super) fn shunt_watch(port: u16, queue: u16, epoll: c_int) -> c_int;
    pub(super) fn shunt_arm(port: u16, queue: u16);
    pub(super) fn shunt_disarm(port: u16, queue: u16, epoll: c_int);
    pub(super) fn shunt_pool(
        name: *const c_char,
        count: u32,
        room: u16,
        node: c_int,
    ) -> *mut Opaque;
    pub(super) fn shunt_pool_free(pool: *mut Opaque);
    pub(super) fn shunt_errno() -> c_int;
    pub(super) fn shunt_receive(port: u16, queue: u16, mbufs: *mut *mut Opaque, count: u16) -> u16;
    pub(super) fn shunt_prepare(port: u16, queue: u16, mbufs: *mut *mut Opaque, count: u16) -> u16;
    pub(super) fn shunt_send(port: u16, queue: u16, mbufs: *mut *mut Opaque, count: u16) -> u16;
    pub(super) fn shunt_look(mbuf: *const Opaque, frame: *mut RawFrame);
    pub(super) fn shunt_gather(mbuf: *const Opaque, target: *mut u8, len: u32) -> u32;
    pub(super) fn shunt_free(mbuf: *mut Opaque);
    pub(super) fn shunt_make(pool: *mut Opaque, len: u32, room: u16) -> *mut Opaque;
    pub(super) fn shunt_part(mbuf: *mut Opaque, data: *mut *mut u8, len: *mut u32) -> *mut Opaque;
    pub(super) fn shunt_offload(mbuf: *mut Opaque, offload: *const Offload);
    pub(super) fn shunt_ring(name: *const c_char, count: u32, node: c_int) -> *mut Opaque;
    pub(super) fn shunt_ring_put(ring: *mut Opaque, mbuf: *mut Opaque) -> c_int;
    pub(super) fn shunt_ring_take(ring: *mut Opaque, mbufs: *mut *mut Opaque, count: u32) -> u32;
    pub(super) fn shunt_ring_is_empty(ring: *const Opaque) -> c_int;
    pub(super) fn shunt_ring_free(ring: *mut Opaque);
}

/// The driver's name out of what a port says.
pub fn driver_name(about: &About) -> String {
    CStr::from_bytes_until_nul(&about.driver).map_or_else(
        |_| "?".to_owned(),
        |name| name.to_string_lossy().into_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    unsafe extern "C" {
        fn shunt_sizes(sizes: *mut [u32; 5]);
    }

    #[test]
    fn structures_are_as_large_here_as_in_c() {
        let mut sizes = [0; 5];
        // SAFETY: five numbers are written.
        unsafe { shunt_sizes(&raw mut sizes) };
        let ours = [
            size_of::<About>(),
            size_of::<RawSetup>(),
            size_of::<Counts>(),
            size_of::<RawFrame>(),
            size_of::<Offload>(),
        ];
        assert_eq!(sizes.map(|size| usize::try_from(size).unwrap()), ours);
    }
}
