//! What `shunt engine` can be asked for.

use std::{net::IpAddr, path::PathBuf};

use clap::{Args, ValueEnum};
use engine::{Address, CongestionControl, FastOpenModes, Protocols};
use nic::af_xdp::Mode;

use super::card::Tended;
use super::offloads::Offloads;

/// Largest number of connections that can be asked for.
const MAX_CONNECTIONS: u64 = 4_000_000;
/// Largest window that can be asked for: what a window scale of 10 expresses.
const MAX_WINDOW_KIB: u32 = 65_536;

/// Longest time without work for which an engine keeps its processor busy: one second.
const MAX_SPIN_US: u64 = 1_000_000;

/// Longest patience of --until-idle: a day.
const MAX_IDLE_S: u64 = 86_400;

/// Run the engine: TCP/IP on an interface, for the programs that `shunt run` starts.
///
/// It stays in the foreground and ends with SIGINT or SIGTERM; its programs' connections end then.
/// Whoever may connect to its control socket may use its addresses: everybody in the network namespace, unless --name is a
/// path. SHUNT_LOG sets what it logs
/// (info by default; warn, debug).
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:
  shunt engine --nic eth0                                        (shares the kernel's addresses)
  shunt engine --nic eth0 --address 10.0.0.5/24 --gateway 10.0.0.1
  shunt engine --nic shunt0 --driver tap --address 10.9.0.2/24   (creates the TAP interface shunt0)
  shunt engine --nic eth0 --driver af_xdp --address 10.0.0.5/24
  shunt engine --nic 0000:03:00.0 --driver dpdk --cores 4 --address 10.0.0.5/24       (see docs/dpdk.md)
  shunt engine --nic eth0 --address 10.0.0.5/24,2001:db8::5/64 --gateway 10.0.0.1,fe80::1
  shunt engine --nic eth0 --address 10.0.0.5/24 --capture engine.pcapng
  shunt engine --nic eth0 --address 10.0.0.5/24 --protocols tcp,icmp   (no IPv6, no UDP)
  shunt engine --nic eth0 --address 10.0.0.5/24 --background
  shunt engine --nic eth0 --name /run/shunt/a --control-mode 0660 --control-group net   (who may attach)
  shunt lab exec a -- shunt engine --background                  (a lab names interface and address)

Exit status: 0 where it was told to end or, with --until-idle, nobody needs it any more; 2 where it
could not start or its device failed.")]
pub struct Arguments {
    /// Interface to use; with --driver tap, the one to create; with --driver dpdk a PCI address, or a virtual
    /// device with its options: net_tap0,iface=shunt0.
    #[arg(long, value_name = "IFACE", env = lab::NIC_VARIABLE)]
    pub(super) nic: String,
    /// How to reach the interface [default: what `shunt doctor --measure` found best for --profile, or af_packet].
    #[arg(long, value_enum)]
    pub(super) driver: Option<DriverName>,
    /// What the driver is chosen for, where none is named and the interface was measured.
    #[arg(long, value_enum, default_value_t, conflicts_with = "driver")]
    pub(super) profile: Profile,
    /// With --driver af_xdp: where frames are taken [generic works on every interface; native and zero-copy need
    /// its driver].
    #[arg(
        long,
        value_name = "MODE",
        requires = "driver",
        default_value = Mode::default().name(),
        value_parser = parse_mode
    )]
    pub(super) xdp_mode: Mode,
    /// With --driver dpdk: further options for DPDK (its EAL parameters), separated by blanks: --dpdk-args='-m 1024'.
    #[arg(long, value_name = "OPTIONS", allow_hyphen_values = true)]
    pub(super) dpdk_args: Option<String>,
    /// IPv4 or IPv6 address that the engine owns, with its prefix length; the kernel must not have it.
    /// Repeatable. Without one the engine shares the kernel's addresses.
    #[arg(long, value_name = "ADDRESS/PREFIX", env = lab::ADDRESS_VARIABLE, value_delimiter = ',')]
    pub(super) address: Vec<Address>,
    /// With --driver dpdk and --nic IFACE: take the card behind the interface from the kernel, which loses the interface and its
    /// addresses, and give it back when the engine has ended.
    #[arg(long)]
    pub(super) take_card: bool,
    /// Share the interface's addresses with the kernel although the environment names others (a lab's does).
    /// The engine gets its programs' ports and connections, the kernel everything else. Needs CAP_NET_RAW,
    /// CAP_NET_ADMIN and CAP_BPF. Not with --driver tap.
    #[arg(long)]
    pub(super) share: bool,
    /// Share although rules of the firewall could drop what the engine sends or receives: its packets pass them by.
    #[arg(long)]
    pub(super) ignore_firewall: bool,
    /// Router for destinations outside the addresses' networks; one for IPv4 and one for IPv6.
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',')]
    pub(super) gateway: Vec<IpAddr>,
    /// Take IPv6 addresses and a router from what the link's routers announce (RFC 4862).
    #[arg(long)]
    pub(super) autoconfigure: bool,
    /// Protocols to speak beside IPv4: any of ipv6, tcp, udp and icmp. Sockets of one that is left out stay with
    /// the kernel, packets of it are refused as unknown. ARP belongs to IPv4, neighbour discovery to ipv6,
    /// multicast to udp.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "ipv6,tcp,udp,icmp", value_parser = parse_protocol)]
    pub(super) protocols: Vec<Protocols>,
    /// Name of the control socket: @NAME (abstract, one per network namespace) or a path. `shunt status` finds those whose
    /// name begins with @shunt/ by itself; others are named to it with --engine.
    #[arg(long, default_value = hostif::DEFAULT_ENGINE_NAME)]
    pub(super) name: String,
    /// Permission bits of a control socket that has a path, such as 0660: who may write to it may attach [default: what the
    /// umask leaves, most often its user alone].
    #[arg(long, value_name = "MODE", value_parser = parse_permissions)]
    pub(super) control_mode: Option<u32>,
    /// Group of a control socket that has a path, by name or number.
    #[arg(long, value_name = "GROUP")]
    pub(super) control_group: Option<String>,
    /// What the programs of one user may have of the engine's sessions, descriptors and sockets, and of the memory of windows, in
    /// percent; of root and of who runs the engine only an eighth of the descriptors is kept back.
    #[arg(long, value_name = "PERCENT", default_value_t = engine::USER_SHARE_PERCENT, value_parser = clap::value_parser!(u8).range(1..=100))]
    pub(super) user_share: u8,
    /// Engine cores: threads that share nothing, over which connections are spread. Not with --driver tap.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=i64::from(hostif::CORES_MAX)))]
    pub(super) cores: u16,
    /// With several cores: leave a card's receive queues, the key of its hash and its table, as they are; connections are then
    /// spread over cores by another hash than the card's.
    #[arg(long)]
    pub(super) leave_card: bool,
    /// Processor to run on, one for each core: 2 or 2,3; the scheduler's choice otherwise.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(super) cpu: Vec<usize>,
    /// How long an idle engine looks for work before it sleeps, in microseconds.
    #[arg(long, value_name = "US", default_value_t = 50, value_parser = clap::value_parser!(u64).range(..=MAX_SPIN_US))]
    pub(super) spin_us: u64,
    /// Connections at most.
    #[arg(long, value_name = "N", default_value_t = 65_536, value_parser = clap::value_parser!(u64).range(1..=MAX_CONNECTIONS))]
    pub(super) max_connections: u64,
    /// Send and receive window of each connection, in KiB; a power of two. Paths with a larger product of
    /// rate and delay need more. Only pages in use cost memory.
    #[arg(long, value_name = "KIB", default_value_t = 2048, value_parser = parse_window)]
    pub(super) window_kib: u32,
    /// Memory of all windows of a core, in MiB, above which the receive windows that peers are offered stop
    /// growing and new ones are small. From three quarters of it on programs are told of data at once, whatever
    /// `shunt run --notify` says.
    #[arg(long, value_name = "MIB", default_value_t = 4096, value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    pub(super) window_memory_mib: u64,
    /// Memory of the windows of one program at a core, in MiB, above which it gets no new connection until it has less
    /// [default: as much as all may have].
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    pub(super) program_memory_mib: Option<u64>,
    /// Congestion control of connections whose program sets none: reno, cubic, bbr or dctcp.
    #[arg(long, value_name = "NAME", default_value = CongestionControl::default().name(), value_parser = parse_congestion)]
    pub(super) congestion: CongestionControl,
    /// Explicit congestion notification, numbered as the kernel's net.ipv4.tcp_ecn: 0 off, 1 ask and grant,
    /// 2 grant, 3 ask for accurate ECN and grant either, 4 ask for the older one and grant either, 5 grant either.
    /// [default: that setting]
    #[arg(long, value_name = "MODE", value_parser = clap::value_parser!(u8).range(..=5))]
    pub(super) ecn: Option<u8>,
    /// TCP Fast Open, numbered as the kernel's net.ipv4.tcp_fastopen, a sum: 1 programs that connect, 2 listeners
    /// with TCP_FASTOPEN, 4 data goes without a cookie, 512 is taken without one, 1024 listeners without the option.
    /// [default: that setting]
    #[arg(long, value_name = "MODES", value_parser = parse_fast_open)]
    pub(super) fastopen: Option<u32>,
    /// Answer SYNs with cookies, numbered as the kernel's net.ipv4.tcp_syncookies: 0 never, 1 while the queue of
    /// handshakes is full, 2 always.
    /// [default: that setting]
    #[arg(long, value_name = "MODE", value_parser = clap::value_parser!(u8).range(..=2))]
    pub(super) syncookies: Option<u8>,
    #[command(flatten)]
    pub(super) offloads: Offloads,
    /// Let processors sleep deeply even while programs are attached.
    #[arg(long)]
    pub(super) allow_deep_idle: bool,
    /// Write every frame to this file, in pcapng form.
    #[arg(long, value_name = "FILE")]
    pub(super) capture: Option<PathBuf>,
    /// End by itself: after SECONDS in which none of the programs that came here lives and no
    /// connection of theirs is left to be closed.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=MAX_IDLE_S))]
    pub(super) until_idle: Option<u64>,
    /// Why it is a process of its own, for `shunt status`.
    #[arg(long, value_name = "TEXT", hide = true)]
    pub(super) because: Option<String>,
    /// Wait for the end of a program with an engine inside, and reset what it leaves: started by that engine.
    #[arg(long, hide = true, conflicts_with = "background")]
    pub(super) guard: bool,
    /// Have the card spread frames as an engine does until that has ended: the engine's process, and its key; started by it.
    #[arg(
        long,
        value_name = "PID,KEY",
        hide = true,
        conflicts_with = "background"
    )]
    pub(super) tend_card: Option<Tended>,
    /// Say whether this build can go on with the state of an engine that was started like this, which is standard input.
    #[arg(long, hide = true, conflicts_with = "background")]
    pub(super) check_state: bool,
    /// Start in the background and return once programs can attach.
    #[arg(long)]
    pub(super) background: bool,
    /// How lines of the log are written: text for people, or a JSON object each with `timestamp`, `level`, `target` and
    /// `fields`.
    #[arg(long, value_enum, default_value_t)]
    pub(super) log_format: LogFormat,
    /// Where an engine in the background writes its messages; a file of the last start is replaced
    /// [default: named after the control socket, beside the state of this user's labs].
    #[arg(long, value_name = "FILE", requires = "background")]
    pub(super) log: Option<PathBuf>,
}

/// How lines of the log are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// An object each.
    Json,
}

/// Reads `--xdp-mode`.
pub fn parse_mode(text: &str) -> Result<Mode, String> {
    let named = Mode::ALL.into_iter().find(|mode| mode.name() == text);
    named.ok_or_else(|| format!("give one of {}", Mode::ALL.map(Mode::name).join(", ")))
}

impl Arguments {
    /// How the interface is reached.
    pub(super) fn driver(&self) -> DriverName {
        self.driver.unwrap_or(DriverName::AfPacket)
    }

    /// Whether the addresses are the kernel's too.
    pub(super) fn is_shared(&self) -> bool {
        self.share || self.address.is_empty()
    }

    /// Addresses that are the engine's alone.
    pub(super) fn own_addresses(&self) -> &[Address] {
        if self.is_shared() { &[] } else { &self.address }
    }
}

fn parse_permissions(text: &str) -> Result<u32, String> {
    let bits = u32::from_str_radix(text, 8).ok();
    bits.filter(|bits| *bits <= 0o777)
        .ok_or_else(|| "give permission bits in octal, such as 0660".to_owned())
}

fn parse_protocol(text: &str) -> Result<Protocols, String> {
    Protocols::named(text).ok_or_else(|| {
        let names = Protocols::NAMES.map(|(_, name)| name);
        format!("give any of {}; IPv4 is always there", names.join(", "))
    })
}

fn parse_congestion(text: &str) -> Result<CongestionControl, String> {
    CongestionControl::from_name(text).ok_or_else(|| {
        let names = CongestionControl::ALL.map(CongestionControl::name);
        format!("give one of {}", names.join(", "))
    })
}

fn parse_fast_open(text: &str) -> Result<u32, String> {
    let modes = text.parse().ok().and_then(FastOpenModes::from_bits);
    modes
        .map(|modes| modes.bits())
        .ok_or_else(|| "give a sum of 1, 2, 4, 512 and 1024".to_owned())
}

fn parse_window(text: &str) -> Result<u32, String> {
    let kib: u32 = text.parse().map_err(|_| "not a number".to_owned())?;
    if kib.is_power_of_two() && (4..=MAX_WINDOW_KIB).contains(&kib) {
        Ok(kib)
    } else {
        Err(format!("give a power of two from 4 to {MAX_WINDOW_KIB}"))
    }
}

/// How packets get to the interface and from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum DriverName {
    /// Any interface, through a packet socket; needs CAP_NET_RAW.
    AfPacket,
    /// Any interface, by AF_XDP; on virtual ones no faster than af_packet yet; needs CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF. Where it cannot be
    /// had, af_packet serves instead and says so.
    AfXdp,
    /// A new TAP interface towards this host's own kernel; needs CAP_NET_ADMIN.
    Tap,
    /// A network card that the kernel has given up, or one of DPDK's virtual devices. Only in a shunt that was built
    /// with the cargo feature dpdk.
    Dpdk,
}

impl DriverName {
    /// As on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AfPacket => "af_packet",
            Self::AfXdp => "af_xdp",
            Self::Tap => "tap",
            Self::Dpdk => "dpdk",
        }
    }
}

/// What an engine is to be good at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Profile {
    /// The shortest round trip.
    Latency,
    /// The most bytes a second.
    Throughput,
    /// The most bytes a second among the ways whose round trip is near the shortest.
    #[default]
    Auto,
}

impl Profile {
    /// As on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Latency => "latency",
            Self::Throughput => "throughput",
            Self::Auto => "auto",
        }
    }
}
