//! Network namespaces for the tests of drivers that need a kernel: made with ip(8), entered by one
//! thread, deleted on drop. Where that is not permitted a test says so by name and passes.
//!
//! Also a few frames, written by the `wire` crate.

#![allow(dead_code, reason = "each test program uses a part of it")]

pub mod sys;

use std::fs::File;
use std::net::Ipv4Addr;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use ::wire::ethernet::{self, Address, EtherType};
use ::wire::{checksum::Sum, ipv4, tcp};
use nic::{Driver, PartialChecksum, RxChecksum, RxFrame, SharedSlice, TxFrame};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Addresses of the two sides of every test network.
pub const LEFT: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
pub const RIGHT: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);
/// The interface in each namespace of a veth pair.
pub const VETH: &str = "veth0";
pub const PATIENCE: Duration = Duration::from_secs(30);
/// After so long nothing more is expected, on a busy machine either.
const QUIET: Duration = Duration::from_millis(200);

/// A namespace of its own, without IPv6 so that nothing is said unasked.
pub struct Namespace {
    name: String,
}

fn ip(arguments: &str) -> Result<(), String> {
    let output = Command::new("ip")
        .args(arguments.split_whitespace())
        .output()
        .map_err(|error| format!("running ip: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!(
        "ip {arguments}: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    ))
}

impl Namespace {
    pub fn new() -> Result<Self, String> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("shunt-nic-{}-{number}", std::process::id());
        ip(&format!("netns add {name}"))?;
        let namespace = Self { name };
        namespace.run(|| {
            for scope in ["all", "default"] {
                let path = format!("/proc/sys/net/ipv6/conf/{scope}/disable_ipv6");
                // A kernel without IPv6 is just as quiet.
                let _ = std::fs::write(path, "1");
            }
        });
        Ok(namespace)
    }

    /// `ip` in this namespace.
    pub fn ip(&self, arguments: &str) {
        ip(&format!("-n {} {arguments}", self.name)).unwrap();
    }

    /// Runs `work` on a thread that has entered the namespace.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let enter = || {
                let file = File::open(format!("/var/run/netns/{}", self.name)).unwrap();
                let kind = Some(LinkNameSpaceType::Network);
                move_into_link_name_space(std::os::fd::AsFd::as_fd(&file), kind).unwrap();
                work()
            };
            scope.spawn(enter).join().unwrap()
        })
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = ip(&format!("netns del {}", self.name));
    }
}

/// Two namespaces joined by a veth pair, both ends up; `None`, and said so, where not permitted.
pub fn veth(test: &str) -> Option<[Namespace; 2]> {
    veth_of_queues(test, 1)
}

/// As [`veth`], with so many queues at each end.
pub fn veth_of_queues(test: &str, queues: u32) -> Option<[Namespace; 2]> {
    let make = || {
        let (left, right) = (Namespace::new()?, Namespace::new()?);
        join([&left, &right], queues)?;
        Ok([left, right])
    };
    make().map_err(|why: String| skipped(test, &why)).ok()
}

/// Joins two namespaces by a veth pair, both ends up. BPF links know interfaces by their numbers, so each has one that
/// no other test's interface has.
pub fn join([left, right]: [&Namespace; 2], queues: u32) -> Result<(), String> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(2, Ordering::Relaxed) % 1_000;
    let index = 100_000 + std::process::id() % 1_000_000 * 1_000 + number;
    let (l, r, other) = (&left.name, &right.name, index + 1);
    let queues = format!("numrxqueues {queues} numtxqueues {queues}");
    ip(&format!(
        "link add {VETH} {queues} index {index} netns {l} type veth peer name {VETH} {queues} index {other} netns {r}"
    ))?;
    ip(&format!("-n {l} link set {VETH} up"))?;
    ip(&format!("-n {r} link set {VETH} up"))
}

/// Number of an interface in the calling thread's namespace.
pub fn index(interface: &str) -> u32 {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
    rustix::net::netdevice::name_to_index(socket, interface).unwrap()
}

/// Says so past libtest's capture, and in the form that is counted.
pub fn skipped(test: &str, why: &str) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr(), "skipped: {test}: {why}");
}

/// One namespace; `None`, and said so, where not permitted.
pub fn alone(test: &str) -> Option<Namespace> {
    Namespace::new().map_err(|why| skipped(test, &why)).ok()
}

/// A received frame, kept.
#[derive(Debug, Clone)]
pub struct Received {
    pub bytes: Vec<u8>,
    pub checksum: RxChecksum,
    pub segment_size: Option<u16>,
    pub arrived_at_ns: Option<u64>,
}

/// Sleeps on the driver until a frame for which `wanted` holds; ten seconds at most.
pub fn receive(driver: &mut impl Driver, wanted: impl Fn(&[u8]) -> bool) -> Received {
    let began = Instant::now();
    loop {
        assert!(
            began.elapsed() < PATIENCE,
            "the frame did not arrive within ten seconds"
        );
        let mut found = None;
        // One at a time: what comes behind the wanted frame stays for the next call.
        driver
            .rx_burst(1, &mut |frame| {
                found = wanted(frame.bytes).then(|| Received {
                    bytes: frame.bytes.to_vec(),
                    checksum: frame.checksum,
                    segment_size: frame.segment_size,
                    arrived_at_ns: frame.arrived_at_ns,
                });
            })
            .unwrap();
        if let Some(found) = found {
            return found;
        }
        if driver.prepare_wait().unwrap() {
            wait(driver, PATIENCE);
        }
    }
}

/// Whether the driver's descriptor becomes ready in time.
pub fn wait(driver: &impl Driver, limit: Duration) -> bool {
    let fd = driver.wait_fd().unwrap();
    let timeout = Timespec::try_from(limit).unwrap();
    poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&timeout)).unwrap() > 0
}

/// Everything that arrives until nothing has for a while.
pub fn receive_all(driver: &mut impl Driver) -> Vec<Vec<u8>> {
    let mut quiet_since = Instant::now();
    let mut frames = Vec::new();
    while quiet_since.elapsed() < QUIET {
        let mut take = |frame: RxFrame<'_>| frames.push(frame.bytes.to_vec());
        if driver.rx_burst(64, &mut take).unwrap() > 0 {
            quiet_since = Instant::now();
        }
        wait(driver, Duration::from_millis(5));
    }
    frames
}

pub fn is_ipv4(frame: &[u8], protocol: ipv4::Protocol) -> bool {
    frame.get(12..14) == Some(&[8, 0]) && frame.get(23) == Some(&protocol.0)
}

/// Bytes in which every position differs from its neighbours and from other starts.
pub fn pattern(len: usize) -> Vec<u8> {
    (0..len)
        .map(|at| u8::try_from((at * 7 + at / 251) % 256).unwrap())
        .collect()
}

fn link_header(source: Address, destination: Address, ethertype: EtherType) -> Vec<u8> {
    let mut bytes = vec![0; ethernet::Header::LEN];
    ethernet::Header {
        source,
        destination,
        ethertype,
    }
    .emit(&mut bytes);
    bytes
}

/// Ethernet and IPv4 headers for `payload_len` bytes.
pub fn ipv4_headers(
    link: (Address, Address),
    hosts: (Ipv4Addr, Ipv4Addr),
    protocol: ipv4::Protocol,
    payload_len: usize,
) -> Vec<u8> {
    let mut bytes = link_header(link.0, link.1, EtherType::IPV4);
    let total = u16::try_from(20 + payload_len).unwrap().to_be_bytes();
    let mut header = vec![
        0x45, 0, total[0], total[1], 0, 1, 0x40, 0, 64, protocol.0, 0, 0,
    ];
    header.extend(hosts.0.octets());
    header.extend(hosts.1.octets());
    let sum = Sum::new().add(&header).finish();
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    bytes.extend(header);
    bytes
}

/// A transport header's partial checksum: the folded pseudo-header sum.
pub fn partial_sum(hosts: (Ipv4Addr, Ipv4Addr), protocol: ipv4::Protocol, len: usize) -> [u8; 2] {
    Sum::new()
        .pseudo_header_v4(hosts.0, hosts.1, protocol, len)
        .fold()
        .to_be_bytes()
}

/// All headers of a TCP segment, checksum unfinished at `start` 34, `offset` 16.
pub fn tcp_headers(
    link: (Address, Address),
    hosts: (Ipv4Addr, Ipv4Addr),
    header: &tcp::Header,
    payload_len: usize,
) -> Vec<u8> {
    let len = header.header_len();
    let mut bytes = ipv4_headers(link, hosts, ipv4::Protocol::TCP, len + payload_len);
    let at = bytes.len();
    bytes.resize(at + len, 0);
    header.emit(&mut bytes[at..]);
    let sum = partial_sum(hosts, ipv4::Protocol::TCP, len + payload_len);
    bytes[at + 16..at + 18].copy_from_slice(&sum);
    bytes
}

/// A TCP segment to send, its payload in two spans.
pub fn tcp_frame<'a>(
    headers: &'a [u8],
    payload: &'a [u8],
    segment_size: Option<u16>,
) -> TxFrame<'a> {
    let (left, right) = payload.split_at(payload.len() / 3);
    TxFrame {
        headers,
        payload: TxFrame::spans([SharedSlice::from(left), SharedSlice::from(right)]),
        checksum: Some(PartialChecksum {
            start: 34,
            offset: 16,
        }),
        segment_size,
    }
}
