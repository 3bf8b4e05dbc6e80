//! Queues that come with a program of XDP: virtio_net adds some to send from, and has the device spread received frames over
//! those as well. No socket is on them, so that what arrives there goes by way of the kernel. As long as the program is
//! attached the device's table leads to the queues that there were.

use netlink::receive_hash::{self, ReceiveHash};

/// A table that was changed. Dropped after the program is taken off: the driver fills the table again.
pub(super) struct Narrowed {
    interface: String,
    table: Vec<u32>,
}

impl Narrowed {
    /// Has an interface that got more than `queues` spread over so many; `None`: it does, or its driver takes no table.
    pub fn to(interface: &str, queues: u32) -> Option<Self> {
        let told = narrowed(&receive_hash::read(interface).ok()?, queues)?;
        receive_hash::write(interface, &told, true).ok()?;
        Some(Self {
            interface: interface.to_owned(),
            table: told.table,
        })
    }
}

impl Drop for Narrowed {
    fn drop(&mut self) {
        let Ok(now) = receive_hash::read(&self.interface) else {
            return;
        };
        // What somebody else has set meanwhile stays.
        if now.table == self.table {
            let key = Vec::new();
            let _ = receive_hash::write(&self.interface, &ReceiveHash { key, ..now }, false);
        }
    }
}

/// The table in which each of so many queues has its turn, the key as it is; `None`: no other queue has an entry.
fn narrowed(found: &ReceiveHash, queues: u32) -> Option<ReceiveHash> {
    let is_beyond = |queue: &u32| *queue >= queues;
    found.table.iter().any(is_beyond).then(|| ReceiveHash {
        table: (0..queues).cycle().take(found.table.len()).collect(),
        key: Vec::new(),
        ..*found
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_leads_to_queues_with_a_socket_and_stays_where_it_does() {
        let of = |table: &[u32]| ReceiveHash {
            table: table.to_vec(),
            key: vec![7; 40],
            function: 1,
            transformation: 0,
        };
        let told = narrowed(&of(&[0, 1, 2, 3, 0, 1]), 2).unwrap();
        assert_eq!(told.table, [0, 1, 0, 1, 0, 1]);
        assert!(told.key.is_empty() && told.function == 1);
        assert_eq!(narrowed(&of(&[1, 1, 1]), 2), None, "somebody's own");
        assert_eq!(narrowed(&of(&[]), 2), None);
    }
}
