//! bpf(2): one structure per command, as `union bpf_attr` of linux/bpf.h lays it out. The kernel takes a
//! shorter structure than its own for one whose rest is zero, so older commands need no newer fields.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

use crate::Instruction;

/// `enum bpf_cmd`.
const MAP_CREATE: libc::c_int = 0;
const MAP_LOOKUP_ELEM: libc::c_int = 1;
const MAP_UPDATE_ELEM: libc::c_int = 2;
const MAP_DELETE_ELEM: libc::c_int = 3;
const PROG_LOAD: libc::c_int = 5;
const PROG_TEST_RUN: libc::c_int = 10;
const OBJ_GET_INFO_BY_FD: libc::c_int = 15;
const RAW_TRACEPOINT_OPEN: libc::c_int = 17;
const MAP_LOOKUP_AND_DELETE_ELEM: libc::c_int = 21;
const LINK_CREATE: libc::c_int = 28;
const LINK_UPDATE: libc::c_int = 29;

/// `enum bpf_attach_type`.
pub(crate) const ATTACH_XDP: u32 = 37;
/// linux/if_link.h: XDP_FLAGS_SKB_MODE and XDP_FLAGS_DRV_MODE.
pub(crate) const XDP_GENERIC: u32 = 1 << 1;
pub(crate) const XDP_NATIVE: u32 = 1 << 2;

/// The helpers that our programs call ask for no licence; the kernel asks for one all the same.
const LICENCE: &std::ffi::CStr = c"Dual MIT/GPL";
const NAME_BYTES: usize = 16;

#[repr(C)]
struct MapCreate {
    kind: u32,
    key_bytes: u32,
    value_bytes: u32,
    entries: u32,
    flags: u32,
    inner_map: u32,
    numa_node: u32,
    name: [u8; NAME_BYTES],
}

#[repr(C)]
struct Element {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
struct ProgLoad {
    kind: u32,
    count: u32,
    instructions: u64,
    licence: u64,
    log_level: u32,
    log_bytes: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; NAME_BYTES],
    interface: u32,
    attach_type: u32,
}

#[repr(C)]
struct TestRun {
    program: u32,
    verdict: u32,
    data_in_bytes: u32,
    data_out_bytes: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration_ns: u32,
}

#[repr(C)]
struct LinkCreate {
    program: u32,
    interface: u32,
    attach_type: u32,
    flags: u32,
    relative: u32,
    padding: u32,
    revision: u64,
}

#[repr(C)]
struct LinkUpdate {
    link: u32,
    program: u32,
    flags: u32,
    old_program: u32,
}

#[repr(C)]
struct RawTracepoint {
    name: u64,
    program: u32,
    padding: u32,
}

#[repr(C)]
struct Info {
    fd: u32,
    bytes: u32,
    info: u64,
}

/// The start of `struct bpf_link_info`, with the union's member of both XDP and TCX.
#[repr(C)]
#[derive(Default)]
struct LinkInfo {
    kind: u32,
    id: u32,
    program: u32,
    padding: u32,
    interface: u32,
    attach_type: u32,
}

/// What the kernel's structures hold a pointer or a descriptor in.
fn address_of<T>(at: *const T) -> u64 {
    u64::try_from(at.addr()).expect("invariant: addresses have 64 bits at most")
}

fn number(fd: BorrowedFd<'_>) -> u32 {
    u32::try_from(fd.as_raw_fd()).expect("invariant: descriptors are not negative")
}

fn length(bytes: usize) -> io::Result<u32> {
    u32::try_from(bytes).map_err(|_| io::Error::from_raw_os_error(libc::E2BIG))
}

fn named(name: &str) -> [u8; NAME_BYTES] {
    let mut bytes = [0; NAME_BYTES];
    // The last byte stays zero.
    for (slot, byte) in bytes.iter_mut().take(NAME_BYTES - 1).zip(name.bytes()) {
        *slot = byte;
    }
    bytes
}

/// Makes the call. `T` must be one of the structures above, for the command that it is named after, and what
/// it points at must live until this returns and be as long as it says; every caller below sees to it.
fn bpf<T>(command: libc::c_int, attributes: &mut T) -> io::Result<libc::c_int> {
    // SAFETY: pointer and size describe `attributes`, a structure of plain numbers that the kernel reads and
    // for some commands writes. What its addresses name is the callers' duty, see there.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            std::ptr::from_mut(attributes),
            size_of::<T>(),
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    libc::c_int::try_from(result).map_err(|_| io::Error::from_raw_os_error(libc::EPROTO))
}

/// As [`bpf`] for a command that answers with a new descriptor; bpf(2) opens them all close-on-exec.
fn bpf_fd<T>(command: libc::c_int, attributes: &mut T) -> io::Result<OwnedFd> {
    let fd = bpf(command, attributes)?;
    // SAFETY: the kernel has just made this descriptor for us, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

pub(crate) fn create_map(
    kind: u32,
    [key_bytes, value_bytes, entries, flags]: [u32; 4],
    name: &str,
) -> io::Result<OwnedFd> {
    let mut attributes = MapCreate {
        kind,
        key_bytes,
        value_bytes,
        entries,
        flags,
        inner_map: 0,
        numa_node: 0,
        name: named(name),
    };
    bpf_fd(MAP_CREATE, &mut attributes)
}

/// `key` and `value` have the map's sizes: checked in `map.rs`. Of the value the kernel writes only in a
/// look-up, where the address comes from a unique borrow.
fn element(map: BorrowedFd<'_>, key: &[u8], value: u64) -> Element {
    Element {
        map: number(map),
        padding: 0,
        // A map of values without keys wants no address.
        key: if key.is_empty() {
            0
        } else {
            address_of(key.as_ptr())
        },
        value,
        flags: 0,
    }
}

pub(crate) fn update(map: BorrowedFd<'_>, key: &[u8], value: &[u8]) -> io::Result<()> {
    let mut attributes = element(map, key, address_of(value.as_ptr()));
    bpf(MAP_UPDATE_ELEM, &mut attributes).map(drop)
}

pub(crate) fn look_up(map: BorrowedFd<'_>, key: &[u8], value: &mut [u8]) -> io::Result<()> {
    let mut attributes = element(map, key, address_of(value.as_mut_ptr()));
    bpf(MAP_LOOKUP_ELEM, &mut attributes).map(drop)
}

pub(crate) fn delete(map: BorrowedFd<'_>, key: &[u8]) -> io::Result<()> {
    bpf(MAP_DELETE_ELEM, &mut element(map, key, 0)).map(drop)
}

pub(crate) fn pop(map: BorrowedFd<'_>, value: &mut [u8]) -> io::Result<()> {
    let value = address_of(value.as_mut_ptr());
    bpf(MAP_LOOKUP_AND_DELETE_ELEM, &mut element(map, &[], value)).map(drop)
}

/// `kind` is type, attach type and flags; with an empty `log` the verifier says nothing.
pub(crate) fn load(
    kind: [u32; 3],
    name: &str,
    instructions: &[Instruction],
    log: &mut [u8],
) -> io::Result<OwnedFd> {
    let log_bytes = length(log.len())?;
    let mut attributes = ProgLoad {
        kind: kind[0],
        count: length(instructions.len())?,
        instructions: address_of(instructions.as_ptr()),
        licence: address_of(LICENCE.as_ptr()),
        log_level: u32::from(log_bytes != 0),
        log_bytes,
        log: if log_bytes == 0 {
            0
        } else {
            address_of(log.as_mut_ptr())
        },
        kernel_version: 0,
        flags: kind[2],
        name: named(name),
        interface: 0,
        attach_type: kind[1],
    };
    bpf_fd(PROG_LOAD, &mut attributes)
}

/// The program's verdict, and how many bytes of `after` hold the frame.
pub(crate) fn test_run(
    program: BorrowedFd<'_>,
    frame: &[u8],
    after: &mut [u8],
) -> io::Result<(u32, usize)> {
    let mut attributes = TestRun {
        program: number(program),
        verdict: 0,
        data_in_bytes: length(frame.len())?,
        data_out_bytes: length(after.len())?,
        data_in: address_of(frame.as_ptr()),
        data_out: address_of(after.as_mut_ptr()),
        repeat: 1,
        duration_ns: 0,
    };
    bpf(PROG_TEST_RUN, &mut attributes)?;
    let len = usize::try_from(attributes.data_out_bytes).unwrap_or(0);
    Ok((attributes.verdict, len.min(after.len())))
}

pub(crate) fn create_link(
    program: BorrowedFd<'_>,
    interface: u32,
    attach_type: u32,
    flags: u32,
) -> io::Result<OwnedFd> {
    let mut attributes = LinkCreate {
        program: number(program),
        interface,
        attach_type,
        flags,
        relative: 0,
        padding: 0,
        revision: 0,
    };
    bpf_fd(LINK_CREATE, &mut attributes)
}

pub(crate) fn update_link(link: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    let mut attributes = LinkUpdate {
        link: number(link),
        program: number(program),
        flags: 0,
        old_program: 0,
    };
    bpf(LINK_UPDATE, &mut attributes).map(drop)
}

pub(crate) fn open_raw_tracepoint(
    program: BorrowedFd<'_>,
    name: &std::ffi::CStr,
) -> io::Result<OwnedFd> {
    let mut attributes = RawTracepoint {
        name: address_of(name.as_ptr()),
        program: number(program),
        padding: 0,
    };
    bpf_fd(RAW_TRACEPOINT_OPEN, &mut attributes)
}

/// Number of the interface that an XDP or TCX link is attached to; 0: none any more.
pub(crate) fn interface_of_link(link: BorrowedFd<'_>) -> io::Result<u32> {
    let mut info = LinkInfo::default();
    let mut attributes = Info {
        fd: number(link),
        bytes: length(size_of::<LinkInfo>())?,
        info: address_of(&raw mut info),
    };
    bpf(OBJ_GET_INFO_BY_FD, &mut attributes)?;
    Ok(info.interface)
}

pub(crate) fn attach_to_socket(socket: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    let program = program.as_raw_fd();
    let len = libc::socklen_t::try_from(size_of_val(&program)).expect("invariant: four bytes");
    // SAFETY: pointer and length describe `program`, which outlives the call; the kernel only reads.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_BPF,
            (&raw const program).cast(),
            len,
        )
    };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}
