//! Hash tables that a peer cannot fill at one place.

use core::hash::BuildHasher;
use siphasher::sip::SipHasher13;

#[derive(Clone, Debug)]
pub(crate) struct Keyed(pub(crate) SipHasher13);

impl BuildHasher for Keyed {
    type Hasher = SipHasher13;

    fn build_hasher(&self) -> SipHasher13 {
        self.0
    }
}
