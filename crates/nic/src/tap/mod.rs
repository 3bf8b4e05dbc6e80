//! A TAP interface: the kernel is on the other end of the cable. For hosts, virtual machines and
//! containers whose own network cards the engine may not touch. Creating one needs CAP_NET_ADMIN
//! in the network namespace; attaching to one that belongs to the user does not.
//!
//! Read first: the kernel's `Documentation/networking/tuntap.rst`. Segments of 64 KiB and unfinished
//! checksums cross both ways behind the virtio header. Single queue. The interface goes when the
//! descriptor closes, unless it was made persistent by its owner. Addresses are not set here.

mod config;
mod error;
mod rx;
mod sys;
mod tx;

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};

use ::wire::ethernet;
use netlink::interface;
use rustix::fs::{Mode, OFlags, fcntl_getfl, fcntl_setfl, open};

use crate::af_packet::{Geometry, Handover, Numbers};
use crate::driver::{
    Caps, Counters, Driver, LARGE_SEGMENT_BYTES, MAX_FRAME_BYTES, Presence, RxFrame, TxFrame,
};
use crate::hardware_address::random_address;
use crate::retry::Retry;
use crate::vnet;
pub use config::{Adopt, Config};
pub use error::OpenError;
use error::failed;

const DEVICE: &str = "/dev/net/tun";
/// What every frame of ours assumes of the descriptor.
const FLAGS: i32 = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
/// Unfinished checksums and large TCP segments of both families.
const OFFLOADS: libc::c_uint = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6;

/// Our end of the cable to the kernel.
pub struct Tap {
    fd: OwnedFd,
    name: String,
    caps: Caps,
    /// virtio header and frame as one read delivers them.
    buffer: Box<[u8]>,
    retry: Retry,
    /// Down or gone, and that was said.
    is_away: bool,
    counters: Counters,
}

impl Tap {
    /// Creates the interface of `config`, or attaches to it if it exists.
    ///
    /// # Errors
    /// See [`OpenError`]; each message says what to do next.
    pub fn create(config: &Config) -> Result<Self, OpenError> {
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = open(DEVICE, flags, Mode::empty()).map_err(|error| match error {
            rustix::io::Errno::NOENT | rustix::io::Errno::NXIO | rustix::io::Errno::NODEV => {
                OpenError::NoDevice
            }
            rustix::io::Errno::PERM | rustix::io::Errno::ACCESS => OpenError::NoPrivilege,
            other => failed("opening /dev/net/tun")(other),
        })?;
        let attached = attach(fd.as_fd(), config.name.as_deref())?;
        if let Some(mtu) = config.mtu {
            interface::set_mtu(&attached.name, mtu).map_err(failed("setting the MTU"))?;
        }
        if config.up {
            interface::set_up(&attached.name).map_err(failed("starting the interface"))?;
        }
        let link = interface::read(&attached.name).map_err(failed("reading the interface"))?;
        Self::with(fd, attached.name, config.hardware_address, link.mtu)
    }

    /// Takes over a descriptor that is already attached to a TAP interface.
    ///
    /// # Errors
    /// The descriptor is not one, or was opened in another mode.
    pub fn adopt(fd: OwnedFd, adopt: &Adopt) -> Result<Self, OpenError> {
        let attached = sys::attached(fd.as_fd()).map_err(|source| OpenError::NotTap { source })?;
        if attached.flags & FLAGS != FLAGS {
            return Err(OpenError::WrongMode {
                name: attached.name,
                flags: attached.flags,
            });
        }
        let flags = fcntl_getfl(&fd).map_err(failed("F_GETFL"))?;
        fcntl_setfl(&fd, flags | OFlags::NONBLOCK).map_err(failed("F_SETFL"))?;
        Self::with(fd, attached.name, adopt.hardware_address, adopt.mtu)
    }

    /// What a process after this one needs to go on: the descriptor. What the kernel sends waits there, and no ring is shared.
    #[must_use]
    pub fn handover(&self) -> Numbers {
        Numbers {
            socket: self.fd.as_raw_fd(),
            kernel_drop: None,
            geometry: Geometry {
                frame_bytes: 0,
                frame_count: 0,
            },
        }
    }

    /// Goes on with the descriptor of another process, which has ended; `None`: it is not of the interface of that configuration.
    #[must_use]
    pub fn take_up(config: &Config, left: Handover) -> Option<Self> {
        let attached = sys::attached(left.socket.as_fd()).ok()?;
        if config.name.as_ref() != Some(&attached.name) {
            return None;
        }
        let adopt = Adopt {
            hardware_address: config.hardware_address,
            mtu: interface::read(&attached.name).ok()?.mtu,
        };
        Self::adopt(left.socket, &adopt).ok()
    }

    /// Name of the kernel's end.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    fn with(
        fd: OwnedFd,
        name: String,
        hardware_address: Option<ethernet::Address>,
        mtu: u32,
    ) -> Result<Self, OpenError> {
        sys::set_header_len(fd.as_fd(), vnet::LEN).map_err(failed("TUNSETVNETHDRSZ"))?;
        sys::set_offload(fd.as_fd(), OFFLOADS).map_err(failed("TUNSETOFFLOAD"))?;
        let hardware_address = match hardware_address {
            Some(address) => address,
            None => random_address().map_err(failed("getrandom"))?,
        };
        let caps = Caps {
            tx_checksum: true,
            rx_checksum: true,
            tso_max_bytes: LARGE_SEGMENT_BYTES,
            gro: true,
            queues: 1,
            payload_by_address: true,
            align: 1,
            mtu,
            hardware_address,
        };
        let buffer = vec![0; vnet::LEN + MAX_FRAME_BYTES].into_boxed_slice();
        Ok(Self {
            fd,
            name,
            caps,
            buffer,
            retry: Retry::default(),
            is_away: false,
            counters: Counters::default(),
        })
    }

    /// The interface takes or brings nothing: said once, until it was looked at.
    fn miss(&mut self, error: &io::Error) -> io::Result<()> {
        if std::mem::replace(&mut self.is_away, true) {
            return Ok(());
        }
        let text = format!("TAP interface {:?} is down or gone: {error}", self.name);
        Err(io::Error::new(io::ErrorKind::NetworkUnreachable, text))
    }

    /// The interface was deleted. If somebody has made another of its name it is this descriptor's from now on; none is
    /// made here, as whoever deleted it wanted it away.
    fn take_back(&mut self) -> io::Result<u32> {
        let control = interface::control_socket()?;
        let index = rustix::net::netdevice::name_to_index(&control, &self.name)?;
        attach(self.fd.as_fd(), Some(&self.name)).map_err(io::Error::other)?;
        sys::set_header_len(self.fd.as_fd(), vnet::LEN)?;
        sys::set_offload(self.fd.as_fd(), OFFLOADS)?;
        self.caps.mtu = interface::mtu(control.as_fd(), &self.name)?;
        Ok(index)
    }
}

/// Attaches with NAPI, which lets the kernel merge what we send; some kernels and containers
/// refuse it, and then it goes without.
fn attach(fd: BorrowedFd<'_>, name: Option<&str>) -> Result<sys::Attached, OpenError> {
    let attempt = match sys::attach(fd, name, FLAGS | libc::IFF_NAPI) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => sys::attach(fd, name, FLAGS),
        other => other,
    };
    attempt.map_err(|source| {
        let name = name.unwrap_or("").to_owned();
        match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => OpenError::NoPrivilege,
            Some(libc::EBUSY) => OpenError::Busy { name },
            Some(libc::EINVAL | libc::ENAMETOOLONG) => OpenError::BadName { name, source },
            _ => failed("TUNSETIFF")(source),
        }
    })
}

impl Driver for Tap {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn rx_burst(&mut self, budget: usize, sink: &mut dyn FnMut(RxFrame<'_>)) -> io::Result<usize> {
        self.receive(budget, sink)
    }

    fn tx_burst(&mut self, frames: &[TxFrame<'_>]) -> io::Result<usize> {
        self.send(frames)
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.fd.as_fd())
    }

    fn prepare_wait(&mut self) -> io::Result<bool> {
        // Frames that wait keep the descriptor readable, so that no check is needed here.
        Ok(true)
    }

    fn wait_deadline_us(&self) -> Option<u64> {
        self.retry.deadline_us()
    }

    fn attend(&mut self) -> Presence {
        let Ok(attached) = sys::attached(self.fd.as_fd()) else {
            self.is_away = true;
            return match self.take_back() {
                Ok(index) => {
                    self.is_away = false;
                    Presence::Back { index }
                }
                Err(_) => Presence::Gone,
            };
        };
        self.name = attached.name;
        // One that lies in another network namespace cannot be asked.
        let is_up = interface::control_socket()
            .and_then(|control| interface::is_up(control.as_fd(), &self.name))
            .unwrap_or(true);
        self.is_away = !is_up;
        if is_up { Presence::Up } else { Presence::Down }
    }

    fn counters(&self) -> Counters {
        self.counters
    }

    fn complaints(&self) -> Vec<String> {
        let name = &self.name;
        let said = self.is_away.then(|| {
            format!("TAP interface {name:?} is down or gone: connections wait for it until their time is over; `ip link set {name} up`, or create it again")
        });
        said.into_iter().collect()
    }
}
