//! TCP_ZEROCOPY_RECEIVE (linux/tcp.h). An engine's bytes lie in no page that a program can be given: nothing is mapped, and all
//! that waits is to be read, as Linux says of bytes that do not fill a page (`tcp_zerocopy_receive`).

use rustix::io::Errno;
use switch::backing;

use crate::calls::transfer::Call;
use switch::readiness::{Phase, RDHUP};

/// Level and name.
pub const ZEROCOPY_RECEIVE: (i32, i32) = (libc::IPPROTO_TCP, libc::TCP_ZEROCOPY_RECEIVE);

/// Where the fields of `struct tcp_zerocopy_receive` are, of four bytes each.
mod at {
    pub const LENGTH: usize = 8;
    pub const TO_READ: usize = 12;
    pub const WAITING: usize = 16;
    pub const ERROR: usize = 20;
}

/// The answer; `None`: the socket has no peer, and the kernel says what there is to say.
pub fn receive(call: &Call<'_>, asked: Vec<u8>) -> Result<Option<Vec<u8>>, Errno> {
    let stream = call.stream();
    if stream.phase() != Phase::Connected {
        return Ok(None);
    }
    let mut value = asked;
    let wanted = number(&value, at::LENGTH);
    // It finds what is wrong with the structure, and no bytes.
    let len = backing::option(
        call.fd(),
        ZEROCOPY_RECEIVE.0,
        ZEROCOPY_RECEIVE.1,
        &mut value,
    )?;
    value.truncate(len);
    let waiting = u32::try_from(stream.queued_bytes()).unwrap_or(u32::MAX);
    if waiting == 0 && call.events() & RDHUP != 0 {
        return Err(Errno::IO);
    }
    put(&mut value, at::LENGTH, 0);
    put(&mut value, at::TO_READ, waiting.min(wanted.max(PAGE)));
    put(&mut value, at::WAITING, waiting);
    if len > at::ERROR {
        let error = stream.take_error().map_or(0, Errno::raw_os_error);
        put(&mut value, at::ERROR, error.cast_unsigned());
    }
    Ok(Some(value))
}

/// Less than that is told whatever was asked for.
const PAGE: u32 = 4096;

fn number(value: &[u8], at: usize) -> u32 {
    let bytes = value.get(at..).and_then(|value| value.first_chunk());
    bytes.map_or(0, |bytes| u32::from_ne_bytes(*bytes))
}

/// The structure may be an older one, that has no such field.
fn put(value: &mut [u8], at: usize, number: u32) {
    if let Some(field) = value.get_mut(at..at + 4) {
        field.copy_from_slice(&number.to_ne_bytes());
    }
}
