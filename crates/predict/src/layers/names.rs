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
    Socket,
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
const BEGINNINGS: [(Layer, &str); 6] = [
    (Layer::Driver, "loopback_ veth_"),
    (
        Layer::Transport,
        "tcp_ __tcp_ inet_csk cubictcp bbr_ sk_stream __inet_lookup",
    ),
    (Layer::Network, "ip_ __ip_ ipv4_ nf_ raw_"),
    (
        Layer::Link,
        "dev_ __dev_ netif_ __netif_ process_backlog __napi_ napi_ net_rx_action enqueue_to_backlog neigh_ eth_ sch_ validate_xmit do_softirq __do_softirq handle_softirqs packet_ tpacket_ xsk_ __xsk_",
    ),
    (
        Layer::Socket,
        "sock_ __sock_ sockfd_ inet_sendmsg inet_recvmsg inet_send_prepare security_socket __sys_ vfs_ ksys_ new_sync_ fdget",
    ),
    (
        Layer::Call,
        "__x64_sys_ __arm64_sys_ do_syscall x64_sys_call entry_ syscall_",
    ),
];
/// What is below one of these receives.
const RECEIVES: &str = "process_backlog __netif_receive net_rx_action tcp_recvmsg sock_recvmsg __sys_recvfrom ksys_read vfs_read sock_read_iter __x64_sys_recvfrom __x64_sys_read";
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
        let begins_with_one_of = |beginnings: &str| {
            let mut beginnings = beginnings.split(' ');
            beginnings.any(|beginning| name.starts_with(beginning))
        };
        let layer = BEGINNINGS
            .iter()
            .find(|(_, beginnings)| begins_with_one_of(beginnings))
            .map(|(layer, _)| *layer);
        let receives = begins_with_one_of(RECEIVES);
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
