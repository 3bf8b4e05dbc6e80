//! The name of a socket: an index into the engine's table and the generation of that entry.
//!
//! A name whose generation is old belongs to a socket that is gone; both sides drop what carries it.

/// Names a socket of one engine, across all its programs and for all time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct SocketId {
    /// Entry in the engine's socket table.
    pub index: u32,
    /// How often that entry has been used; never 0.
    pub generation: u32,
}

impl SocketId {
    /// Makes a name; `None` when the generation is 0, which no socket has.
    #[must_use]
    pub fn new(index: u32, generation: u32) -> Option<SocketId> {
        (generation != 0).then_some(SocketId { index, generation })
    }

    /// The name as it stands in descriptors and headers; never 0.
    #[must_use]
    pub fn to_bits(self) -> u64 {
        u64::from(self.index) | (u64::from(self.generation) << 32)
    }

    /// Reads a name back; `None` for bits that name no socket.
    #[must_use]
    pub fn from_bits(bits: u64) -> Option<SocketId> {
        SocketId::new(crate::descriptor::low(bits), crate::descriptor::high(bits))
    }
}

#[cfg(test)]
mod tests {
    use super::SocketId;

    #[test]
    fn bits_name_the_same_socket_and_zero_names_none() {
        let id = SocketId::new(7, 9).unwrap();
        assert_eq!(SocketId::from_bits(id.to_bits()), Some(id));
        assert_eq!(SocketId::from_bits(0), None);
        assert_eq!(SocketId::from_bits(12), None);
    }
}
