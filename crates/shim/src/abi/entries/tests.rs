//! The instructions with which several builds of glibc begin, and this process's own libc, whose entries lead here as they
//! do in a program.

use super::*;
use crate::abi::symbol::originals::{self, NAMES};

/// A function's name and bytes, and what of them is displaced.
type Start = (&'static str, &'static [u8], usize, Option<(usize, usize)>);

fn give_way(starts: &[Start]) {
    for &(name, code, len, relative) in starts {
        assert_eq!(displaced(code), Some(Displaced { len, relative }), "{name}");
    }
}

#[test]
fn the_starts_of_known_calls_give_way_to_a_jump() {
    let starts: [Start; 9] = [
        (
            "write of glibc 2.36",
            b"\x80\x3d\x91\x32\x0e\0\0\x74\x17\xb8\x01\0\0\0\x0f\x05",
            7,
            Some((2, 7)),
        ),
        (
            "sendto of glibc 2.36",
            b"\x80\x3d\x31\x09\x0d\0\0\x41\x89\xca\x74\x14\xb8\x2c\0\0",
            7,
            Some((2, 7)),
        ),
        (
            "recvmsg of glibc 2.36",
            b"\x53\x48\x83\xec\x10\x80\x3d\x3c\x0b\x0d\0\0\x74\x22\xb8\x2f",
            5,
            None,
        ),
        (
            "socket",
            b"\xb8\x29\0\0\0\x0f\x05\x48\x3d\x01\xf0\xff\xff\x73\x01\xc3",
            5,
            None,
        ),
        (
            "setsockopt",
            b"\x49\x89\xca\xb8\x36\0\0\0\x0f\x05\x48\x3d\0\xf0\xff\xff",
            8,
            None,
        ),
        (
            "__read_nocancel",
            b"\x31\xc0\x0f\x05\x48\x3d\0\xf0\xff\xff\x77\x04\xc3\x0f\x1f\0",
            10,
            None,
        ),
        (
            "ioctl",
            b"\x48\x83\xec\x58\x48\x89\x54\x24\x30\x64\x48\x8b\x04\x25\x28\0",
            9,
            None,
        ),
        (
            "read with endbr64 and the thread's word",
            b"\xf3\x0f\x1e\xfa\x64\x8b\x04\x25\x18\0\0\0\x85\xc0\x75\x10",
            12,
            None,
        ),
        (
            "write with endbr64",
            b"\xf3\x0f\x1e\xfa\x80\x3d\x91\x32\x0e\0\0\x74\x17\xb8\x01\0",
            11,
            Some((6, 11)),
        ),
    ];
    give_way(&starts);
}

#[test]
fn the_starts_of_calls_that_libc_does_not_make_give_way_too() {
    let starts: [Start; 4] = [
        (
            "posix_spawn of glibc 2.36",
            b"\x48\x83\xec\x10\x6a\0\xe8\x45\x08\0\0\x48\x83\xc4\x18\xc3",
            6,
            None,
        ),
        (
            "select of glibc 2.36",
            b"\x41\x57\x49\x89\xca\x49\x89\xd7\x41\x56\x41\x55\x41\x54\x55\x53",
            5,
            None,
        ),
        (
            "pselect of glibc 2.36",
            b"\x41\x55\x4c\x89\xc0\x49\x89\xd5\x49\x89\xca\x55\x45\x31\xc0\x53",
            5,
            None,
        ),
        (
            "epoll_ctl",
            b"\x49\x89\xca\xb8\xe9\0\0\0\x0f\x05\x48\x3d\x01\xf0\xff\xff",
            8,
            None,
        ),
    ];
    give_way(&starts);
}

#[test]
fn unknown_starts_and_short_ones_are_left_alone() {
    // A call, a near jump (somebody else's patch), an int3 of a debugger, and known ones that end too soon.
    for code in [
        &b"\xe8\0\0\0\0\xc3"[..],
        b"\xe9\0\0\0\0\xc3",
        b"\xcc\x3d\x91\x32\x0e\0\0",
        b"\x80\x3d\x91\x32",
        b"\x53\x48\x83",
        b"",
    ] {
        assert_eq!(displaced(code), None, "{code:x?}");
    }
}

#[test]
fn each_of_them_leads_here_and_its_original_is_elsewhere() {
    assert!(originals::is_frozen());
    if cfg!(not(target_arch = "x86_64")) {
        return;
    }
    for name in NAMES {
        assert_ne!(target_of(name), 0, "{name:?}");
        let entry = sys::address_of(name);
        assert_ne!(entry, 0, "{name:?}");
        let entry = std::ptr::with_exposed_provenance_mut(entry);
        assert_ne!(originals::original(entry), entry, "{name:?}");
    }
    assert!(refused::is_none());
}
