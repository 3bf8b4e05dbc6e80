//! One interface and its addresses, shared with the kernel: which packets are an engine's.
//!
//! The engine claims addresses, local ports that it listens on, and flows. Two programs look the claims up
//! in the same maps (`program.rs`): a socket filter admits to the engine's packet sockets what is claimed,
//! and its opposite at the TCX ingress hook keeps the same packets from the kernel, which it comes
//! to after the packet sockets. Everything else passes both untouched. With AF_XDP a third takes them before
//! either. When the process dies all are gone, and the kernel has the interface to itself again.
//!
//! Bounds: [`CLAIMS_MAX`] claims of all kinds; what is beyond them is refused with `ENOBUFS`.

mod program;
mod socket_filter;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bpf::{
    AssembleError, Assembler, Error as BpfError, Instruction, Label, Link, Map, MapKind, Program,
    ProgramKind, TcxHook,
};

pub use socket_filter::{drop_kernel_copy, restore};

/// Claims at most, of all kinds together.
pub const CLAIMS_MAX: u32 = 65_536;
/// Local ports of both protocols.
const PORTS: u32 = 2 * 65_536;

/// Which protocol's ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

/// Something that is the engine's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// An address of the interface. Nothing is taken by this alone; ports on all addresses need it.
    Address(IpAddr),
    /// Whatever arrives at a local port: of one address, or with the unspecified one of all claimed addresses
    /// of its family, and where `is_dual` of both families.
    Port {
        /// TCP or UDP.
        transport: Transport,
        /// Address and port.
        local: SocketAddr,
        /// The unspecified address of IPv6 stands for IPv4 as well.
        is_dual: bool,
    },
    /// What a peer sends to one end of ours.
    Flow {
        /// TCP or UDP.
        transport: Transport,
        /// Our end.
        local: SocketAddr,
        /// The peer's.
        remote: SocketAddr,
    },
    /// The same of a connection that the kernel has, on a port that is claimed: it stays the kernel's.
    KernelsFlow {
        /// Our end.
        local: SocketAddr,
        /// The peer's.
        remote: SocketAddr,
    },
}

/// Takes claims, and gives them up.
pub trait Claims: std::fmt::Debug + Send + Sync {
    /// From now on such packets come to the engine alone. The same address or port may be taken several
    /// times, and is the engine's until it was left as often; a flow is taken or it is not.
    ///
    /// # Errors
    /// `ENOBUFS`: there are [`CLAIMS_MAX`] claims already.
    fn take(&self, claim: Claim) -> io::Result<()>;

    /// They go to the kernel again.
    fn leave(&self, claim: Claim);
}

/// Why an interface cannot be shared.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ShareError {
    /// The kernel does not do what is needed.
    #[error(transparent)]
    Bpf(#[from] BpfError),
    /// A program of ours is wrong.
    #[error(transparent)]
    Program(#[from] AssembleError),
}

impl ShareError {
    /// Whether a privilege is what is missing.
    #[must_use]
    pub const fn is_privilege(&self) -> bool {
        matches!(self, Self::Bpf(error) if error.is_privilege())
    }
}

/// The value of a key in the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
enum Verdict {
    Engine = 1,
    Kernel = 2,
}

/// Bits of a port's word.
mod port {
    /// Claimed on all IPv4 addresses.
    pub const ANY_V4: u32 = 1;
    /// Claimed on all IPv6 addresses.
    pub const ANY_V6: u32 = 2;
    /// Claimed on some addresses: look.
    pub const SPECIFIC: u32 = 4;
    /// There are flows: look.
    pub const FLOWS: u32 = 8;
    pub const ALL: [u32; 4] = [ANY_V4, ANY_V6, SPECIFIC, FLOWS];
}

/// What a claim is found by: both addresses (IPv4 ones mapped into IPv6, RFC 4291 §2.5.5.2), both ports in
/// network order, the protocol, and zeros.
const KEY_BYTES: usize = 40;
type Key = [u8; KEY_BYTES];

fn key(transport: Option<Transport>, local: SocketAddr, remote: Option<SocketAddr>) -> Key {
    let mapped = |ip: IpAddr| match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    };
    let mut key = [0; KEY_BYTES];
    if let Some(remote) = remote {
        key[..16].copy_from_slice(&mapped(remote.ip()));
        key[32..34].copy_from_slice(&remote.port().to_be_bytes());
    }
    key[16..32].copy_from_slice(&mapped(local.ip()));
    key[34..36].copy_from_slice(&local.port().to_be_bytes());
    key[36] = transport.map_or(0, number);
    key
}

const fn number(transport: Transport) -> u8 {
    match transport {
        Transport::Tcp => 6,
        Transport::Udp => 17,
    }
}

/// What is claimed on one port: how often each bit was asked for.
type Uses = [u32; port::ALL.len()];

#[derive(Debug, Default)]
struct State {
    entries: HashMap<Key, (Verdict, u32)>,
    ports: HashMap<u32, Uses>,
}

/// A claim as the maps have it.
struct Parts {
    /// Its entry; ports on all addresses have none.
    entry: Option<(Key, Verdict)>,
    /// Its port and the bits there; addresses have none.
    port: Option<(u32, u32)>,
}

impl Parts {
    fn is_flow(&self) -> bool {
        matches!(self.port, Some((_, port::FLOWS)))
    }

    fn of(claim: Claim) -> Self {
        let index = |transport, port: u16| match transport {
            Transport::Tcp => u32::from(port),
            Transport::Udp => u32::from(port) + PORTS / 2,
        };
        match claim {
            Claim::Address(address) => Self {
                entry: Some((
                    key(None, SocketAddr::new(address, 0), None),
                    Verdict::Engine,
                )),
                port: None,
            },
            Claim::Port {
                transport,
                local,
                is_dual,
            } if local.ip().is_unspecified() => {
                let bits = match (local.ip(), is_dual) {
                    (IpAddr::V4(_), _) => port::ANY_V4,
                    (IpAddr::V6(_), false) => port::ANY_V6,
                    (IpAddr::V6(_), true) => port::ANY_V4 | port::ANY_V6,
                };
                Self {
                    entry: None,
                    port: Some((index(transport, local.port()), bits)),
                }
            }
            Claim::Port {
                transport, local, ..
            } => Self {
                entry: Some((key(Some(transport), local, None), Verdict::Engine)),
                port: Some((index(transport, local.port()), port::SPECIFIC)),
            },
            Claim::Flow {
                transport,
                local,
                remote,
            } => Self {
                entry: Some((key(Some(transport), local, Some(remote)), Verdict::Engine)),
                port: Some((index(transport, local.port()), port::FLOWS)),
            },
            Claim::KernelsFlow { local, remote } => Self {
                entry: Some((
                    key(Some(Transport::Tcp), local, Some(remote)),
                    Verdict::Kernel,
                )),
                port: Some((index(Transport::Tcp, local.port()), port::FLOWS)),
            },
        }
    }
}

/// What is claimed, here and in the kernel's maps.
#[derive(Debug)]
pub(crate) struct Tables {
    entries: Map,
    ports: Map,
    state: Mutex<State>,
}

/// An interface that is shared with the kernel until this is dropped.
#[derive(Debug)]
pub struct Sharing {
    tables: Tables,
    admit: Program,
    take: Program,
    /// Where the second stands: number of the interface, and the link.
    taken: Mutex<(u32, Link)>,
}

impl Sharing {
    /// Prepares interface number `interface`; nothing is claimed yet.
    ///
    /// # Errors
    /// No privilege for BPF, or a kernel without TCX.
    pub fn open(interface: u32) -> Result<Self, ShareError> {
        let tables = Tables::create()?;
        let admit = tables.program(program::Side::Engine)?;
        let admit = Program::load(ProgramKind::SocketFilter, "shunt_admit", &admit)?;
        let take = tables.program(program::Side::Kernel)?;
        let take = Program::load(ProgramKind::Classifier, "shunt_take", &take)?;
        Ok(Self {
            taken: Mutex::new((interface, Link::tcx(&take, interface, TcxHook::Ingress)?)),
            tables,
            admit,
            take,
        })
    }

    /// Makes a packet socket of the interface receive what is claimed and nothing else.
    ///
    /// # Errors
    /// The kernel refuses the filter.
    pub fn admit_to(&self, socket: BorrowedFd<'_>) -> io::Result<()> {
        self.admit.attach_to_socket(socket)
    }

    /// For an XDP program of the interface.
    pub(crate) fn tables(&self) -> &Tables {
        &self.tables
    }

    /// Whether the kernel still leaves to the engine what is claimed; not if the interface is gone, or somebody
    /// has taken the program away.
    ///
    /// # Errors
    /// The kernel does not say.
    pub fn is_in_force(&self) -> Result<bool, ShareError> {
        Ok(self.taken().1.is_attached()?)
    }

    /// The interface was made anew and has this number: what is claimed is kept from the kernel there too.
    ///
    /// # Errors
    /// As [`Sharing::open`].
    pub fn follow(&self, interface: u32) -> Result<(), ShareError> {
        let mut taken = self.taken();
        if taken.0 != interface || !taken.1.is_attached()? {
            let link = Link::tcx(&self.take, interface, TcxHook::Ingress)?;
            *taken = (interface, link);
        }
        Ok(())
    }

    fn taken(&self) -> MutexGuard<'_, (u32, Link)> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Claims for Sharing {
    fn take(&self, claim: Claim) -> io::Result<()> {
        self.tables.take(claim)
    }

    fn leave(&self, claim: Claim) {
        self.tables.leave(claim);
    }
}

impl Tables {
    pub(crate) fn create() -> Result<Self, BpfError> {
        let key_bytes = u32::try_from(KEY_BYTES).expect("invariant: a key is small");
        Ok(Self {
            entries: Map::create(MapKind::Hash, "shunt_claims", key_bytes, 4, CLAIMS_MAX)?,
            ports: Map::create(MapKind::Array, "shunt_ports", 4, 4, PORTS)?,
            state: Mutex::default(),
        })
    }

    fn program(&self, side: program::Side) -> Result<Vec<Instruction>, AssembleError> {
        program::build(side, &self.entries, &self.ports)
    }

    /// Begins an XDP program: it goes on at the first label with a frame for `station` that is claimed, and at
    /// the second with any other; R6 is its context.
    pub(crate) fn judge(&self, begun: &mut Assembler, station: [u8; 6], ours_others: [Label; 2]) {
        program::judge(begun, [&self.entries, &self.ports], station, ours_others);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a port's word anew.
    fn write_port(&self, state: &State, index: u32) -> io::Result<()> {
        let uses = state.ports.get(&index).copied().unwrap_or_default();
        let used = port::ALL.iter().zip(uses).filter(|(_, count)| *count > 0);
        let word = used.fold(0, |word, (bit, _)| word | bit);
        self.ports.update(&index.to_ne_bytes(), &word.to_ne_bytes())
    }

    fn change_port(&self, state: &mut State, (index, bits): (u32, u32), adds: bool) {
        let uses = state.ports.entry(index).or_default();
        let mut changed = false;
        for (bit, count) in port::ALL.iter().zip(uses.iter_mut()) {
            if bits & bit != 0 {
                let before = *count;
                *count = if adds {
                    before.saturating_add(1)
                } else {
                    before.saturating_sub(1)
                };
                changed |= (before == 0) != (*count == 0);
            }
        }
        if *uses == Uses::default() {
            state.ports.remove(&index);
        }
        if changed {
            // An array has room for every port.
            let _ = self.write_port(state, index);
        }
    }
}

impl Claims for Tables {
    fn take(&self, claim: Claim) -> io::Result<()> {
        let parts = Parts::of(claim);
        let mut state = self.state();
        if let Some((key, verdict)) = parts.entry {
            match state.entries.entry(key) {
                Entry::Occupied(_) if parts.is_flow() => return Ok(()),
                Entry::Occupied(mut there) => there.get_mut().1 += 1,
                Entry::Vacant(room) => {
                    let written = self.entries.update(&key, &(verdict as u32).to_ne_bytes());
                    written.map_err(|error| match error.raw_os_error() {
                        Some(libc::E2BIG | libc::ENOMEM) => {
                            io::Error::from_raw_os_error(libc::ENOBUFS)
                        }
                        _ => error,
                    })?;
                    room.insert((verdict, 1));
                }
            }
        }
        // After the entry: who sees the port's word must find it.
        if let Some(port) = parts.port {
            self.change_port(&mut state, port, true);
        }
        Ok(())
    }

    fn leave(&self, claim: Claim) {
        let parts = Parts::of(claim);
        let mut state = self.state();
        if let Some((key, verdict)) = parts.entry {
            match state.entries.get_mut(&key) {
                Some((held, count)) if *held == verdict => {
                    *count -= 1;
                    if *count == 0 {
                        state.entries.remove(&key);
                        // It was there.
                        let _ = self.entries.delete(&key);
                    }
                }
                // Never taken.
                _ => return,
            }
        }
        if let Some(port) = parts.port {
            self.change_port(&mut state, port, false);
        }
    }
}
