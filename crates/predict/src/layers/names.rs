//! To which layer a function of the kernel belongs, by its name. A function that belongs to none, as one that
//! copies or takes a lock, works for the one that called it.

use std::{collections::HashMap, fs};

use anyhow::{Context, ensure};

/// The layers of the paper's Table 1, from the program to the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Layer {
    /// Entering and leaving the kernel.
    Call,
    /// Sockets.
    Socket,
    /// TCP.
    Transport,
    /// IP.
    Network,
    /// Devices' queues, and what hands packets to them and takes them.
    Link,
    /// The device's driver.
    Driver,
}

impl Layer {
    /// All, as in the paper.
    pub const ALL: [Self; 6] = [
        Self::Call,
        Self::Socket,
        Self::Transport,
        Self::Network,
        Self::Link,
        Self::Driver,
    ];
}

/// Beginnings of names, the first that fits counts.
const BEGINNINGS: &[(&str, Layer)] = &[
    ("loopback_", Layer::Driver),
    ("veth_", Layer::Driver),
    ("tcp_", Layer::Transport),
    ("__tcp_", Layer::Transport),
    ("inet_csk", Layer::Transport),
    ("cubictcp", Layer::Transport),
    ("bbr_", Layer::Transport),
    ("sk_stream", Layer::Transport),
    ("__inet_lookup", Layer::Transport),
    ("ip_", Layer::Network),
    ("__ip_", Layer::Network),
    ("ipv4_", Layer::Network),
    ("nf_", Layer::Network),
    ("raw_", Layer::Network),
    ("dev_", Layer::Link),
    ("__dev_", Layer::Link),
    ("netif_", Layer::Link),
    ("__netif_", Layer::Link),
    ("process_backlog", Layer::Link),
    ("__napi_", Layer::Link),
    ("napi_", Layer::Link),
    ("net_rx_action", Layer::Link),
    ("enqueue_to_backlog", Layer::Link),
    ("neigh_", Layer::Link),
    ("eth_", Layer::Link),
    ("sch_", Layer::Link),
    ("validate_xmit", Layer::Link),
    ("do_softirq", Layer::Link),
    ("__do_softirq", Layer::Link),
    ("handle_softirqs", Layer::Link),
    ("sock_", Layer::Socket),
    ("__sock_", Layer::Socket),
    ("sockfd_", Layer::Socket),
    ("inet_sendmsg", Layer::Socket),
    ("inet_recvmsg", Layer::Socket),
    ("inet_send_prepare", Layer::Socket),
    ("security_socket", Layer::Socket),
    ("__sys_", Layer::Socket),
    ("vfs_", Layer::Socket),
    ("ksys_", Layer::Socket),
    ("new_sync_", Layer::Socket),
    ("fdget", Layer::Socket),
    ("__x64_sys_", Layer::Call),
    ("__arm64_sys_", Layer::Call),
    ("do_syscall", Layer::Call),
    ("x64_sys_call", Layer::Call),
    ("entry_", Layer::Call),
    ("syscall_", Layer::Call),
];
/// What is below one of these receives.
const RECEIVES: &[&str] = &[
    "process_backlog",
    "__netif_receive",
    "net_rx_action",
    "tcp_recvmsg",
    "sock_recvmsg",
    "__sys_recvfrom",
    "ksys_read",
    "vfs_read",
    "sock_read_iter",
    "__x64_sys_recvfrom",
    "__x64_sys_read",
];
/// Addresses from here on are marks that tell kernel from user and no places.
const MARKS: u64 = u64::MAX - 4095;

/// The kernel's functions.
#[derive(Debug)]
pub struct Names {
    functions: Vec<(u64, String)>,
    known: HashMap<u64, (Option<Layer>, bool)>,
}

impl Names {
    /// Those of this kernel, see proc_kallsyms(5).
    pub fn of_this_kernel() -> anyhow::Result<Self> {
        let text = fs::read_to_string("/proc/kallsyms").context("reading /proc/kallsyms")?;
        Self::of(&text)
    }

    fn of(text: &str) -> anyhow::Result<Self> {
        let function = |line: &str| {
            let mut fields = line.split_ascii_whitespace();
            let address = u64::from_str_radix(fields.next()?, 16).ok()?;
            let is_code = matches!(fields.next()?, "t" | "T");
            (is_code && address > 0).then_some((address, fields.next()?.to_owned()))
        };
        let mut functions: Vec<(u64, String)> = text.lines().filter_map(function).collect();
        ensure!(
            !functions.is_empty(),
            "/proc/kallsyms hides the kernel's addresses: this needs root"
        );
        functions.sort();
        Ok(Self {
            functions,
            known: HashMap::new(),
        })
    }

    fn name(&self, address: u64) -> &str {
        let after = self
            .functions
            .partition_point(|(begin, _)| *begin <= address);
        match after.checked_sub(1).and_then(|n| self.functions.get(n)) {
            Some((_, name)) => name,
            None => "",
        }
    }

    fn of_address(&mut self, address: u64) -> (Option<Layer>, bool) {
        if let Some(known) = self.known.get(&address) {
            return *known;
        }
        let name = self.name(address);
        let layer = BEGINNINGS
            .iter()
            .find(|(beginning, _)| name.starts_with(beginning))
            .map(|(_, layer)| *layer);
        let receives = RECEIVES.iter().any(|beginning| name.starts_with(beginning));
        self.known.insert(address, (layer, receives));
        (layer, receives)
    }

    /// The layer of a sample, innermost function first, and whether it receives; none outside of the kernel.
    pub fn place(&mut self, addresses: &[u64]) -> Option<(Layer, bool)> {
        let places = addresses.iter().filter(|address| **address < MARKS);
        let found: Vec<_> = places.map(|address| self.of_address(*address)).collect();
        let layer = found.iter().find_map(|(layer, _)| *layer)?;
        Some((layer, found.iter().any(|(_, receives)| *receives)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_belongs_to_the_innermost_layer_that_its_callers_name() {
        let text = "\
0000000000000010 T entry_SYSCALL_64
0000000000000020 T __sys_sendto
0000000000000030 T tcp_sendmsg
0000000000000040 t ip_queue_xmit
0000000000000050 T process_backlog
0000000000000060 T tcp_v4_rcv
0000000000000070 T memcpy
0000000000000080 d data
";
        let mut names = Names::of(text).unwrap();
        let kernel = u64::MAX - 127;
        // A copy for the one that sends; receiving within a send; the entry itself; no kernel at all.
        let mut place = |addresses: &[u64]| names.place(addresses);
        assert_eq!(
            place(&[kernel, 0x71, 0x38, 0x22, 0x11]),
            Some((Layer::Transport, false))
        );
        assert_eq!(
            place(&[kernel, 0x75, 0x61, 0x51, 0x41, 0x31, 0x11]),
            Some((Layer::Transport, true))
        );
        assert_eq!(place(&[kernel, 0x41, 0x31]), Some((Layer::Network, false)));
        assert_eq!(place(&[kernel, 0x12]), Some((Layer::Call, false)));
        assert_eq!(place(&[]), None);
        assert!(Names::of("0000000000000000 T hidden\n").is_err());
    }
}
