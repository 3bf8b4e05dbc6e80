//! connect(2) of a TCP socket: the last moment to decide which stack it is on.

use core::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use client::engines::{self, AllNetworks, Candidates, EngineIndex, Engines, Flow};
use client::route::EngineNetworks;
use client::{Session, Sharing, TcpSocket, route};
use hostif::Transport;
use rustix::io::Errno;

use crate::backing::{bind_port, local_of};
use crate::bind::Local;
use crate::device::Device;

/// What a connect is judged by.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// Whom the program names.
    pub destination: SocketAddr,
    /// Where the socket is bound.
    pub local: Local,
    /// Whose interface it is bound to.
    pub device: Device,
    /// What would stay with the kernel is an error.
    pub is_engine_only: bool,
}

/// What a connection is made with.
#[derive(Clone, Copy, Debug)]
pub struct LocalEnd<'a> {
    /// The kernel's socket behind the descriptor.
    pub backing: BorrowedFd<'a>,
    /// Where that is bound, if it is known.
    pub local: Option<SocketAddr>,
    /// The program has said among which ports the kernel is to choose ([`PORT_RANGE`]).
    pub has_range: bool,
}

/// IP_LOCAL_PORT_RANGE, an option of both families (ip(7)).
pub const PORT_RANGE: (i32, i32) = (libc::IPPROTO_IP, 51);

/// Where a connection goes that an engine may carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Towards {
    /// The destination; without an address it is loopback.
    pub destination: SocketAddr,
    /// Engines that could carry it, at least one.
    candidates: Candidates,
    /// The kernel may carry what no engine can: it cannot send from an engine's own address.
    may_be_the_kernels: bool,
    /// It is on this host.
    stays_here: bool,
}

impl Request {
    /// Where it goes; `None`: it is the kernel's. ENETUNREACH: it would be, and the engine alone is wanted.
    pub fn decide(&self, engines: &Engines) -> Result<Option<Towards>, Errno> {
        let towards = self.towards(&engines.stream_networks())?;
        Ok(towards.filter(|towards| towards.is_heard(engines)))
    }

    /// As `decide`, without asking which stack has a listener there.
    pub fn towards(&self, all: &AllNetworks) -> Result<Option<Towards>, Errno> {
        let candidates = self.candidates(all)?;
        Ok((!candidates.is_empty()).then(|| Towards {
            destination: route::resolved(self.destination),
            candidates,
            may_be_the_kernels: !self.is_engine_only && !self.local.is_an_engines(),
            stays_here: engines::stays_here(self.destination.ip(), all),
        }))
    }

    fn candidates(&self, all: &AllNetworks) -> Result<Candidates, Errno> {
        let ip = self.destination.ip();
        let is_local = route::is_loopback(ip);
        if let Local::Bound(bound) = self.local {
            // Nobody else could send from it.
            if self.local.is_an_engines() {
                return Ok(Candidates::only(bound.place));
            }
            // It reaches nothing else, and the kernel says so.
            if !is_local && self.local.is_loopback() {
                return Ok(Candidates::default());
            }
        }
        let candidates = match self.device {
            _ if self.local == Local::Kernels => Candidates::default(),
            Device::Any => {
                let closest = engines::closest(self.destination, all);
                // An address that the kernel shares with one engine is not another engine's.
                let within = self.local.specific();
                within.map_or(closest, |bound| closest.limited_to(bound.place))
            }
            Device::Engine(place) => Candidates::only(place),
            Device::Loopback(place) if engines::stays_here(ip, all) => Candidates::only(place),
            // By `lo` nobody else is reached, and the kernel says so.
            Device::Loopback(_) => return Ok(Candidates::default()),
            Device::Kernel => Candidates::default(),
        };
        if candidates.is_empty() && self.is_engine_only && !is_local {
            return Err(Errno::NETUNREACH);
        }
        Ok(candidates)
    }
}

impl Towards {
    /// Whether the engine may have to carry it: where the kernel has the address too, a listener of the engine's is there.
    fn is_heard(&self, engines: &Engines) -> bool {
        let first = self.candidates.first();
        let session = first.and_then(|first| engines.session(first).ok());
        !self.is_on_both()
            || session.is_some_and(|session| session.holds(Transport::Tcp, self.destination))
    }

    /// Whether the kernel has listeners there too, and may have the connection.
    pub fn is_on_both(&self) -> bool {
        self.stays_here && self.may_be_the_kernels
    }

    /// Whether the kernel may succeed where the engines failed. Where the destination is on this host it has other
    /// listeners, and says itself that there is none.
    pub fn is_for_the_kernel(&self, error: Errno) -> bool {
        self.may_be_the_kernels && (self.stays_here || engines::is_refusal(error))
    }

    /// Begins on the first engine that can, with a socket of its. The local port is one that the backing socket holds as long as
    /// the connection has it, or, from an address that the engine alone has, one of the engine's choice: the kernel has no such
    /// address. What the backing socket holds is held on ANY rather than on the engine's address: after a failed connect the
    /// program may go to a destination of the kernel's. Not on loopback, where every address has ports of its own.
    pub fn open<T>(
        &self,
        engines: &'static Engines,
        from: &LocalEnd<'_>,
        begin: impl Fn(Arc<TcpSocket>, SocketAddr) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let (destination, backing) = (self.destination, from.backing);
        let with_port = |local: SocketAddr| match local.port() {
            0 => bind_port(backing, local),
            _ => Ok(local),
        };
        let mut local = from.local.map_or_else(|| local_of(backing), Ok)?;
        if !local.ip().is_unspecified() {
            local = with_port(local)?;
        }
        let bind = |session: &Session| {
            session.bind_towards(backing, destination)?;
            with_port(local_of(backing)?)
        };
        if engines.places_by_port() && local.port() == 0 {
            local = bind(engines.session(EngineIndex::FIRST)?)?;
        }
        let flow = Flow {
            local,
            remote: destination,
        };
        engines.first_that_opens(self.candidates, flow, |place| {
            let session = engines.session(place)?;
            if local.port() == 0 && (from.has_range || !self.is_port_the_engines(engines, place)?) {
                local = bind(session)?;
            }
            let socket = TcpSocket::open_towards(session, backing, local, destination)?;
            begin(socket, local)
        })
    }

    /// Whether the engine may choose the local port: the kernel gives it to nobody on the address that the connection comes from.
    fn is_port_the_engines(&self, engines: &Engines, place: EngineIndex) -> Result<bool, Errno> {
        let all = engines.stream_networks();
        let is_owned = |one: &Arc<EngineNetworks>| one.sharing == Sharing::Owned;
        let is_alone = all.get(place.index()).is_some_and(is_owned) && !self.stays_here;
        Ok(is_alone && engines.session(place)?.is_on_one_core()?)
    }

    /// Starts to connect; where both stacks have listeners, if one of the engine's hears it.
    pub fn connect(&self, socket: &TcpSocket, local: SocketAddr) -> Result<(), Errno> {
        if self.is_on_both() {
            socket.connect_heard(self.destination, Some(local))
        } else {
            socket.connect(self.destination, Some(local))
        }
    }
}

#[cfg(test)]
mod tests {
    use client::route::Network;

    use super::*;
    use crate::bind::Bound;
    use client::route::Owner;

    fn engine(address: &str, sharing: Sharing) -> Arc<EngineNetworks> {
        let address = address.parse().unwrap();
        Arc::new(EngineNetworks {
            interfaces: vec![Network {
                address,
                prefix_len: 24,
            }],
            sharing,
            has_loopback: true,
            ..EngineNetworks::default()
        })
    }

    fn request(destination: &str, local: Option<(&str, Owner)>, device: Device) -> Request {
        let local = local.map(|(address, owner)| Bound {
            address: address.parse().unwrap(),
            owner,
            place: EngineIndex::FIRST,
        });
        Request {
            destination: destination.parse().unwrap(),
            local: local.into(),
            device,
            is_engine_only: false,
        }
    }

    #[test]
    fn an_address_of_the_engines_is_left_by_that_engine_alone() {
        let all = [engine("10.0.0.2", Sharing::Owned)];
        let bound = Some(("10.0.0.2:80", Owner::Engine));
        let towards = request("192.168.7.1:80", bound, Device::Any).towards(&all);
        let towards = towards.unwrap().unwrap();
        assert!(!towards.is_on_both() && !towards.is_for_the_kernel(Errno::NETDOWN));
    }

    #[test]
    fn from_loopback_and_by_the_kernels_interfaces_nobody_else_is_reached() {
        let all = [engine("10.0.0.2", Sharing::Owned)];
        let loopback = Some(("127.0.0.1:80", Owner::Any));
        let mut kernels = request("10.0.0.9:80", None, Device::Any);
        assert!(kernels.towards(&all).unwrap().is_some());
        kernels.local = Local::Kernels;
        for one in [
            request("10.0.0.9:80", loopback, Device::Any),
            request("10.0.0.9:80", None, Device::Kernel),
            request("10.0.0.9:80", None, Device::Loopback(EngineIndex::FIRST)),
            kernels,
        ] {
            assert_eq!(one.towards(&all), Ok(None), "{one:?}");
        }
        let only = Request {
            is_engine_only: true,
            ..kernels
        };
        assert_eq!(only.towards(&all), Err(Errno::NETUNREACH));
    }

    #[test]
    fn on_this_host_the_kernel_has_listeners_too_unless_the_engine_alone_is_wanted() {
        let all = [engine("10.0.0.2", Sharing::Owned)];
        let anywhere = request("0.0.0.0:80", None, Device::Any);
        let towards = anywhere.towards(&all).unwrap().unwrap();
        assert_eq!(towards.destination, "127.0.0.1:80".parse().unwrap());
        assert!(towards.is_on_both() && towards.is_for_the_kernel(Errno::CONNREFUSED));
        let only = Request {
            is_engine_only: true,
            ..anywhere
        };
        assert!(!only.towards(&all).unwrap().unwrap().is_on_both());
    }
}
