//! What an engine is started with.

use core::net::{IpAddr, Ipv4Addr};
use core::str::FromStr;
use hostif::Layout;
use nic::af_packet::Numbers;
use nic::sharing::Claims;
use rustix::fd::{OwnedFd, RawFd};
use stack::{FastOpenModes, InterfaceAddress, Offers, SynCookies};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use tcp::SocketOptions;

/// An address that the engine owns, with the length of its network's prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// The address.
    pub address: IpAddr,
    /// Bits that name the network.
    pub prefix_len: u8,
}

impl Address {
    /// Whether `other` is in the address's network.
    pub fn contains(&self, other: IpAddr) -> bool {
        self.interface_address().contains(other)
    }

    /// As the stack calls it.
    pub const fn interface_address(&self) -> InterfaceAddress {
        InterfaceAddress {
            address: self.address,
            prefix_len: self.prefix_len,
        }
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} is no address with a prefix length, such as 10.0.0.5/24 or 2001:db8::5/64"
            )
        };
        let (address, prefix_len) = text.split_once('/').ok_or_else(wrong)?;
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let prefix_len = prefix_len
            .parse()
            .ok()
            .filter(|len: &u8| *len <= if address.is_ipv4() { 32 } else { 128 })
            .ok_or_else(wrong)?;
        if address.is_unspecified()
            || address.is_loopback()
            || address.is_multicast()
            || address == IpAddr::V4(Ipv4Addr::BROADCAST)
            || address.to_canonical() != address
        {
            return Err(format!(
                "{address} cannot be an engine's own address: give a unicast address of the network"
            ));
        }
        Ok(Self {
            address,
            prefix_len,
        })
    }
}

/// What the programs of one user may have, unless it is said: see [`Config::user_share_percent`].
pub const USER_SHARE_PERCENT: u8 = 50;

/// Bounds on what programs and peers can make the engine hold.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections, TIME-WAIT not counted.
    pub connections: usize,
    /// Listening sockets.
    pub listeners: usize,
    /// Connections in TIME-WAIT.
    pub time_waits: usize,
    /// UDP sockets.
    pub datagrams: usize,
    /// Attached programs.
    pub sessions: usize,
    /// Rings, headers and windows of each attached program.
    pub region: Layout,
    /// Memory of all windows of a core, above which offered windows stop growing.
    pub window_memory_bytes: u64,
    /// Memory of the windows of one program at a core, above which it is given no more.
    pub program_memory_bytes: u64,
    /// First and last port for connections whose program chose none.
    pub ephemeral_ports: (u16, u16),
}

impl Limits {
    /// What each of several cores may hold. Connections spread evenly over them; listeners and programs are at all of them.
    pub fn of_core(&self, cores: u16) -> Self {
        let cores = usize::from(cores);
        Self {
            connections: self.connections.div_ceil(cores),
            time_waits: self.time_waits.div_ceil(cores),
            ..*self
        }
    }

    /// Sockets of all kinds together.
    pub fn rows(&self) -> usize {
        self.connections + self.listeners + self.datagrams + self.sessions
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: stack::tables::CONNECTIONS_DEFAULT,
            listeners: stack::tables::LISTENERS_DEFAULT,
            time_waits: stack::tables::TIME_WAITS_DEFAULT,
            datagrams: stack::udp::UDP_SOCKETS_DEFAULT,
            sessions: 1_024,
            region: Layout::default(),
            window_memory_bytes: 4 << 30,
            program_memory_bytes: u64::MAX,
            ephemeral_ports: stack::Config::new([0; 16]).ephemeral_ports,
        }
    }
}

/// How an engine shares the kernel's addresses.
#[derive(Clone, Debug)]
pub struct Sharing {
    /// Keeps the engine's packets from the kernel; without it the kernel gets them too, and the
    /// backing sockets have to keep it silent.
    pub claims: Option<Arc<dyn Claims>>,
}

/// What an engine asks of the process that it is in, where that is one of its own.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessHooks {
    /// How the process is protected, for reports.
    pub protections: Option<fn() -> serde_json::Value>,
    /// Called once a second by each core.
    pub look_after: Option<fn()>,
}

/// What outlives an engine's process: docs/decisions/0067-state-that-outlives-its-engine.md.
#[derive(Clone, Debug)]
pub struct KeptState {
    /// The file with its state.
    pub state: Arc<OwnedFd>,
    /// The keeper's process.
    pub keeper: u32,
    /// Where programs attach.
    pub listener: Arc<OwnedFd>,
    /// Another engine was there before, and this one goes on where it stopped, with the descriptors that it had open.
    pub goes_on: bool,
    /// What engines before this one have left open, as its process found it before it opened anything.
    pub left: Vec<RawFd>,
    /// The queues of this engine's device, in the order of the cores, for the engine after it; empty: it opens the device anew.
    pub device: Vec<Numbers>,
    /// `CLOCK_MONOTONIC` when the engine before had ended, nanoseconds.
    pub stopped_ns: u64,
    /// What became of the engines before, for reports.
    pub history: History,
}

/// What became of the engines before this one, for reports.
#[derive(Clone, Copy, Debug, Default)]
pub struct History {
    /// When the first began to serve, seconds since 1970.
    pub since_s: u64,
    /// Ends that nobody asked for, after which the next one went on.
    pub restarts: u32,
    /// Times that another build took over.
    pub upgrades: u32,
    /// Times that another build did not live, and this one went on.
    pub failed_upgrades: u32,
    /// When one of these happened last, seconds since 1970.
    pub last_s: Option<u64>,
    /// From the end of the engine before until this one served, microseconds.
    pub pause_us: Option<u64>,
}

impl History {
    /// As reports have it.
    pub fn to_json(self) -> serde_json::Value {
        serde_json::json!({
            "pid": std::process::id(),
            "since_s": self.since_s,
            "restarts": self.restarts,
            "upgrades": self.upgrades,
            "failed_upgrades": self.failed_upgrades,
            "last_s": self.last_s,
            "pause_us": self.pause_us,
        })
    }
}

/// What an engine is started with, besides its driver.
#[derive(Clone, Debug)]
pub struct Config {
    /// Name of the control socket: `@name` (abstract) or a path.
    pub name: String,
    /// Who may connect to it, where its name is a path.
    pub access: hostif::control::SocketAccess,
    /// What the programs of one user, who is neither root nor runs the engine, may have of sessions, descriptors, sockets and the memory of windows, in percent.
    pub user_share_percent: u8,
    /// The interface's name, for reports.
    pub interface: String,
    /// The driver's name, for reports.
    pub driver: String,
    /// Why it is another driver than was asked for, for reports.
    pub driver_note: Option<String>,
    /// Whether it is inside a program, for reports.
    pub is_inside: bool,
    /// Why it is there or in a process of its own, for reports.
    pub because: Option<String>,
    /// Addresses to own on the interface; at least one, and none where the kernel's are shared.
    pub addresses: Vec<Address>,
    /// Share the kernel's addresses on the interface.
    pub sharing: Option<Sharing>,
    /// Where packets for other networks go: at most one for each family.
    pub gateways: Vec<IpAddr>,
    /// The interface's number, as programs name it beside link-local addresses.
    pub interface_index: u32,
    /// Take IPv6 addresses and default routers from what the link's routers announce.
    pub router_discovery: bool,
    /// What it speaks besides IPv4.
    pub protocols: stack::Protocols,
    /// Bounds.
    pub limits: Limits,
    /// What sockets begin with, congestion control among it.
    pub socket_options: SocketOptions,
    /// Settings of the kernel that are followed, of [`crate::sysctl::names`]: they override what is here.
    pub sysctls: Vec<&'static str>,
    /// Which options of TCP are used.
    pub offers: Offers,
    /// Who uses TCP Fast Open.
    pub fast_open: FastOpenModes,
    /// Keys of its cookies; none: a secret of the engine's.
    pub fast_open_keys: [Option<[u8; 16]>; 2],
    /// Bytes of its receive window that a connection offers at first.
    pub receive_offer: u32,
    /// What a receive window may grow to, bytes: the scale of window fields comes from it.
    pub receive_buffer_max: u32,
    /// When SYNs are answered with cookies.
    pub syn_cookies: SynCookies,
    /// Resets do not end TIME-WAIT (RFC 1337).
    pub protects_time_wait: bool,
    /// The processor for each core's thread; empty: the scheduler's choice.
    pub cpus: Vec<usize>,
    /// How long an idle engine looks for work before it sleeps, microseconds.
    pub spin_us: u64,
    /// Keep processors from deep idle states while programs are attached (`/dev/cpu_dma_latency`).
    pub hold_idle_latency: bool,
    /// End after this many seconds without a living program that came here and without a connection
    /// that is still to be closed; `None`: stay.
    pub until_idle_s: Option<u64>,
    /// Lines of the log that could not be written, counted by whoever writes it; for reports.
    pub lost_log_lines: Arc<AtomicU64>,
    /// The state of an engine that has ended, whose connections this one has to reset (`engine::reset_left`).
    pub left: Option<Arc<OwnedFd>>,
    /// What a keeper process holds for this engine and those that come after it.
    pub kept: Option<KeptState>,
    /// Of the process around the engine.
    pub process: ProcessHooks,
}

impl Config {
    /// What the stack of one core is given.
    pub fn of_stack(&self, core: u16, secret: [u8; 16]) -> stack::Config {
        stack::Config {
            ephemeral_ports: self.limits.ephemeral_ports,
            announces_addresses: core == 0,
            shares_addresses: self.sharing.is_some(),
            protocols: self.protocols,
            offers: self.offers,
            fast_open: self.fast_open,
            fast_open_keys: self.fast_open_keys,
            receive_offer: self.receive_offer,
            receive_buffer_max: self.receive_buffer_max,
            syn_cookies: self.syn_cookies,
            protects_time_wait: self.protects_time_wait,
            ..stack::Config::new(secret)
        }
    }

    /// The defaults for an engine on `interface` that owns `addresses`.
    pub fn new(interface: &str, driver: &str, addresses: Vec<Address>) -> Self {
        Self {
            name: hostif::DEFAULT_ENGINE_NAME.to_owned(),
            interface: interface.to_owned(),
            driver: driver.to_owned(),
            driver_note: None,
            is_inside: false,
            because: None,
            addresses,
            sharing: None,
            gateways: Vec::new(),
            interface_index: 1,
            router_discovery: false,
            protocols: stack::Protocols::all(),
            limits: Limits::default(),
            socket_options: SocketOptions::default(),
            sysctls: Vec::new(),
            offers: Offers::ALL,
            fast_open: FastOpenModes::CLIENT,
            fast_open_keys: [None; 2],
            receive_offer: stack::Config::new([0; 16]).receive_offer,
            receive_buffer_max: tcp::RECEIVE_BUFFER_MAX,
            syn_cookies: SynCookies::default(),
            protects_time_wait: false,
            cpus: Vec::new(),
            spin_us: 50,
            hold_idle_latency: true,
            until_idle_s: None,
            lost_log_lines: Arc::default(),
            access: hostif::control::SocketAccess::default(),
            user_share_percent: USER_SHARE_PERCENT,
            left: None,
            kept: None,
            process: ProcessHooks::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_need_a_prefix_and_must_be_unicast() {
        assert_eq!(
            "10.0.0.5/24".parse::<Address>().unwrap(),
            Address {
                address: Ipv4Addr::new(10, 0, 0, 5).into(),
                prefix_len: 24
            }
        );
        let v6: Address = "2001:db8::5/64".parse().unwrap();
        assert!(v6.address.is_ipv6() && v6.prefix_len == 64);
        for wrong in [
            "10.0.0.5",
            "10.0.0.5/33",
            "/24",
            "127.0.0.1/8",
            "224.0.0.1/4",
            "0.0.0.0/0",
            "ten/8",
            "2001:db8::5/129",
            "::1/128",
            "ff02::1/16",
            "::ffff:10.0.0.5/120",
        ] {
            assert!(wrong.parse::<Address>().is_err(), "{wrong}");
        }
    }
}
