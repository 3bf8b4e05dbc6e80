//! The functions of `shunt.h` on one socket: pointers of C become slices and addresses here, and pieces of a window are
//! kept from one call to the next. Those on many at once are in `many/ffi.rs`; nothing else is unsafe.
//!
//! A null pointer is `-EFAULT` where something is behind it, a bad handle `-EBADF`. That other pointers are good for
//! the lengths beside them is the caller's promise, as with any C function.
#![allow(unsafe_code)]
#![allow(clippy::missing_safety_doc)] // the header says what is required of each pointer

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr::{self, NonNull};
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};

use client::Errno;
use client::address::{self, Family, Name};
use native::{Borrowed, ReceiveHalf, Reserved, SendHalf, to_errno};

use crate::calls::{self, Outcome};
use crate::table;

/// `struct iovec` of uio.h.
#[repr(C)]
pub struct Span {
    start: *mut c_void,
    len: usize,
}

/// A half, and a piece of its window that C holds.
pub struct BorrowedPiece<H, P> {
    half: NonNull<H>,
    piece: Option<P>,
}

/// The sending direction of a stream.
pub type Sending = BorrowedPiece<SendHalf, Reserved<'static>>;
/// The receiving direction.
pub type Receiving = BorrowedPiece<ReceiveHalf, Borrowed<'static>>;

// SAFETY: it owns the half and the piece of it, and both may move between threads.
unsafe impl<H: Send, P: Send> Send for BorrowedPiece<H, P> {}

impl<H: 'static, P> BorrowedPiece<H, P> {
    /// With no piece out.
    pub fn new(half: H) -> BorrowedPiece<H, P> {
        BorrowedPiece {
            half: NonNull::from(Box::leak(Box::new(half))),
            piece: None,
        }
    }

    /// The half. `None`: a piece of it is out.
    pub fn half(&mut self) -> Option<&mut H> {
        if self.piece.is_some() {
            return None;
        }
        // SAFETY: the box lives as long as this value, and without a piece nobody else refers to it.
        Some(unsafe { self.half.as_mut() })
    }

    /// Takes the piece back.
    pub fn take(&mut self) -> Option<P> {
        self.piece.take()
    }

    fn lend(&mut self, make: impl FnOnce(&'static mut H) -> Outcome<Option<P>>) -> Outcome<bool> {
        if self.piece.is_some() {
            return Err(Errno::BUSY);
        }
        // SAFETY: the box outlives the piece, which `take` and `drop` end before anything else refers to it.
        let half = unsafe { &mut *self.half.as_ptr() };
        self.piece = make(half)?;
        Ok(self.piece.is_some())
    }
}

impl<H, P> Drop for BorrowedPiece<H, P> {
    fn drop(&mut self) {
        self.piece = None;
        // SAFETY: the pointer came from a box in `new`, and nothing refers to it any more.
        drop(unsafe { Box::from_raw(self.half.as_ptr()) });
    }
}

/// Return types of C, which say failure with a negative errno.
pub trait Returned {
    /// That failure.
    fn failed(errno: Errno) -> Self;
}

impl Returned for c_int {
    fn failed(errno: Errno) -> c_int {
        -errno.raw_os_error()
    }
}

impl Returned for i64 {
    fn failed(errno: Errno) -> i64 {
        -i64::from(errno.raw_os_error())
    }
}

impl Returned for isize {
    fn failed(errno: Errno) -> isize {
        isize::try_from(-errno.raw_os_error()).unwrap_or(-1)
    }
}

/// The edge: a failure becomes a negative errno, and so does a panic, which would be a bug of ours.
pub fn edge<T: Returned>(call: impl FnOnce() -> Outcome<T>) -> T {
    let result = catch_unwind(AssertUnwindSafe(call)).unwrap_or(Err(Errno::IO));
    result.unwrap_or_else(T::failed)
}

/// As `edge` takes it.
pub fn done(result: Outcome<()>) -> Outcome<c_int> {
    result.map(|()| 0)
}

/// As `edge` takes it; EOVERFLOW.
pub fn count<T: TryFrom<usize>>(result: Outcome<usize>) -> Outcome<T> {
    T::try_from(result?).map_err(|_| Errno::OVERFLOW)
}

/// Memory that C lends for reading.
///
/// # Safety
/// As of the function that C called: `start` is null or good for `len` values for the length of the call.
pub unsafe fn memory<'a, T>(start: *const T, len: usize) -> Outcome<&'a [T]> {
    check(start, len)?;
    if len == 0 {
        return Ok(&[]);
    }
    // SAFETY: the caller's.
    Ok(unsafe { core::slice::from_raw_parts(start, len) })
}

/// Memory that C lends for writing.
///
/// # Safety
/// As of [`memory`], and nobody else uses it meanwhile.
pub unsafe fn memory_mut<'a, T>(start: *mut T, len: usize) -> Outcome<&'a mut [T]> {
    check(start.cast_const(), len)?;
    if len == 0 {
        return Ok(&mut []);
    }
    // SAFETY: the caller's.
    Ok(unsafe { core::slice::from_raw_parts_mut(start, len) })
}

/// What no slice can be is refused.
fn check<T>(start: *const T, len: usize) -> Outcome<()> {
    let bytes = len.checked_mul(size_of::<T>()).ok_or(Errno::INVAL)?;
    isize::try_from(bytes).map_err(|_| Errno::INVAL)?;
    if len > 0 && (start.is_null() || !start.is_aligned()) {
        return Err(Errno::FAULT);
    }
    Ok(())
}

/// # Safety
/// As of [`memory`], with bytes.
unsafe fn name_in(start: *const c_void, len: u32) -> Outcome<SocketAddr> {
    if start.is_null() {
        return Err(Errno::FAULT);
    }
    let len = usize::try_from(len).map_err(|_| Errno::INVAL)?;
    // SAFETY: the caller's.
    let bytes = unsafe { memory(start.cast::<u8>(), len) }?;
    for family in [Family::V4, Family::V6] {
        if let Name::Ip(address) = address::parse(bytes, family)? {
            return Ok(address);
        }
    }
    Err(Errno::AFNOSUPPORT)
}

/// Writes an address as accept(2) does: cut to the room, and the whole length. Null: nobody asks.
///
/// # Safety
/// `start` is null or good for `*len` bytes, `len` is null or good.
unsafe fn name_out(address: SocketAddr, start: *mut c_void, len: *mut u32) -> Outcome<()> {
    if start.is_null() {
        return Ok(());
    }
    // SAFETY: the caller's.
    let len = unsafe { len.as_mut() }.ok_or(Errno::FAULT)?;
    let scope_id = match address {
        SocketAddr::V6(v6) => v6.scope_id(),
        SocketAddr::V4(_) => 0,
    };
    let emitted = address::emit(address, address::family(address), scope_id);
    let bytes = emitted.as_bytes();
    let room = usize::try_from(*len).map_err(|_| Errno::INVAL)?;
    // SAFETY: the caller's.
    let place = unsafe { memory_mut(start.cast::<u8>(), room) }?;
    let written = bytes.len().min(room);
    place[..written].copy_from_slice(&bytes[..written]);
    *len = u32::try_from(bytes.len()).map_err(|_| Errno::OVERFLOW)?;
    Ok(())
}

/// # Safety
/// `spans` is null or good for two.
unsafe fn spans_out<'a>(spans: *mut Span) -> Outcome<&'a mut [Span; 2]> {
    // SAFETY: the caller's.
    let spans = unsafe { memory_mut(spans, 2) }?;
    spans.try_into().map_err(|_| Errno::FAULT)
}

fn show(spans: &mut [Span; 2], parts: [(*mut u8, usize); 2]) {
    for (span, (start, len)) in spans.iter_mut().zip(parts) {
        span.start = if len == 0 {
            ptr::null_mut()
        } else {
            start.cast()
        };
        span.len = len;
    }
}

/// Exports functions of `shunt.h`: the text of each is what happens inside the edge.
macro_rules! exported {
    ($($(#[$doc:meta])* fn $name:ident($($argument:ident: $kind:ty),*) -> $returned:ty $body:block)*) => {$(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $kind),*) -> $returned {
            edge(|| $body)
        }
    )*};
}

pub(crate) use exported;

/// Version of the library, as text that lives for ever.
#[unsafe(no_mangle)]
pub extern "C" fn shunt_version() -> *const c_char {
    const TEXT: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(text) => text,
            Err(_) => c"",
        };
    TEXT.as_ptr()
}

exported! {
    /// See shunt.h.
    fn shunt_attach(name: *const c_char) -> i64 {
        if name.is_null() {
            return calls::attach(None);
        }
        // SAFETY: the header asks for a string that ends in a zero.
        let name = unsafe { CStr::from_ptr(name) };
        calls::attach(Some(name.to_str().map_err(|_| Errno::INVAL)?))
    }
    /// See shunt.h.
    fn shunt_close(handle: i64) -> c_int {
        done(calls::close(handle))
    }
    /// See shunt.h.
    fn shunt_connect(engine: i64, remote: *const c_void, len: u32, timeout_ms: c_int) -> i64 {
        // SAFETY: the header asks for it.
        let remote = unsafe { name_in(remote, len) }?;
        calls::connect(engine, remote, timeout_ms)
    }
    /// See shunt.h.
    fn shunt_connect_start(
        engine: i64, remote: *const c_void, len: u32, local: *const c_void, local_len: u32
    ) -> i64 {
        // SAFETY: the header asks for it.
        let remote = unsafe { name_in(remote, len) }?;
        let local = if local.is_null() {
            None
        } else {
            // SAFETY: as above.
            Some(unsafe { name_in(local, local_len) }?)
        };
        calls::connect_start(engine, remote, local)
    }
    /// See shunt.h.
    fn shunt_connect_outcome(socket: i64) -> c_int {
        done(calls::connect_outcome(socket))
    }
    /// See shunt.h.
    fn shunt_listen(engine: i64, local: *const c_void, len: u32, backlog: c_int) -> i64 {
        // SAFETY: the header asks for it.
        let local = unsafe { name_in(local, len) }?;
        calls::listen(engine, local, backlog)
    }
    /// See shunt.h.
    fn shunt_accept(listener: i64, peer: *mut c_void, len: *mut u32) -> i64 {
        let (socket, address) = calls::accept(listener)?;
        // SAFETY: the header asks for it.
        if let Err(errno) = unsafe { name_out(address, peer, len) } {
            let _ = calls::close(socket);
            return Err(errno);
        }
        Ok(socket)
    }
    /// See shunt.h.
    fn shunt_udp(engine: i64, local: *const c_void, len: u32) -> i64 {
        // SAFETY: the header asks for it.
        let local = unsafe { name_in(local, len) }?;
        calls::udp(engine, local)
    }
    /// See shunt.h.
    fn shunt_udp_connect(socket: i64, peer: *const c_void, len: u32) -> c_int {
        // SAFETY: the header asks for it.
        let peer = unsafe { name_in(peer, len) }?;
        done(calls::udp_connect(socket, peer))
    }
    /// See shunt.h.
    fn shunt_shutdown(socket: i64, how: c_int) -> c_int {
        done(calls::shutdown(socket, how))
    }
    /// See shunt.h.
    fn shunt_abort(socket: i64) -> c_int {
        done(calls::abort(socket))
    }
    /// See shunt.h.
    fn shunt_set_timeout(socket: i64, timeout_ms: c_int) -> c_int {
        done(calls::set_timeout(socket, timeout_ms))
    }
    /// See shunt.h.
    fn shunt_set_nodelay(socket: i64, on: c_int) -> c_int {
        done(calls::set_nodelay(socket, on != 0))
    }
    /// See shunt.h.
    fn shunt_local_name(socket: i64, name: *mut c_void, len: *mut u32) -> c_int {
        let address = calls::local_name(socket)?;
        // SAFETY: the header asks for it.
        done(unsafe { name_out(address, name, len) })
    }
    /// See shunt.h.
    fn shunt_peer_name(socket: i64, name: *mut c_void, len: *mut u32) -> c_int {
        let address = calls::peer_name(socket)?;
        // SAFETY: the header asks for it.
        done(unsafe { name_out(address, name, len) })
    }
    /// See shunt.h.
    fn shunt_send(socket: i64, bytes: *const c_void, len: usize) -> isize {
        // SAFETY: the header asks for it.
        let bytes = unsafe { memory(bytes.cast::<u8>(), len) }?;
        count(calls::send(socket, bytes))
    }
    /// See shunt.h.
    fn shunt_send_to(
        socket: i64, bytes: *const c_void, len: usize, to: *const c_void, to_len: u32
    ) -> isize {
        // SAFETY: the header asks for both.
        let (bytes, to) = unsafe { (memory(bytes.cast::<u8>(), len)?, name_in(to, to_len)?) };
        count(calls::send_to(socket, bytes, to))
    }
    /// See shunt.h.
    fn shunt_receive(socket: i64, bytes: *mut c_void, len: usize) -> isize {
        // SAFETY: the header asks for it.
        let bytes = unsafe { memory_mut(bytes.cast::<u8>(), len) }?;
        count(calls::receive(socket, bytes))
    }
    /// See shunt.h.
    fn shunt_receive_from(
        socket: i64, bytes: *mut c_void, len: usize, from: *mut c_void, from_len: *mut u32
    ) -> isize {
        // SAFETY: the header asks for it.
        let bytes = unsafe { memory_mut(bytes.cast::<u8>(), len) }?;
        let (received, source) = calls::receive_from(socket, bytes)?;
        // SAFETY: as above.
        unsafe { name_out(source, from, from_len) }?;
        count(Ok(received))
    }
    /// See shunt.h.
    fn shunt_reserve(socket: i64, max: usize, room: *mut Span) -> isize {
        // SAFETY: the header asks for it.
        let room = unsafe { spans_out(room) }?;
        let object = table::find(socket)?;
        let stream = object.stream()?;
        let mut sending = stream.inner.sending()?;
        let waits = stream.waits();
        sending.lend(|half| {
            let piece = if waits { half.reserve(max) } else { half.try_reserve(max) };
            piece.map(Some).map_err(|error| to_errno(&error))
        })?;
        let piece = sending.piece.as_mut().ok_or(Errno::IO)?;
        show(room, piece.slices().map(|part| (part.as_mut_ptr(), part.len())));
        count(Ok(piece.len()))
    }
    /// See shunt.h.
    fn shunt_commit(socket: i64, bytes: usize) -> c_int {
        done(calls::commit(socket, bytes))
    }
    /// See shunt.h.
    fn shunt_borrow(socket: i64, max: usize, bytes: *mut Span) -> isize {
        // SAFETY: the header asks for it.
        let bytes = unsafe { spans_out(bytes) }?;
        let object = table::find(socket)?;
        let stream = object.stream()?;
        let mut receiving = stream.inner.receiving()?;
        let waits = stream.waits();
        receiving.lend(|half| {
            let piece = if waits { half.borrow(max) } else { half.try_borrow(max) };
            piece.map_err(|error| to_errno(&error))
        })?;
        let Some(piece) = &receiving.piece else {
            show(bytes, [(ptr::null_mut(), 0); 2]);
            return Ok(0);
        };
        show(bytes, piece.slices().map(|part| (part.as_ptr().cast_mut(), part.len())));
        count(Ok(piece.len()))
    }
    /// See shunt.h.
    fn shunt_consume(socket: i64, bytes: usize) -> c_int {
        done(calls::consume(socket, bytes))
    }
    /// See shunt.h.
    fn shunt_readiness(socket: i64) -> c_int {
        c_int::try_from(calls::readiness(socket)?).map_err(|_| Errno::OVERFLOW)
    }
}
