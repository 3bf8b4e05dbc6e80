//! A device with its pools: opened, configured, started, and closed after the last of its queues.
//!
//! Read first: "Poll Mode Driver" in DPDK's programmer's guide.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ::wire::ethernet;
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::thread::{CpuSet, sched_getaffinity};

use super::config::{Config, Device, Machine, eal_arguments};
use super::error::OpenError;
use super::ffi::{About, Setup, able, driver_name};
use super::sys::{Mbuf, Pool, Pools, Port, Ring, start_eal};
use crate::driver::{Caps, LARGE_SEGMENT_BYTES, MAX_FRAME_BYTES};
use crate::hardware_address::random_address;

/// Frames that a queue of the device holds, each way.
const RING: u16 = 1024;
/// Frames that wait for a core at most because they arrived at another's queue.
const INBOX: u32 = 1024;
/// Frames that wait for the device at most.
pub(super) const PENDING: usize = 512;
/// Mbufs that the threads' caches keep at most (1.5 times their size), each.
const CACHED: u32 = 384;
/// Bytes of an mbuf that every device takes.
const ROOM: u16 = 2048;
/// Bytes of an mbuf of a large segment: 9 make 64 KiB, and no device has less to one descriptor.
const LARGE_ROOM: u16 = 8192;
/// Ethernet header and two VLAN tags.
const LINK_BYTES: u16 = 14 + 4 + 4;

/// What the queues of a device share. Dropped from the top: first what holds mbufs, then the port with its memory.
pub(super) struct Attached {
    pub inboxes: Vec<Inbox>,
    pub port: Port,
    /// DPDK's epoll of each queue that has an interrupt.
    pub watches: Vec<Option<OwnedFd>>,
    pub setup: Setup,
    /// Bytes of the longest frame that the device makes of a large segment.
    pub cut_frame_max: usize,
    pub name: String,
    pub driver: &'static str,
    pub caps: Caps,
    /// How many frames each queue has taken, as it said when it was looked at the last time.
    pub taken: Vec<AtomicU64>,
}

/// Where other cores leave what belongs to one.
pub(super) struct Inbox {
    ring: Ring,
    pub bell: OwnedFd,
    sleeps: AtomicBool,
}

impl Inbox {
    fn new(name: &str, node: i16) -> io::Result<Self> {
        Ok(Self {
            ring: Ring::new(name, INBOX, node)?,
            bell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            sleeps: AtomicBool::new(false),
        })
    }

    /// Puts a frame in; false: the inbox is full.
    pub fn put(&self, mbuf: Mbuf) -> bool {
        let is_put = self.ring.put(mbuf);
        // Either the sleeper sees the frame in `announce_sleep`, or this sees that it sleeps.
        fence(Ordering::SeqCst);
        if self.sleeps.load(Ordering::Relaxed) && self.sleeps.swap(false, Ordering::Relaxed) {
            // It can only fail where the bell rings already.
            let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
        }
        is_put
    }

    pub fn take(&self, into: &mut Vec<Mbuf>, most: u16) {
        if !self.ring.is_empty() {
            self.ring.take(into, most);
        }
    }

    /// Whether its core may sleep.
    pub fn announce_sleep(&self) -> bool {
        self.sleeps.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.ring.is_empty()
    }

    pub fn wake(&self) {
        self.sleeps.store(false, Ordering::Relaxed);
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.bell, &mut count);
    }
}

/// How many devices this process has opened. Memory of a device is named by it: the number of a port is another's as soon as the
/// port is closed, which comes before its memory is given back.
static OPENED: AtomicU32 = AtomicU32::new(0);

/// The options of DPDK, once it runs in this process.
static RUNNING: Mutex<Option<Vec<String>>> = Mutex::new(None);

fn start(config: &Config, device: &Device, queues: u16) -> Result<(), OpenError> {
    let mut running = lock(&RUNNING);
    if let Some(options) = &*running {
        let is_same = *options == config.options;
        return is_same.then_some(()).ok_or(OpenError::OtherOptions);
    }
    let machine = Machine {
        has_huge_pages: has_huge_pages(),
        processors: processors(),
    };
    let arguments = eal_arguments(config, device, queues, &machine);
    start_eal(&arguments).map_err(|source| OpenError::start(&arguments, source))?;
    *running = Some(config.options.clone());
    Ok(())
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn has_huge_pages() -> bool {
    let sizes = std::fs::read_dir("/sys/kernel/mm/hugepages");
    sizes.into_iter().flatten().flatten().any(|size| {
        std::fs::read_to_string(size.path().join("free_hugepages"))
            .is_ok_and(|free| free.trim() != "0")
    })
}

/// Processors that this process may use.
fn processors() -> Vec<usize> {
    let allowed = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
    let is_allowed = |cpu: &usize| allowed.is_set(*cpu);
    (0..CpuSet::MAX_CPU).filter(is_allowed).collect()
}

impl Attached {
    /// Opens the device for `queues` cores.
    pub fn open(config: &Config, queues: u16) -> Result<Self, OpenError> {
        let device = Device::parse(&config.device)?;
        start(config, &device, queues)?;
        let mut port = Port::probe(&device.arguments, &device.name)
            .map_err(|source| OpenError::device(&device, source))?;
        let failed = |call| {
            let device = device.arguments.clone();
            move |reason| OpenError::System {
                call,
                device,
                reason,
            }
        };
        let about = port.about().map_err(failed("asking for the abilities"))?;
        if queues > about.rx_queues.min(about.tx_queues) {
            return Err(OpenError::TooFewQueues {
                device: device.arguments,
                receiving: about.rx_queues,
                sending: about.tx_queues,
            });
        }
        let number = OPENED.fetch_add(1, Ordering::Relaxed);
        let wanted = wanted(&about, queues);
        let setup = begin(&mut port, &wanted, &about, number, failed)?;
        if let Some(spread) = &config.spread {
            // Where it does not, what is another core's is handed over.
            let _ = port.spread(spread);
        }
        let mut inboxes = Vec::new();
        if queues > 1 {
            for queue in 0..queues {
                let name = format!("shunt_{number}_{queue}");
                let inbox = Inbox::new(&name, about.numa_node);
                inboxes.push(inbox.map_err(failed("making a ring for another core's frames"))?);
            }
        }
        let watches = (0..queues).map(|queue| watch(&port, &setup, queue));
        let watches = watches
            .collect::<io::Result<_>>()
            .map_err(failed("epoll_create"))?;
        port.listen_for_recall()
            .map_err(failed("listening for the device's end"))?;
        let caps = caps(&about, &setup).map_err(failed("getrandom"))?;
        Ok(Self {
            inboxes,
            port,
            watches,
            setup,
            cut_frame_max: cut_frame_max(&about),
            name: device.arguments,
            // As long as the process, like DPDK's own memory of the device.
            driver: Box::leak(driver_name(&about).into_boxed_str()),
            caps,
            taken: (0..queues).map(|_| AtomicU64::new(0)).collect(),
        })
    }
}

/// Configures and starts the port, with interrupts where it has them.
fn begin<F: FnOnce(io::Error) -> OpenError>(
    port: &mut Port,
    wanted: &Setup,
    about: &About,
    number: u32,
    failed: impl Fn(&'static str) -> F,
) -> Result<Setup, OpenError> {
    let with = Setup {
        able: wanted.able | able::RX_INTERRUPT,
        ..*wanted
    };
    let (plan, is_with) = match port.configure(&with) {
        Ok(plan) => (plan, true),
        Err(_) => {
            let plan = port.configure(wanted);
            (plan.map_err(failed("configuring"))?, false)
        }
    };
    port.keep(pools(number, &plan, about.numa_node)?);
    match port.start(&plan) {
        Ok(()) => return Ok(plan),
        Err(source) if !is_with => return Err(failed("starting")(source)),
        Err(_) => {}
    }
    port.stop();
    let plan = port.configure(wanted).map_err(failed("configuring"))?;
    port.start(&plan).map_err(failed("starting"))?;
    Ok(plan)
}

/// net_tap compares the frame, link header and all, with the MTU, and keeps what is longer for ever.
fn cut_frame_max(about: &About) -> usize {
    let link = if is_tap(about) {
        0
    } else {
        ethernet::Header::LEN
    };
    usize::from(about.mtu) + link
}

fn is_tap(about: &About) -> bool {
    driver_name(about) == "net_tap"
}

fn needs_scatter(mtu: u16) -> bool {
    mtu.saturating_add(LINK_BYTES) > ROOM
}

/// What is asked of a port that says `about` of itself.
fn wanted(about: &About, queues: u16) -> Setup {
    let mut wanted = about.able & (able::TX_CHECKSUM | able::RX_CHECKSUM);
    let tso = able::TX_TSO | able::TX_SEGMENTS | able::TX_CHECKSUM;
    let parts = MAX_FRAME_BYTES.div_ceil(usize::from(LARGE_ROOM));
    if about.able & tso == tso && usize::from(about.tx_segments) >= parts {
        wanted |= tso;
    }
    if queues > 1 {
        wanted |= about.able & able::RSS;
    }
    if needs_scatter(about.mtu) {
        wanted |= about.able & able::RX_SCATTER;
    }
    Setup {
        queues,
        rx_ring: RING,
        tx_ring: RING,
        mtu: about.mtu,
        able: wanted,
    }
}

/// Bytes of an mbuf to receive into, and of one to send from. Any frame that is no large segment fits the latter.
fn rooms(setup: &Setup) -> [u16; 2] {
    let frame = ROOM.max(setup.mtu.saturating_add(LINK_BYTES));
    let receive = if setup.able & able::RX_SCATTER != 0 {
        ROOM
    } else {
        frame
    };
    let send = if setup.able & able::TX_TSO != 0 {
        frame.max(LARGE_ROOM)
    } else {
        frame
    };
    [receive, send]
}

fn pools(number: u32, setup: &Setup, node: i16) -> Result<Pools, OpenError> {
    let queues = u32::from(setup.queues);
    let pending = u32::try_from(PENDING).unwrap_or(u32::MAX);
    let inbox = if queues > 1 { INBOX } else { 0 };
    let held = [
        u32::from(setup.rx_ring) + inbox + pending,
        u32::from(setup.tx_ring) + pending,
    ];
    let make = |kind: &str, held: u32, room: u16| {
        let count = queues * held + (queues + 1) * CACHED;
        let name = format!("shunt_{kind}_{number}");
        Pool::new(&name, count, room, node).map_err(|reason| OpenError::Memory {
            count,
            bytes: u32::from(room),
            reason,
        })
    };
    let [receive, send] = rooms(setup);
    Ok(Pools {
        receive: make("rx", held[0], receive)?,
        send: make("tx", held[1], send)?,
    })
}

/// The epoll of a queue's interrupt; `None`: it has none.
fn watch(port: &Port, setup: &Setup, queue: u16) -> io::Result<Option<OwnedFd>> {
    if setup.able & able::RX_INTERRUPT == 0 {
        return Ok(None);
    }
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let watched = port.watch(queue, epoll.as_fd());
    Ok(watched.is_ok().then_some(epoll))
}

fn caps(about: &About, setup: &Setup) -> io::Result<Caps> {
    // net_tap's is that of the kernel's end of the cable.
    let is_another = about.hardware_address == [0; 6] || is_tap(about);
    let hardware_address = if is_another {
        random_address()?
    } else {
        ethernet::Address(about.hardware_address)
    };
    Ok(Caps {
        tx_checksum: setup.able & able::TX_CHECKSUM != 0,
        rx_checksum: setup.able & able::RX_CHECKSUM != 0,
        // What the device does not cut is cut straight into its memory.
        tso_max_bytes: LARGE_SEGMENT_BYTES,
        gro: false,
        queues: setup.queues,
        payload_by_address: false,
        align: 1,
        mtu: u32::from(setup.mtu),
        hardware_address,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn about(able: u32, mtu: u16, tx_segments: u16) -> About {
        About {
            able,
            mtu,
            tx_segments,
            rx_queues: 8,
            tx_queues: 8,
            numa_node: -1,
            ..About::default()
        }
    }

    const ALL: u32 = able::TX_CHECKSUM
        | able::TX_SEGMENTS
        | able::TX_TSO
        | able::RX_CHECKSUM
        | able::RX_SCATTER
        | able::RSS;

    #[test]
    fn a_port_is_asked_for_what_it_has_and_what_is_needed() {
        let of = |able, mtu, segments, queues| wanted(&about(able, mtu, segments), queues).able;
        assert_eq!(of(0, 1500, 40, 4), 0);
        assert_eq!(of(ALL, 1500, 40, 1), ALL & !able::RX_SCATTER & !able::RSS);
        assert_eq!(of(ALL, 1500, 40, 2), ALL & !able::RX_SCATTER);
        assert_eq!(of(ALL, 9000, 40, 2), ALL);
        let without_tso = able::TX_CHECKSUM | able::RX_CHECKSUM;
        assert_eq!(of(ALL, 1500, 8, 1), without_tso, "too few parts");
        let no_parts = ALL & !able::TX_SEGMENTS;
        assert_eq!(of(no_parts, 1500, 40, 1), without_tso, "one part alone");
        let no_sums = able::TX_TSO | able::TX_SEGMENTS;
        assert_eq!(of(no_sums, 1500, 40, 1), 0, "each frame needs a sum");
    }

    #[test]
    fn an_mbuf_to_send_holds_a_whole_frame_and_one_to_receive_does_where_nothing_is_scattered() {
        let of = |able, mtu| rooms(&wanted(&about(able, mtu, 40), 1));
        assert_eq!(of(0, 1500), [2048, 2048]);
        assert_eq!(of(0, 9000), [9022, 9022]);
        assert_eq!(of(ALL, 1500), [2048, 8192]);
        assert_eq!(of(ALL, 9000), [2048, 9022]);
    }

    #[test]
    fn caps_say_what_was_set_up_and_an_address_is_never_zero() {
        let plain = about(0, 1500, 1);
        let caps_of = |about: &About| caps(about, &wanted(about, 2)).unwrap();
        let found = caps_of(&plain);
        assert!(!found.tx_checksum && !found.rx_checksum);
        assert_eq!((found.queues, found.mtu), (2, 1500));
        assert_eq!(
            found.hardware_address.0[0] & 3,
            2,
            "its own, of one station"
        );
        let able = About {
            hardware_address: [2, 0, 0, 0, 0, 7],
            ..about(ALL, 1500, 40)
        };
        let found = caps_of(&able);
        assert!(found.tx_checksum && found.rx_checksum);
        assert_eq!(found.hardware_address.0, [2, 0, 0, 0, 0, 7]);
        let mut tap = able;
        tap.driver[..7].copy_from_slice(b"net_tap");
        assert_ne!(caps_of(&tap).hardware_address.0, [2, 0, 0, 0, 0, 7]);
        assert_eq!([&plain, &tap].map(cut_frame_max), [1514, 1500]);
    }
}
