//! AF_XDP: frames for the engine's addresses go from the interface's driver, or right behind it, into memory
//! of ours. Needs CAP_NET_RAW, and CAP_BPF and CAP_NET_ADMIN for the XDP program.
//!
//! Read first: `Documentation/networking/af_xdp.rst` of the kernel. One socket (`queue.rs`) serves one queue of
//! the interface; a core of the engine has one queue or several. With them each core has a packet socket
//! (`crate::af_packet`) for what the XDP program leaves to the kernel as well: ARP, neighbour discovery,
//! groups, frames of a queue that is not its core's; and for everything, should somebody take the program
//! off. Large segments go out through it where that is faster and cannot reorder: see [`AfXdp::open`].
//!
//! Generic XDP does not see a VLAN tag that the device has taken out of a frame.

mod checksum;
mod config;
mod error;
pub mod fallback;
mod frames;
mod program;
mod queue;
mod ring;
mod rx;
mod spread;
mod stall;
mod stamps;
mod sys;
mod tx;

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use netlink::{Interface, ethtool, interface, segments::Kind};
use rustix::event::epoll;

use crate::af_packet::{self, AfPacket, steering::Hash};
use crate::driver::{Caps, Counters, Driver, LARGE_SEGMENT_BYTES, Presence, RxFrame, TxFrame};
use crate::retry::Retry;
use bpf::{Link, Map, MapKind, Program, ProgramKind};
pub use config::{Config, Mode};
pub use error::OpenError;
use error::failed;
use program::Whose;
use queue::{Queue, Wanted, broken};
use spread::Narrowed;
use stall::Stall;

/// Queues of an interface that are served at most.
const QUEUES_MAX: u32 = 64;

/// An open interface, or a core's part of it.
pub struct AfXdp {
    // Detached first, so that frames go to the packet sockets and not to rings that end.
    link: Option<Link>,
    /// Given back after that.
    narrowed: Option<Narrowed>,
    queues: Vec<Queue>,
    packet: AfPacket,
    /// Becomes readable when the packet socket does or, since somebody was about to sleep, a queue: waking a
    /// watcher costs the sender of every frame, so queues of a core that is busy are not watched.
    ready: OwnedFd,
    is_watched: bool,
    interface: String,
    /// Queues of the interface when it was opened, those that came with the XDP program included.
    queue_count: u32,
    mode: Mode,
    caps: Caps,
    /// Large segments go out through the packet socket.
    mixes: bool,
    /// An unfinished checksum is believed where it looks like one.
    believes_partial: bool,
    slept: bool,
    /// The transmit ring is full.
    ring_retry: Retry,
    /// The kernel has left something in it.
    kick_retry: Retry,
    /// The interface is down, and that was said.
    is_away: bool,
    /// It was made anew: its queues are not ours any more.
    is_another: bool,
    stall: Stall,
    /// See [`AfXdp::hold_transmit_ring`].
    is_held: bool,
    counters: Counters,
}

impl AfXdp {
    /// Opens the interface of `config` for one core: all its queues.
    ///
    /// On a veth, where both ways out are one queue in order, large segments go out whole through the packet
    /// socket, ten times as fast as cut to frames; elsewhere the driver cuts them.
    ///
    /// # Errors
    /// See [`OpenError`]; nothing stays attached.
    pub fn open(config: &Config) -> Result<Self, OpenError> {
        let packet = AfPacket::open(&packet_config(config))?;
        let mut opened = Self::open_with(config, vec![packet], None)?;
        opened.pop().ok_or_else(|| OpenError::System {
            call: "open",
            interface: config.interface.clone(),
            source: io::ErrorKind::Other.into(),
        })
    }

    /// Opens the interface of `config` for `cores` cores; core k has every queue whose number is k modulo
    /// `cores`. `hash` is the hash that says whose a connection is, `program` the same for packet sockets.
    ///
    /// # Errors
    /// As [`AfXdp::open`].
    pub fn open_queues(
        config: &Config,
        cores: u16,
        hash: Hash,
        program: &[bpf::classic::Instruction],
    ) -> Result<Vec<Self>, OpenError> {
        let packets = AfPacket::open_queues(&packet_config(config), cores, program)?;
        Self::open_with(config, packets, Some((cores, hash)))
    }

    fn open_with(
        config: &Config,
        packets: Vec<AfPacket>,
        cores: Option<(u16, Hash)>,
    ) -> Result<Vec<Self>, OpenError> {
        let failed = |call| failed(&config.interface, call);
        let is_size = |size: u32| size.is_power_of_two() && size <= 65_536;
        if !(is_size(config.receiving) && is_size(config.sending)) {
            let Config {
                receiving, sending, ..
            } = *config;
            return Err(OpenError::Rings { receiving, sending });
        }
        let link = interface::read(&config.interface).map_err(failed("reading the interface"))?;
        let count = link.rx_queues.min(QUEUES_MAX);
        let core_count = packets.len();
        if usize::try_from(count).is_ok_and(|count| count < core_count) {
            return Err(OpenError::TooFewQueues {
                interface: config.interface.clone(),
                queues: count,
                cores: cores.map_or(1, |(cores, _)| cores),
            });
        }
        let sockets = Map::create(MapKind::Sockets, "shunt_sockets", 4, 4, count)?;
        let station = link.hardware_address.0;
        let whose = match (config.ether_type, &config.sharing, &config.addresses) {
            (Some(ether_type), ..) => Whose::Typed(ether_type),
            (None, Some(sharing), _) => Whose::Claimed(sharing.tables(), station),
            (None, None, Some(addresses)) => Whose::Of(addresses),
            (None, None, None) => Whose::Anybodys,
        };
        let taken = program::Taken {
            whose,
            cores,
            stamps: config.stamps,
        };
        let instructions = program::assemble(&taken, &sockets)
            .map_err(|error| failed("assembling the XDP program")(io::Error::other(error)))?;
        let kind = ProgramKind::Xdp { fragments: true };
        let program = Program::load(kind, "shunt", &instructions)?;
        let mut opened = Vec::new();
        for packet in packets {
            opened.push(Self::around(packet, config, &link)?);
        }
        for (number, core) in (0..count).zip((0..core_count).cycle()) {
            let queue = open_queue(config, &link, number)?;
            sockets
                .set_socket(number, queue.socket())
                .map_err(failed("putting a queue's socket into the map"))?;
            opened[core].queues.push(queue);
        }
        // Only now: whoever is taken away from the kernel has somewhere to go.
        let attached = Link::xdp(&program, link.index, config.mode.attach())?;
        opened[0].link = Some(attached.moved(config.relocate_fd));
        // With a program virtio_net has more, to send from. Sockets on those bring the kernel down (Linux 7.3, zero-copy).
        let queue_count = ethtool::receive_queues(&config.interface).unwrap_or(count);
        if queue_count > link.rx_queues && link.rx_queues == count {
            opened[0].narrowed = Narrowed::to(&config.interface, count);
        }
        for core in &mut opened {
            core.queue_count = queue_count;
        }
        Ok(opened)
    }

    fn around(packet: AfPacket, config: &Config, link: &Interface) -> Result<Self, OpenError> {
        let failed = |call| failed(&config.interface, call);
        let ready = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(|errno| failed("epoll_create")(errno.into()))?;
        let ready = (config.relocate_fd)(ready);
        watch(&ready, packet.socket()).map_err(failed("epoll_ctl"))?;
        // The kernel's own side of a veth takes frames from both ways out in the order of the calls.
        let mixes = link.segments.kind == Kind::Veth
            && link.rx_queues == 1
            && config.mode != Mode::ZeroCopy;
        let believes_partial = match config.mode {
            // Behind the kernel's merging of frames, which leaves the sum unfinished.
            Mode::Generic => true,
            Mode::Native => link.segments.kind != Kind::Physical,
            Mode::ZeroCopy => false,
        };
        let caps = Caps {
            tso_max_bytes: if mixes {
                packet.caps().tso_max_bytes
            } else {
                LARGE_SEGMENT_BYTES
            },
            rx_checksum: believes_partial,
            // The driver copies them into the UMEM.
            payload_by_address: false,
            ..packet.caps().clone()
        };
        Ok(Self {
            link: None,
            narrowed: None,
            queues: Vec::new(),
            packet,
            ready,
            interface: config.interface.clone(),
            queue_count: link.rx_queues,
            mode: config.mode,
            caps,
            mixes,
            believes_partial,
            is_watched: false,
            slept: false,
            ring_retry: Retry::default(),
            kick_retry: Retry::default(),
            is_away: false,
            is_another: false,
            stall: Stall::default(),
            is_held: false,
            counters: Counters::default(),
        })
    }

    /// For tests: the transmit ring counts as full.
    #[doc(hidden)]
    pub fn hold_transmit_ring(&mut self, is_held: bool) {
        self.is_held = is_held;
    }

    /// Has the queues wake whoever sleeps on [`Driver::wait_fd`].
    fn watch_queues(&mut self) -> io::Result<()> {
        self.slept = true;
        if !std::mem::replace(&mut self.is_watched, true) {
            for queue in &self.queues {
                watch(&self.ready, queue.socket())?;
            }
        }
        Ok(())
    }
}

fn packet_config(config: &Config) -> af_packet::Config {
    af_packet::Config {
        addresses: config.addresses.clone(),
        sharing: config.sharing.clone(),
        ether_type: config.ether_type,
        relocate_fd: config.relocate_fd,
        ..af_packet::Config::new(&config.interface)
    }
}

fn watch(ready: &OwnedFd, socket: BorrowedFd<'_>) -> io::Result<()> {
    let data = epoll::EventData::new_u64(0);
    Ok(epoll::add(ready, socket, data, epoll::EventFlags::IN)?)
}

fn open_queue(config: &Config, link: &Interface, queue: u32) -> Result<Queue, OpenError> {
    let wanted = Wanted {
        interface: link.index,
        queue,
        receiving: config.receiving,
        sending: config.sending,
        flags: config.mode.bind_flags(),
        relocate_fd: config.relocate_fd,
        stamps: config.stamps,
    };
    let interface = config.interface.clone();
    Queue::open(&wanted).map_err(|(call, source)| match source.raw_os_error() {
        Some(libc::EPERM) => af_packet::OpenError::NoPrivilege.into(),
        Some(libc::EBUSY) => OpenError::Taken { interface, queue },
        Some(libc::EOPNOTSUPP | libc::EAFNOSUPPORT | libc::EPROTONOSUPPORT) => {
            OpenError::NoSuchMode {
                interface,
                mode: config.mode,
                source,
            }
        }
        _ => failed(&config.interface, call)(source),
    })
}

impl Driver for AfXdp {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn rx_burst(&mut self, budget: usize, sink: &mut dyn FnMut(RxFrame<'_>)) -> io::Result<usize> {
        self.receive(budget, sink)
    }

    fn tx_burst(&mut self, frames: &[TxFrame<'_>]) -> io::Result<usize> {
        self.send(frames)
    }

    fn flush_tx(&mut self) -> io::Result<()> {
        if self.kick()? {
            self.kick_retry.on_taken();
        } else if !self.stall.is_stopped() {
            self.counters.tx_busy += 1;
            self.kick_retry.on_busy();
        }
        Ok(())
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.ready.as_fd())
    }

    fn prepare_wait(&mut self) -> io::Result<bool> {
        self.flush_tx()?;
        self.watch_queues()?;
        for queue in &mut self.queues {
            if queue.has_received().map_err(broken)? {
                return Ok(false);
            }
        }
        self.packet.prepare_wait()
    }

    fn stop_watch(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.is_watched) {
            for queue in &self.queues {
                epoll::delete(&self.ready, queue.socket())?;
            }
        }
        Ok(())
    }

    fn wait_deadline_us(&self) -> Option<u64> {
        let (ring, kick) = (&self.ring_retry, &self.kick_retry);
        let own = [ring.deadline_us(), kick.deadline_us()];
        let all = own.into_iter().chain([self.packet.wait_deadline_us()]);
        all.flatten().min()
    }

    fn listen_to(&mut self, group: [u8; 6], listen: bool) -> io::Result<()> {
        self.packet.listen_to(group, listen)
    }

    /// An interface that was made anew is served by the packet socket alone: queues, rings and the XDP program of the
    /// old one went with it.
    fn attend(&mut self) -> Presence {
        let presence = self.packet.attend();
        if let Presence::Gone | Presence::Back { .. } = presence {
            self.queues.clear();
            self.link = None;
            self.is_watched = false;
            self.is_another = true;
            self.caps.hardware_address = self.packet.caps().hardware_address;
        }
        if let Presence::Back { .. } = presence {
            // The same descriptor, or another that is not watched yet.
            let _ = watch(&self.ready, self.packet.socket());
        }
        self.caps.mtu = self.packet.caps().mtu;
        self.is_away = matches!(presence, Presence::Down | Presence::Gone);
        presence
    }

    fn counters(&self) -> Counters {
        let (own, packet) = (self.counters, self.packet.counters());
        let sum = |of: fn(&Queue) -> u64| self.queues.iter().map(of).sum::<u64>();
        Counters {
            rx_frames: own.rx_frames + packet.rx_frames,
            rx_bytes: own.rx_bytes + packet.rx_bytes,
            rx_dropped: own.rx_dropped
                + packet.rx_dropped
                + sum(|queue| queue.rx_dropped + queue.lost()),
            tx_frames: own.tx_frames + packet.tx_frames,
            tx_bytes: own.tx_bytes + packet.tx_bytes,
            tx_dropped: own.tx_dropped + packet.tx_dropped + sum(|queue| queue.tx_dropped),
            tx_busy: own.tx_busy + packet.tx_busy,
            rx_elsewhere: own.rx_elsewhere,
        }
    }

    fn mode(&self) -> Option<&'static str> {
        Some(self.mode.name())
    }

    fn complaints(&self) -> Vec<String> {
        let mut complaints = self.packet.complaints();
        if self.is_another {
            complaints.push(format!(
                "interface {:?} was made anew: it is served through a packet socket, more slowly; restart the engine for AF_XDP",
                self.interface
            ));
        }
        let queues = ethtool::receive_queues(&self.interface).unwrap_or(self.queue_count);
        if queues != self.queue_count && !self.is_another && !self.is_away {
            complaints.push(format!(
                "{:?} has {queues} receive queues, and had {} when the engine was started: frames of new ones, and those of a core whose queues are gone, come through a packet socket, more slowly; restart the engine",
                self.interface, self.queue_count
            ));
        }
        let is_off = |link: &Link| matches!(link.is_attached(), Ok(false));
        if self.link.as_ref().is_some_and(is_off) {
            complaints.push(format!(
                "somebody took the XDP program off {:?}: frames arrive through a packet socket instead, more slowly; restart the engine to attach it again",
                self.interface
            ));
        }
        if self.stall.is_stopped() {
            complaints.push(format!(
                "the AF_XDP transmit ring of {:?} takes no frames: they leave by a packet socket instead, more slowly, until it does; if it stays so restart the engine with --driver af_packet",
                self.interface
            ));
        }
        complaints
    }
}
