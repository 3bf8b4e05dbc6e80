//! What engines of one host say to each other of their connections' byte channels, as the bytes of a note. What cannot be parsed
//! is no message.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use hostif::LaneNews;
use nic::{CONTROL_MESSAGE_BYTES, ControlMessage};

const OFFER: u8 = 1;
const NEWS: u8 = 2;
/// Bytes of an address and a port.
const END_BYTES: usize = 18;
const ENDS_AT: usize = 8;
const _: () = assert!(ENDS_AT + 2 * END_BYTES <= CONTROL_MESSAGE_BYTES);

/// See the file's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelMessage {
    /// The connection between these ends may have this slot.
    Offer {
        /// The slot.
        slot: u32,
        /// The end of the engine that offers.
        acceptor: SocketAddr,
        /// The other end.
        opener: SocketAddr,
    },
    /// The connection with this slot has news for a program that waits.
    News {
        /// The slot.
        slot: u32,
        /// What the news is.
        news: LaneNews,
    },
}

fn put(bytes: &mut [u8], end: SocketAddr) {
    match end.ip() {
        IpAddr::V4(v4) => bytes[..4].copy_from_slice(&v4.octets()),
        IpAddr::V6(v6) => bytes[..16].copy_from_slice(&v6.octets()),
    }
    bytes[16..END_BYTES].copy_from_slice(&end.port().to_be_bytes());
}

fn end(bytes: &[u8], is_v6: bool) -> Option<SocketAddr> {
    let (address, port) = bytes.get(..END_BYTES)?.split_first_chunk::<16>()?;
    let [a, b, c, d, ..] = *address;
    let address = if is_v6 {
        Ipv6Addr::from(*address).into()
    } else {
        IpAddr::from(Ipv4Addr::new(a, b, c, d))
    };
    let port = u16::from_be_bytes(port.try_into().ok()?);
    Some(SocketAddr::new(address, port))
}

impl ChannelMessage {
    /// As a note.
    pub fn emit(&self) -> ControlMessage {
        let mut note = [0; CONTROL_MESSAGE_BYTES];
        let slot = match self {
            Self::Offer { slot, .. } | Self::News { slot, .. } => slot,
        };
        note[4..8].copy_from_slice(&slot.to_le_bytes());
        match self {
            Self::Offer {
                acceptor, opener, ..
            } => {
                note[..2].copy_from_slice(&[OFFER, u8::from(acceptor.is_ipv6())]);
                put(&mut note[ENDS_AT..], *acceptor);
                put(&mut note[ENDS_AT + END_BYTES..], *opener);
            }
            Self::News { news, .. } => note[..2].copy_from_slice(&[NEWS, news.code()]),
        }
        note
    }

    /// Reads a note; `None`: it is no such message.
    pub fn parse(note: &ControlMessage) -> Option<Self> {
        let [kind, small, _, _, a, b, c, d, ..] = *note;
        let slot = u32::from_le_bytes([a, b, c, d]);
        match (kind, small) {
            (OFFER, 0 | 1) => Some(Self::Offer {
                slot,
                acceptor: end(&note[ENDS_AT..], small == 1)?,
                opener: end(&note[ENDS_AT + END_BYTES..], small == 1)?,
            }),
            (NEWS, code) => Some(Self::News {
                slot,
                news: LaneNews::from_code(code)?,
            }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_note_says_what_was_said(slot: u32, ends: [(u128, u16); 2], is_v6: bool, code in 0..3_u8) {
            let ends = ends.map(|(address, port)| {
                let [a, b, c, d, ..] = address.to_be_bytes();
                let v4 = IpAddr::from([a, b, c, d]);
                let v6 = Ipv6Addr::from(address).into();
                SocketAddr::new(if is_v6 { v6 } else { v4 }, port)
            });
            let [acceptor, opener] = ends;
            let offer = ChannelMessage::Offer { slot, acceptor, opener };
            prop_assert_eq!(ChannelMessage::parse(&offer.emit()), Some(offer));
            let news = LaneNews::from_code(code).unwrap();
            let news = ChannelMessage::News { slot, news };
            prop_assert_eq!(ChannelMessage::parse(&news.emit()), Some(news));
        }

        #[test]
        fn anything_else_is_not_said(bytes in any::<[u8; 32]>(), kind in 3_u8..) {
            let mut note = [0; CONTROL_MESSAGE_BYTES];
            note[..32].copy_from_slice(&bytes);
            if let Some(message) = ChannelMessage::parse(&note) {
                prop_assert!(ChannelMessage::parse(&message.emit()) == Some(message));
            }
            note[0] = kind;
            prop_assert_eq!(ChannelMessage::parse(&note), None);
        }
    }
}
