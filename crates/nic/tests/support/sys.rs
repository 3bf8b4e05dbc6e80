//! Memory that cannot be read any more, and XDP programs of others.
#![allow(unsafe_code)]

use nic::SharedSlice;
use rustix::fs::MemfdFlags;
use rustix::mm::{MapFlags, ProtFlags};

/// `len` bytes of a mapped file that has been cut short: reading them is SIGBUS here and EFAULT in the
/// kernel.
pub fn cut_short(len: usize) -> SharedSlice<'static> {
    let file = rustix::fs::memfd_create(c"cut short", MemfdFlags::CLOEXEC).unwrap();
    // SAFETY: the kernel chooses a free place; the mapping stays until the process ends, and the span
    // is given to the kernel only.
    unsafe {
        let start = rustix::mm::mmap(
            std::ptr::null_mut(),
            len,
            ProtFlags::READ,
            MapFlags::SHARED,
            &file,
            0,
        );
        SharedSlice::from_raw(start.unwrap().cast(), len)
    }
}

/// Takes every XDP program off the interface with this number, as `bpftool link detach` does.
pub fn take_programs_off(interface: u32) {
    // linux/bpf.h: BPF_LINK_GET_FD_BY_ID, BPF_LINK_GET_NEXT_ID, BPF_OBJ_GET_INFO_BY_FD, BPF_LINK_DETACH.
    let [by_id, next_id, info_of, detach] = [30, 31, 15, 34];
    let bpf = |command: i32, attributes: &mut [u32; 4]| {
        let pointer = attributes.as_mut_ptr();
        // SAFETY: sixteen bytes, of which each command reads and writes no more; the only address in them is
        // that of `info` below, which outlives the call.
        unsafe { libc::syscall(libc::SYS_bpf, command, pointer, size_of::<[u32; 4]>()) }
    };
    let mut id = 0;
    loop {
        let mut next = [id, 0, 0, 0];
        if bpf(next_id, &mut next) != 0 {
            return;
        }
        id = next[1];
        let Ok(fd) = u32::try_from(bpf(by_id, &mut [id, 0, 0, 0])) else {
            continue;
        };
        let mut info = [0_u32; 6];
        let [low, high] = {
            let address = u64::try_from((&raw mut info).addr()).unwrap();
            [address & 0xffff_ffff, address >> 32].map(|half| u32::try_from(half).unwrap())
        };
        let len = u32::try_from(size_of_val(&info)).unwrap();
        bpf(info_of, &mut [fd, len, low, high]);
        // BPF_LINK_TYPE_XDP.
        if info[0] == 6 && info[4] == interface {
            assert_eq!(bpf(detach, &mut [fd, 0, 0, 0]), 0);
        }
        // SAFETY: the descriptor was made above, and nobody else knows it.
        unsafe { libc::close(i32::try_from(fd).unwrap()) };
    }
}
