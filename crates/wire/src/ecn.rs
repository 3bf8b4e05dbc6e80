//! The two ECN bits of an IP header (RFC 3168 §5), the same in IPv4 and IPv6.

/// What the sender allows and what the network says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Ecn {
    /// Not ECN-capable: congestion is told by dropping the packet.
    #[default]
    NotEct = 0,
    /// ECN-capable, for low-latency queues (RFC 9331).
    Ect1 = 1,
    /// ECN-capable.
    Ect0 = 2,
    /// A router on the way met congestion.
    Ce = 3,
}

impl Ecn {
    /// The lower bits of the field that was called type of service, or traffic class.
    #[must_use]
    pub const fn from_tos(tos: u8) -> Ecn {
        match tos & 3 {
            0 => Ecn::NotEct,
            1 => Ecn::Ect1,
            2 => Ecn::Ect0,
            _ => Ecn::Ce,
        }
    }

    /// `tos` with these bits.
    #[must_use]
    pub const fn in_tos(self, tos: u8) -> u8 {
        tos & !3 | self as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_codepoint_comes_back_and_leaves_the_rest_alone() {
        for ecn in [Ecn::NotEct, Ecn::Ect1, Ecn::Ect0, Ecn::Ce] {
            assert_eq!(Ecn::from_tos(ecn.in_tos(0xff)), ecn);
            assert_eq!(ecn.in_tos(0xff) & !3, 0xfc);
        }
    }
}
