//! The default driver: a packet socket on any Ethernet interface, with a mapped receive ring and
//! gathering transmit. Needs CAP_NET_RAW.
//!
//! Read first: packet(7), and the kernel's `Documentation/networking/packet_mmap.rst`. On virtual
//! interfaces the virtio header carries segments of 64 KiB both ways, or of as much as the interface
//! allows, which is where its throughput comes from; a transmit ring halves it and is not used. One socket
//! is one queue; several form a fanout group, and a program of ours says which gets a frame
//! (`steering.rs`). Frames with a VLAN tag are dropped.

mod config;
mod error;
pub mod filter;
mod handover;
mod kernel_drop;
mod presence;
mod queue;
mod ring;
mod rx;
pub mod steering;
mod sys;
mod tx;

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ::wire::ethernet;
use netlink::{Interface, interface, segments};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, socket_with, sockopt};

use crate::driver::{
    Caps, Counters, Driver, LARGE_SEGMENT_BYTES, Presence, RxFrame, SEGMENT_HEADERS_BYTES, TxFrame,
};
use crate::retry::Retry;
use crate::sharing::Sharing;
use bpf::Link;
pub use config::{Config, large_ring_bytes};
pub use error::OpenError;
use error::failed;
pub use handover::{Handover, Numbers};
use presence::{Fanout, FanoutMember};
pub use queue::make_ring;
use queue::{Later, Queue};
pub use ring::Geometry;
use ring::Ring;

/// Bytes of each ring frame besides the packet: the ring's own header, the virtio header and the Ethernet header.
const FRAME_OVERHEAD_BYTES: u32 = 256;
/// Memory of a ring that is made later, and of its frames: each program with an engine inside has one.
const LATER_RING_BYTES: u32 = 8 << 20;
const LATER_FRAME_BYTES: u32 = 8 << 10;
/// What may wait in the socket of such a ring.
const QUEUE_BYTES: usize = 16 << 20;
/// Virtio header and frame, with the largest packet of IPv4, where there is no ring; longer ones make the buffer longer.
const QUEUED_FRAME_BYTES: usize = (64 << 10) + 64;
/// As many frames as there are at least: of small packets each takes one as well.
const FRAMES_MIN: u32 = 96;

/// An open interface.
pub struct AfPacket {
    // The ring is unmapped before the socket closes: fields drop in order.
    ring: Option<Ring>,
    /// While there is no ring, and when there is one for the first time.
    queue: Option<Queue>,
    ring_geometry: Geometry,
    socket: OwnedFd,
    /// As it was opened.
    config: Config,
    /// What it is called now.
    interface: String,
    index: u32,
    /// Down or gone, and that was said.
    is_away: bool,
    /// Groups of stations that were asked for.
    groups: Vec<[u8; 6]>,
    /// Where it is one of several queues.
    member: Option<FanoutMember>,
    /// It has joined a new group, and others have not: nothing is received yet.
    awaits_others: bool,
    /// Drops the kernel's copy of the addresses' packets, where that is to be and can be.
    kernel_drop: Option<Link>,
    caps: Caps,
    slept: bool,
    retry: Retry,
    /// Nobody is at the other end of the cable: what is sent is lost, as on any wire.
    lacks_carrier: bool,
    counters: Counters,
    ring_full: AtomicU64,
    /// For frames from the socket's queue, with their virtio header; grows with what comes.
    long: Vec<u8>,
}

/// Keeps what arrives at interface number `interface` for these addresses from the kernel as long as the value lives; `None`: it may not
/// be done here, or cannot. Waits until no processor is in the middle of a packet (synchronize_rcu), some 10 ms.
#[must_use]
pub fn keep_from_kernel(
    interface: u32,
    addresses: &[IpAddr],
    relocate_fd: fn(OwnedFd) -> OwnedFd,
) -> Option<Link> {
    let attached = kernel_drop::attach(interface, addresses);
    attached.ok().map(|link| link.moved(relocate_fd))
}

impl AfPacket {
    /// Whether this process can open an interface, without a packet socket: to close one takes the kernel 10 ms and more.
    ///
    /// # Errors
    /// As [`AfPacket::open`].
    pub fn check(interface: &str) -> Result<(), OpenError> {
        let flags = SocketFlags::CLOEXEC;
        // It takes the same privilege (raw(7)).
        let asked = socket_with(
            AddressFamily::INET,
            SocketType::RAW,
            flags,
            Some(ipproto::RAW),
        );
        asked.map_err(refused(interface))?;
        read(interface).map(drop)
    }

    /// Opens the interface of `config`.
    ///
    /// # Errors
    /// See [`OpenError`]; each message says what to do next.
    pub fn open(config: &Config) -> Result<Self, OpenError> {
        let (mut opened, interface) = Self::prepare(config)?;
        opened.filter(opened.socket.as_fd(), config)?;
        sys::bind(opened.socket.as_fd(), interface).map_err(opened.failed("bind"))?;
        opened.drop_kernel_copy(config);
        Ok(opened)
    }

    /// Opens the interface of `config` as `count` queues. `program` says which queue gets a frame, see
    /// [`steering::program`].
    ///
    /// # Errors
    /// As [`AfPacket::open`].
    pub fn open_queues(
        config: &Config,
        count: u16,
        program: &[bpf::classic::Instruction],
    ) -> Result<Vec<Self>, OpenError> {
        let mut queues: Vec<Self> = Vec::new();
        let fanout = Arc::new(Fanout::new(program, count));
        for number in 0..count {
            let (mut queue, interface) = Self::prepare(config)?;
            queue.caps.queues = count;
            let mut member = FanoutMember::new(&fanout, number);
            member
                .join(queue.socket.as_fd(), interface)
                .map_err(queue.failed("joining the fanout group"))?;
            queue.member = Some(member);
            queues.push(queue);
        }
        for queue in &queues {
            queue.filter(queue.socket.as_fd(), config)?;
        }
        if let Some(first) = queues.first_mut() {
            first.drop_kernel_copy(config);
        }
        Ok(queues)
    }

    /// A socket with its ring that receives nothing yet, and the interface's number.
    fn prepare(config: &Config) -> Result<(Self, u32), OpenError> {
        let socket = packet_socket(config)?;
        let link = read(&config.interface)?;
        let failed = |call| failed(&config.interface, call);
        configure(&socket, &link).map_err(failed("setting packet socket options"))?;
        let is_root = || sockopt::set_socket_recv_buffer_size_force(&socket, QUEUE_BYTES).is_ok();
        let Some(tell) = config.ring_later.filter(|_| is_root()) else {
            let geometry = geometry(config, &link, false);
            let ring = Ring::make(&socket, geometry)
                .map_err(|source| OpenError::Ring { geometry, source })?;
            let opened = Self::with(config, socket, (Some(ring), geometry), &link);
            return Ok((opened, link.index));
        };
        sys::ask_beside(socket.as_fd()).map_err(failed("setting packet socket options"))?;
        let second = packet_socket(config)?;
        configure(&second, &link).map_err(failed("setting packet socket options"))?;
        sockopt::set_socket_recv_buffer_size_force(&second, QUEUE_BYTES)
            .map_err(|errno| failed("SO_RCVBUFFORCE")(errno.into()))?;
        let geometry = geometry(config, &link, true);
        let mut opened = Self::with(config, socket, (None, geometry), &link);
        opened.queue = Some(Queue::Alone(Later::new(second, tell)));
        opened.long = vec![0; QUEUED_FRAME_BYTES];
        Ok((opened, link.index))
    }

    fn with(
        config: &Config,
        socket: OwnedFd,
        (ring, ring_geometry): (Option<Ring>, Geometry),
        link: &Interface,
    ) -> Self {
        Self {
            ring,
            queue: None,
            ring_geometry,
            socket,
            config: config.clone(),
            interface: config.interface.clone(),
            index: link.index,
            is_away: false,
            groups: Vec::new(),
            member: None,
            awaits_others: false,
            kernel_drop: None,
            caps: caps(link),
            slept: false,
            retry: Retry::default(),
            lacks_carrier: false,
            counters: Counters::default(),
            ring_full: AtomicU64::new(0),
            long: Vec::new(),
        }
    }

    fn failed(&self, call: &'static str) -> impl FnOnce(io::Error) -> OpenError + '_ {
        failed(&self.interface, call)
    }

    fn filter(&self, socket: BorrowedFd<'_>, config: &Config) -> Result<(), OpenError> {
        match (config.ether_type, &config.sharing) {
            (Some(ether_type), _) => {
                let program = filter::for_ether_type(ether_type);
                let attached = bpf::classic::attach(socket, &program);
                attached.map_err(self.failed("attaching the filter of one EtherType"))
            }
            (None, Some(sharing)) => {
                let admitted = sharing.admit_to(socket);
                admitted.map_err(self.failed("attaching the filter of what is claimed"))
            }
            (None, None) => set_addresses(socket, &self.interface, config.addresses.as_deref()),
        }
    }

    /// From here on the kernel does not look at what is the engine's alone, if we may and it can.
    fn drop_kernel_copy(&mut self, config: &Config) {
        if let (true, None, Some(addresses)) =
            (config.alone, &config.sharing, config.addresses.as_deref())
        {
            self.kernel_drop = keep_from_kernel(self.index, addresses, config.relocate_fd);
        }
    }

    /// Changes which addresses' frames are received; `None`: every frame.
    ///
    /// # Errors
    /// Too many addresses, or the kernel refused the filter; the old one stays.
    pub fn set_addresses(&self, addresses: Option<&[IpAddr]>) -> Result<(), OpenError> {
        set_addresses(self.socket.as_fd(), &self.interface, addresses)
    }

    /// The packet socket, for a filter of the caller's own.
    #[must_use]
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// One that receives nothing before the filter, the ring and the binding stand.
fn packet_socket(config: &Config) -> Result<OwnedFd, OpenError> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None);
    Ok((config.relocate_fd)(
        socket.map_err(refused(&config.interface))?,
    ))
}

/// Why there is no socket that receives frames.
fn refused(interface: &str) -> impl FnOnce(Errno) -> OpenError + '_ {
    |error| match error {
        Errno::PERM | Errno::ACCESS => OpenError::NoPrivilege,
        other => failed(interface, "socket(AF_PACKET)")(other.into()),
    }
}

/// What the kernel says of an Ethernet interface.
fn read(interface: &str) -> Result<Interface, OpenError> {
    let link = interface::read(interface).map_err(|source| match source.raw_os_error() {
        Some(libc::ENODEV) => OpenError::UnknownInterface {
            interface: interface.to_owned(),
        },
        _ => failed(interface, "reading the interface")(source),
    })?;
    if link.is_ethernet {
        Ok(link)
    } else {
        Err(OpenError::NotEthernet {
            interface: interface.to_owned(),
        })
    }
}

fn configure(socket: &OwnedFd, link: &Interface) -> io::Result<()> {
    let socket = socket.as_fd();
    let version = libc::c_int::try_from(libc::tpacket_versions::TPACKET_V2 as u32)
        .expect("invariant: the version is 1");
    sys::set_option(socket, libc::PACKET_VERSION, &version)?;
    sys::set_option(socket, libc::PACKET_VNET_HDR, &1_i32)?;
    sys::set_option(socket, libc::PACKET_IGNORE_OUTGOING, &1_i32)?;
    // What does not fit a ring frame can be received whole from the socket itself.
    sys::set_option(socket, libc::PACKET_COPY_THRESH, &1_i32)?;
    set_bypass(socket, link)
}

fn set_bypass(socket: BorrowedFd<'_>, link: &Interface) -> io::Result<()> {
    // The short way out drops, without a word, a frame that the kernel would have to cut first
    // (__dev_direct_xmit in net/core/dev.c).
    let bypass = i32::from(link.cuts_segments);
    sys::set_option(socket, libc::PACKET_QDISC_BYPASS, &bypass)
}

fn set_addresses(
    socket: BorrowedFd<'_>,
    interface: &str,
    addresses: Option<&[IpAddr]>,
) -> Result<(), OpenError> {
    let program = addresses.map(filter::for_addresses).transpose()?;
    let changed = match program {
        Some(program) => bpf::classic::attach(socket, &program),
        None => bpf::classic::detach(socket),
    };
    changed.map_err(|source| OpenError::System {
        call: "attaching the address filter",
        interface: interface.to_owned(),
        source,
    })
}

/// The kernel itself finishes what the device cannot, so every interface has the same offloads.
fn caps(link: &Interface) -> Caps {
    Caps {
        tx_checksum: true,
        rx_checksum: true,
        tso_max_bytes: largest_payload(&link.segments),
        gro: true,
        queues: 1,
        payload_by_address: true,
        align: 1,
        mtu: link.mtu,
        hardware_address: link.hardware_address,
    }
}

/// `gso_ipv4_max_size` counts the Ethernet header too, and must not be reached
/// (`netif_skb_features` in the kernel's net/core/dev.c).
fn largest_payload(segments: &segments::Segments) -> u32 {
    let ethernet_len = u32::try_from(ethernet::Header::LEN).expect("invariant: 14 bytes");
    let overhead = SEGMENT_HEADERS_BYTES + ethernet_len + 1;
    if segments.gso_bytes <= segments::ORDINARY_BYTES {
        // The kernel cuts what a smaller limit of the interface forbids.
        LARGE_SEGMENT_BYTES
    } else {
        segments.gso_bytes - overhead
    }
}

/// A ring frame for the largest packet that the interface merges, or that a peer on the other end of
/// a virtual cable sends uncut. Where neither happens small frames make a ring of
/// thousands: at a gigabit 256 of them are full after 3 ms, and a scheduler's slice is no shorter.
///
/// Memory comes in powers of two, and the largest packet, of 64 KiB by itself or 192 KiB and more where somebody has said so, is
/// one with hardly any room for headers. Whole segments that fit are less by more than that; the few packets that are not wait
/// in the socket (`rx.rs`).
fn frame_bytes_of(link: &Interface) -> u32 {
    if link.segments.arrive_cut {
        return (link.mtu + FRAME_OVERHEAD_BYTES).next_power_of_two();
    }
    let largest = link.segments.gro_bytes.max(link.segments.gso_bytes);
    largest.max(segments::ORDINARY_BYTES).next_power_of_two()
}

fn geometry(config: &Config, link: &Interface, is_later: bool) -> Geometry {
    let (ring_bytes, longest_bytes) = if is_later {
        (LATER_RING_BYTES, LATER_FRAME_BYTES)
    } else {
        (config.ring_bytes, u32::MAX)
    };
    let frame_bytes = config.frame_bytes;
    let frame_bytes = frame_bytes.unwrap_or_else(|| frame_bytes_of(link).min(longest_bytes));
    let fitting = ring_bytes.checked_div(frame_bytes).unwrap_or_default();
    let fitting = fitting.max(FRAMES_MIN);
    Geometry::new(frame_bytes, config.frame_count.unwrap_or(fitting))
}

impl Driver for AfPacket {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn rx_burst(&mut self, budget: usize, sink: &mut dyn FnMut(RxFrame<'_>)) -> io::Result<usize> {
        self.receive(budget, sink)
    }

    fn may_have_frames(&self) -> bool {
        self.queue.is_some() || self.ring.as_ref().is_some_and(Ring::is_ready)
    }

    fn tx_burst(&mut self, frames: &[TxFrame<'_>]) -> io::Result<usize> {
        self.send(frames)
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    fn prepare_wait(&mut self) -> io::Result<bool> {
        self.slept = true;
        // What waits in the queue shows at the socket, but for a queue that is emptied.
        let is_emptied = matches!(self.queue, Some(Queue::Emptied { .. }));
        Ok(!is_emptied && !self.ring.as_ref().is_some_and(Ring::is_ready))
    }

    fn wait_deadline_us(&self) -> Option<u64> {
        // The socket becomes readable for frames, not for room in the device.
        self.retry.deadline_us()
    }

    /// Until the socket closes at the latest (packet(7), PACKET_ADD_MEMBERSHIP).
    fn listen_to(&mut self, group: [u8; 6], listen: bool) -> io::Result<()> {
        if listen {
            self.groups.push(group);
        } else if let Some(at) = self.groups.iter().position(|one| *one == group) {
            self.groups.swap_remove(at);
        }
        sys::change_membership(self.socket.as_fd(), self.index, group, listen)
    }

    fn attend(&mut self) -> Presence {
        self.look()
    }

    fn complaints(&self) -> Vec<String> {
        let mut complaints: Vec<String> = self.absence().into_iter().collect();
        let is_off = |sharing: &Sharing| matches!(sharing.is_in_force(), Ok(false));
        if !self.is_away && self.config.sharing.as_deref().is_some_and(is_off) {
            complaints.push(format!(
                "somebody took the program off {:?} that keeps the engine's packets from the kernel, which resets its connections now: restart the engine to attach it again",
                self.interface
            ));
        }
        complaints
    }

    fn counters(&self) -> Counters {
        if let Ok(drops) = sys::take_drops(self.socket.as_fd()) {
            self.ring_full
                .fetch_add(u64::from(drops), Ordering::Relaxed);
        }
        let mut counters = self.counters;
        counters.rx_dropped += self.ring_full.load(Ordering::Relaxed);
        counters
    }
}
