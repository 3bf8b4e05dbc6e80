//! A hardware address for an end of a link that has none of its own.

use std::io;

use ::wire::ethernet;
use rustix::rand::{GetRandomFlags, getrandom};

/// A random address. IEEE 802 §8.4: bit 1 of the first octet marks a locally administered address, bit 0 a group.
///
/// # Errors
/// The system gives no random bytes.
pub fn random_address() -> io::Result<ethernet::Address> {
    let mut bytes = [0; 6];
    // getrandom(2): requests of up to 256 bytes are never cut short.
    getrandom(&mut bytes, GetRandomFlags::empty())?;
    bytes[0] = (bytes[0] | 0x02) & !0x01;
    Ok(ethernet::Address(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_local_ones_of_one_station_and_differ() {
        let [a, b] = [random_address().unwrap(), random_address().unwrap()];
        assert_ne!(a, b);
        assert_eq!([a.0[0] & 3, b.0[0] & 3], [2, 2]);
    }
}
