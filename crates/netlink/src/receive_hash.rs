//! How a card spreads received frames over its queues (receive-side scaling): the key of its hash, and the table that leads from
//! a hash to a queue. Read first: `Documentation/networking/scaling.rst` of the kernel, and linux/ethtool.h, `struct ethtool_rxfh`.

use std::io;
use std::net::SocketAddr;

use crate::interface::control_socket;
use crate::sys;

/// `ETHTOOL_GRSSH` and `ETHTOOL_SRSSH`.
const QUESTION: u32 = 0x46;
const SETTING: u32 = 0x47;
/// Entries and bytes that no card exceeds.
const ENTRIES_MAX: usize = 1 << 16;
const KEY_BYTES_MAX: usize = 256;
/// `ETH_RSS_HASH_TOP`.
const TOEPLITZ: u8 = 1;
/// `TCP_V4_FLOW` and `TCP_V6_FLOW`.
const TCP: [u32; 2] = [1, 5];
/// `RXH_IP_SRC`, `RXH_IP_DST`, `RXH_L4_B_0_1` and `RXH_L4_B_2_3`: what a connection is known by.
const BOTH_ENDS: u64 = 0xf0;

/// How a card spreads received frames.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceiveHash {
    /// The queue for each value of the hash's lower bits.
    pub table: Vec<u32>,
    /// Empty where the driver does not say it.
    pub key: Vec<u8>,
    /// Which hash it is, a bit for each (`ETH_RSS_HASH_*`); 0 where the driver does not say it.
    pub function: u8,
    /// What becomes of the input first (`RXH_XFRM_*`): 0, nothing.
    pub transformation: u8,
}

impl ReceiveHash {
    /// Whether it is the Toeplitz hash of the packet as it is.
    #[must_use]
    pub fn is_toeplitz(&self) -> bool {
        self.function == TOEPLITZ && matches!(self.transformation, 0 | 0xff)
    }

    /// The queue of TCP packets from `source` to `destination`; `None`: there is no table.
    #[must_use]
    pub fn queue_of(&self, source: SocketAddr, destination: SocketAddr) -> Option<u32> {
        let hash = wire::toeplitz::hash(&self.key, source, destination);
        let at = usize::try_from(hash).ok()?.checked_rem(self.table.len())?;
        self.table.get(at).copied()
    }

    /// Whether every queue has its turn in the table, as drivers fill it where nobody says anything.
    #[must_use]
    pub fn is_even(&self, queues: u32) -> bool {
        let mut turns = (0..queues).cycle();
        self.table.iter().all(|queue| turns.next() == Some(*queue))
    }

    fn words(&self, command: u32, has_table: bool) -> Vec<u32> {
        let count = |len: usize| u32::try_from(len).expect("invariant: both were checked");
        let table = if has_table { &self.table[..] } else { &[] };
        let kind = [self.function, self.transformation, 0, 0];
        let mut words = vec![command, 0, count(table.len()), count(self.key.len())];
        words.extend([u32::from_ne_bytes(kind), 0]);
        words.extend(table);
        let (whole, rest) = self.key.as_chunks::<4>();
        words.extend(whole.iter().map(|word| u32::from_ne_bytes(*word)));
        let mut last = [0; 4];
        last[..rest.len()].copy_from_slice(rest);
        words.push(u32::from_ne_bytes(last));
        words
    }

    fn parse(words: &[u32]) -> Option<Self> {
        let [_, _, entries, key_bytes, kind, _, rest @ ..] = words else {
            return None;
        };
        let (entries, key_bytes) = (
            usize::try_from(*entries).ok()?,
            usize::try_from(*key_bytes).ok()?,
        );
        let (table, key) = rest.split_at_checked(entries)?;
        let key = key.iter().flat_map(|word| word.to_ne_bytes());
        let [function, transformation, ..] = kind.to_ne_bytes();
        let read = Self {
            table: table.to_vec(),
            key: key.take(key_bytes).collect(),
            function,
            transformation,
        };
        (read.key.len() == key_bytes).then_some(read)
    }
}

/// Reads it.
///
/// # Errors
/// There is no such interface, or its driver does not say.
pub fn read(interface: &str) -> io::Result<ReceiveHash> {
    let socket = control_socket()?;
    let mut head = [QUESTION, 0, 0, 0, 0, 0];
    sys::receive_hash(&socket, interface, &mut head)?;
    let [_, _, entries, key_bytes, ..] = head;
    let len = |number: u32, most: usize| {
        let len = usize::try_from(number).ok().filter(|len| *len <= most);
        len.ok_or(io::ErrorKind::InvalidData)
    };
    let asked = ReceiveHash {
        table: vec![0; len(entries, ENTRIES_MAX)?],
        key: vec![0; len(key_bytes, KEY_BYTES_MAX)?],
        function: 0,
        transformation: 0,
    };
    let mut words = asked.words(QUESTION, true);
    sys::receive_hash(&socket, interface, &mut words)?;
    ReceiveHash::parse(&words).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Writes table, key and kind. Without `has_table` the driver fills the table as where nobody says anything; an empty key
/// stays what it is.
///
/// # Errors
/// There is no such interface, the driver takes less, or the process may not.
pub fn write(interface: &str, hash: &ReceiveHash, has_table: bool) -> io::Result<()> {
    let mut words = hash.words(SETTING, has_table);
    sys::receive_hash(&control_socket()?, interface, &mut words)
}

/// Whether TCP packets are hashed by both addresses and both ports; `None`: the driver does not say.
#[must_use]
pub fn is_of_both_ends(interface: &str) -> Option<bool> {
    let socket = control_socket().ok()?;
    let fields = TCP.map(|flow| sys::hashed_fields(&socket, interface, flow).ok());
    let said = fields.iter().flatten();
    let all = said.clone().all(|fields| *fields == BOTH_ENDS);
    (said.count() > 0).then_some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Words of `struct ethtool_rxfh` before the table.
    const HEAD_WORDS: usize = 6;

    fn hash(entries: u32, key: &[u8]) -> ReceiveHash {
        ReceiveHash {
            table: (0..entries).map(|entry| entry % 3).collect(),
            key: key.to_vec(),
            function: TOEPLITZ,
            transformation: 0,
        }
    }

    #[test]
    fn what_is_written_is_read() {
        for (entries, key) in [(128, &[7; 40][..]), (0, &[1, 2, 3]), (64, &[])] {
            let hash = hash(entries, key);
            let words = hash.words(SETTING, true);
            assert_eq!(ReceiveHash::parse(&words).unwrap(), hash);
            let needed = HEAD_WORDS + hash.table.len() + key.len().div_ceil(4);
            assert_eq!(ReceiveHash::parse(&words[..needed]).unwrap(), hash);
            assert_eq!(ReceiveHash::parse(&words[..needed - 1]), None);
        }
        assert_eq!(hash(128, &[0; 40]).words(SETTING, false)[2], 0);
    }

    #[test]
    fn a_table_in_which_every_queue_has_its_turn_is_even() {
        assert!(hash(128, &[]).is_even(3));
        assert!(!hash(128, &[]).is_even(2));
        assert!(!hash(128, &[]).is_even(0));
    }

    #[test]
    fn the_lower_bits_of_the_hash_choose_the_queue() {
        let end = |port| SocketAddr::from(([10, 0, 0, 1], port));
        let mut hash = hash(128, &[0; 40]);
        assert_eq!(
            hash.queue_of(end(1), end(2)),
            Some(0),
            "of nothing but zeros"
        );
        // Of a key of ones every bit of the input turns the whole hash over.
        hash.key = vec![0xff; 40];
        assert_eq!(hash.queue_of(end(3), end(1)), Some(hash.table[127]));
        assert_eq!(hash.queue_of(end(3), end(5)), Some(hash.table[0]));
        hash.table.clear();
        assert_eq!(hash.queue_of(end(1), end(2)), None);
    }

    #[test]
    fn an_interface_that_has_none_is_an_error() {
        assert!(read("lo").is_err());
        assert!(write("lo", &hash(128, &[]), true).is_err());
        assert_eq!(is_of_both_ends("lo"), None);
    }
}
