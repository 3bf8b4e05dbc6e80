//! Leads the entries of libc's functions to this library, once, when it is loaded: nothing here allocates or locks.
//!
//! For each function a stub near libc has a jump to the function of this library, and behind it the displaced
//! instructions with a jump to where they were followed: the original, for those descriptors that are not ours.

#![allow(unsafe_code)]

use std::ffi::{CStr, c_int, c_void};
use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{ptr, slice};

use libc::{size_t, ssize_t};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};

use super::refused::{Refusal, refuse};
use super::{Displaced, JUMP_BYTES, displaced, target_of};
use crate::abi::exports;
use crate::abi::symbol::Symbol;
use crate::abi::symbol::originals::{self, NAMES};
use crate::calls::{close, transfer};
use crate::fd_table::descriptors::{is_kept_open, is_tracked};
use crate::outcome::{at_the_edge, count};
use crate::process;

/// The longest function start that is looked at: no pattern reaches beyond.
const LOOKED_AT: usize = 16;
/// Bytes of a stub: two far jumps and the displaced instructions.
const STUB: usize = 64;
/// Where in a stub the original stands.
const ORIGINAL_AT: usize = 16;
const ARENA: usize = 4096;
const PAGE: usize = 4096;
const _: () = assert!(STUB * NAMES.len() <= ARENA);
/// How far apart the places are that are asked for memory near libc, and how many of them.
const STRIDE: usize = 16 << 20;
const STRIDES: usize = 64;

/// Replaces what can be replaced. Runs once, when the library is loaded; a program that shall have the kernel only
/// (`SHUNT_POLICY`) keeps its libc as it is.
pub fn replace() {
    if cfg!(target_arch = "x86_64") && !is_kernel_only() {
        replace_all();
    }
    originals::freeze();
}

fn is_kernel_only() -> bool {
    let kept = hostif::environment::kept();
    kept.and_then(|kept| kept.value(hostif::POLICY_VARIABLE))
        .is_some_and(|policy| policy == "kernel-only")
}

/// A function of libc that may be replaced.
#[derive(Clone, Copy)]
struct Found {
    entry: usize,
    displaced: Displaced,
    code: [u8; LOOKED_AT],
}

fn replace_all() {
    let Some(libc) = object_of(address_of(c"gnu_get_libc_version")) else {
        return;
    };
    let mut found: [Option<Found>; NAMES.len()] = [None; NAMES.len()];
    for (place, name) in NAMES.iter().enumerate() {
        let entry = address_of(name);
        // Of another library behind this one, which calls libc's for itself: it would come back here.
        if !libc.contains(&entry) {
            continue;
        }
        found[place] = look_at(entry);
        if found[place].is_none() {
            refuse(place, Refusal::Instructions);
        }
    }
    let Some(arena) = arena_near(libc.start) else {
        return refuse(0, Refusal::Memory);
    };
    for (place, found) in found.iter_mut().enumerate() {
        let stub = arena + place * STUB;
        let is_written =
            found.is_some_and(|found| write_stub(stub, &found, target_of(NAMES[place])));
        if !is_written {
            *found = None;
        }
    }
    // SAFETY: the arena is this module's own, and nothing runs in it yet.
    let executable = unsafe {
        rustix::mm::mprotect(
            ptr::with_exposed_provenance_mut(arena),
            ARENA,
            MprotectFlags::READ | MprotectFlags::EXEC,
        )
    };
    if executable.is_err() {
        return refuse(0, Refusal::Memory);
    }
    for (place, one) in found.iter().enumerate() {
        let Some(page) = one.map(|found| page_of(found.entry)) else {
            continue;
        };
        let is_on_page = |one: &Option<Found>| one.is_some_and(|one| page_of(one.entry) == page);
        if !found[..place].iter().any(is_on_page) {
            lead_page(page, &found, arena);
        }
    }
}

/// Leads the functions that begin on one page of libc to their stubs. Two calls of mprotect(2) for each page, and not for
/// each function: every program pays for them.
fn lead_page(page: usize, found: &[Option<Found>; NAMES.len()], arena: usize) {
    let is_writable = protect(page, MprotectFlags::WRITE);
    for (place, found) in found.iter().enumerate() {
        let Some(found) = found.filter(|found| page_of(found.entry) == page) else {
            continue;
        };
        let stub = arena + place * STUB;
        originals::note(place, found.entry, stub + ORIGINAL_AT);
        if !(is_writable && lead(&found, stub)) {
            originals::forget(place);
            refuse(place, Refusal::Memory);
        }
    }
    if is_writable {
        protect(page, MprotectFlags::empty());
    }
}

fn page_of(entry: usize) -> usize {
    entry & !(PAGE - 1)
}

/// Makes a page of libc's code readable, executable and what else is asked for; whether the system allows it.
fn protect(page: usize, more: MprotectFlags) -> bool {
    let page = ptr::with_exposed_provenance_mut(page);
    let flags = MprotectFlags::READ | MprotectFlags::EXEC | more;
    // SAFETY: the page with the first eight bytes (they are aligned) of a function stays readable and executable all the
    // time. The process makes it its own by the first write (MAP_PRIVATE).
    unsafe { rustix::mm::mprotect(page, PAGE, flags) }.is_ok()
}

/// Where a name is found behind this library, or 0.
pub(super) fn address_of(name: &CStr) -> usize {
    // SAFETY: a NUL-terminated name.
    unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) }.expose_provenance()
}

/// Where the object lies that an address belongs to. dladdr(3) would look for a symbol too, among all of libc's.
fn object_of(address: usize) -> Option<Range<usize>> {
    let mut sought = Sought {
        address,
        found: None,
    };
    // SAFETY: `look` gets what it takes the pointer for.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut sought).cast()) };
    sought.found
}

struct Sought {
    address: usize,
    found: Option<Range<usize>>,
}

/// For dl_iterate_phdr(3).
///
/// # Safety
/// `info` is what that function gives, `sought` a [`Sought`].
unsafe extern "C" fn look(info: *mut libc::dl_phdr_info, _: size_t, sought: *mut c_void) -> c_int {
    // SAFETY: the caller's contract; an object has as many headers as it says.
    let (info, sought, headers) = unsafe {
        let (info, sought) = (&*info, &mut *sought.cast::<Sought>());
        let headers = slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into());
        (info, sought, headers)
    };
    let at = |offset: u64| usize::try_from(info.dlpi_addr.wrapping_add(offset)).unwrap_or_default();
    let loaded = headers
        .iter()
        .filter(|header| header.p_type == libc::PT_LOAD);
    let start = loaded.clone().map(|header| at(header.p_vaddr)).min();
    let end = loaded
        .map(|header| at(header.p_vaddr + header.p_memsz))
        .max();
    let range = start.unwrap_or_default()..end.unwrap_or_default();
    let is_it = range.contains(&sought.address);
    if is_it {
        sought.found = Some(range);
    }
    is_it.into()
}

/// A function that begins with known instructions, aligned so that one store replaces its first ones.
fn look_at(entry: usize) -> Option<Found> {
    if !entry.is_multiple_of(size_of::<u64>()) {
        return None;
    }
    let mut code = [0; LOOKED_AT];
    // SAFETY: the address of a function of libc, whose code is readable; the shortest here has more than 16 bytes.
    unsafe {
        ptr::copy_nonoverlapping(
            ptr::with_exposed_provenance(entry),
            code.as_mut_ptr(),
            LOOKED_AT,
        );
    }
    let displaced = displaced(&code)?;
    Some(Found {
        entry,
        displaced,
        code,
    })
}

/// Writable memory from where a near jump reaches all of libc.
fn arena_near(base: usize) -> Option<usize> {
    (1..=STRIDES).find_map(|n| {
        let wish = base.checked_sub(n * STRIDE)?;
        // SAFETY: a new mapping, at a place where nothing is, or none.
        let arena = unsafe {
            rustix::mm::mmap_anonymous(
                ptr::with_exposed_provenance_mut(wish),
                ARENA,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::FIXED_NOREPLACE,
            )
        };
        Some(arena.ok()?.expose_provenance())
    })
}

/// `jmp *0(%rip)` and its target.
fn far_jump(target: usize) -> [u8; 14] {
    let mut jump = [0xff, 0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    jump[6..].copy_from_slice(&target.to_le_bytes());
    jump
}

/// Writes the stub of a function; whether that can be done.
fn write_stub(stub: usize, found: &Found, target: usize) -> bool {
    let Displaced { len, relative } = found.displaced;
    let mut bytes = [0_u8; STUB];
    bytes[..14].copy_from_slice(&far_jump(target));
    let mut code = found.code;
    if let Some((at, end)) = relative {
        let Ok(word) = <[u8; 4]>::try_from(&code[at..at + 4]) else {
            return false;
        };
        let wanted = (found.entry + end).wrapping_add_signed(i32::from_le_bytes(word) as isize);
        let Some(offset) = near(stub + ORIGINAL_AT + end, wanted) else {
            return false;
        };
        code[at..at + 4].copy_from_slice(&offset.to_le_bytes());
    }
    bytes[ORIGINAL_AT..ORIGINAL_AT + len].copy_from_slice(&code[..len]);
    let back = far_jump(found.entry + len);
    bytes[ORIGINAL_AT + len..ORIGINAL_AT + len + back.len()].copy_from_slice(&back);
    // SAFETY: a stub of the arena, which is mapped writable and used by nobody yet.
    unsafe {
        ptr::copy_nonoverlapping(bytes.as_ptr(), ptr::with_exposed_provenance_mut(stub), STUB);
    }
    true
}

/// The distance of a target from the end of an instruction, where 32 bits hold it.
fn near(end: usize, target: usize) -> Option<i32> {
    i32::try_from(target.wrapping_sub(end).cast_signed()).ok()
}

/// Puts a jump to the stub at the entry of the function, whose page is writable; whether it reaches there.
fn lead(found: &Found, stub: usize) -> bool {
    let Some(offset) = near(found.entry + JUMP_BYTES, stub) else {
        return false;
    };
    let mut word = [0; size_of::<u64>()];
    word.copy_from_slice(&found.code[..size_of::<u64>()]);
    word[0] = 0xe9;
    word[1..JUMP_BYTES].copy_from_slice(&offset.to_le_bytes());
    // SAFETY: one store of aligned memory replaces an instruction by another, so that whoever calls the function
    // meanwhile finds either.
    unsafe {
        AtomicU64::from_ptr(ptr::with_exposed_provenance_mut(found.entry))
            .store(u64::from_le_bytes(word), Ordering::SeqCst);
    }
    true
}

/// In place of a function of libc that is no cancellation point (pthreads(7)).
macro_rules! nocancel {
    ($name:literal, $concerned:expr => $serve:expr, ($($argument:ident: $type:ty),*) -> $ret:ty) => {{
        static REAL: Symbol = Symbol::new($name);
        let served = if $concerned { at_the_edge(|| $serve) } else { None };
        match (served, REAL.address()) {
            (Some(result), _) => result,
            (None, Some(address)) => {
                // SAFETY: libc's function of this name has this signature; only its entry leads here.
                unsafe {
                    let function: unsafe extern "C" fn($($type),*) -> $ret = std::mem::transmute(address);
                    function($($argument),*)
                }
            }
            (None, None) => -1,
        }
    }};
}

/// As libc's read without cancellation.
///
/// # Safety
/// `buf` has `len` writable bytes.
pub unsafe extern "C" fn read_nocancel(fd: c_int, buf: *mut c_void, len: size_t) -> ssize_t {
    nocancel!(c"__read_nocancel", is_tracked(fd) => {
        // SAFETY: the caller's contract.
        let target = unsafe { crate::sys::bytes_mut(buf, len) };
        Ok(transfer::read(fd, &mut [IoSliceMut::new(target)])?.map(count))
    }, (fd: c_int, buf: *mut c_void, len: size_t) -> ssize_t)
}

/// As libc's write without cancellation.
///
/// # Safety
/// `buf` has `len` readable bytes.
pub unsafe extern "C" fn write_nocancel(fd: c_int, buf: *const c_void, len: size_t) -> ssize_t {
    nocancel!(c"__write_nocancel", is_tracked(fd) => {
        // SAFETY: the caller's contract.
        let bytes = unsafe { crate::sys::bytes(buf, len) };
        Ok(transfer::send(fd, &[IoSlice::new(bytes)], 0)?.map(count))
    }, (fd: c_int, buf: *const c_void, len: size_t) -> ssize_t)
}

/// As libc's close without cancellation: fclose(3).
///
/// # Safety
/// None.
pub unsafe extern "C" fn close_nocancel(fd: c_int) -> c_int {
    nocancel!(c"__close_nocancel", is_tracked(fd) || is_kept_open(fd) => {
        process::look_for_borrower();
        close::close(fd)
    }, (fd: c_int) -> c_int)
}

/// As libc's dup2, called by libc itself: freopen(3), daemon(3), login_tty(3), and posix_spawn(3) in a child that runs in its
/// parent's memory.
///
/// # Safety
/// None.
pub unsafe extern "C-unwind" fn dup2(old: c_int, new: c_int) -> c_int {
    look_for_borrower_of(old, new);
    // SAFETY: no preconditions.
    unsafe { exports::dup2(old, new) }
}

/// As libc's dup3, likewise.
///
/// # Safety
/// None.
pub unsafe extern "C-unwind" fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int {
    look_for_borrower_of(old, new);
    // SAFETY: no preconditions.
    unsafe { exports::dup3(old, new, flags) }
}

/// Asks who calls only where it matters to this library.
fn look_for_borrower_of(old: c_int, new: c_int) {
    if is_tracked(old) || is_tracked(new) || is_kept_open(new) {
        process::look_for_borrower();
    }
}
