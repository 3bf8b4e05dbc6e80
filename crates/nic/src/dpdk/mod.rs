//! DPDK's poll-mode drivers: the device's rings in this process, no system call for a frame. With the cargo
//! feature `dpdk`, against the system's libdpdk.
//!
//! Read first: docs/dpdk.md, and "Poll Mode Driver" in DPDK's programmer's guide. Each core has a queue pair.
//! Received frames are lent to the stack where the device put them and freed after; what is sent is copied once,
//! into the device's memory. A device spreads frames by a hash of its own: what belongs to another core is
//! handed over through a ring. Merging of received segments by the device (LRO) is not asked for.

mod config;
mod error;
mod ffi;
mod port;
mod send;
mod sys;
#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use rustix::event::epoll;

use crate::driver::{Caps, Counters, Driver, MAX_FRAME_BYTES, RxFrame, TxFrame};
pub use config::Config;
pub use error::OpenError;
use ffi::able;
use port::{Attached, Inbox, PENDING};
use send::Sent;
use sys::{Mbuf, Registered};

/// Frames that are asked for at once.
const BURST: u16 = 32;
/// How long a caller may sleep where the device cannot wake it.
const NAP_US: u64 = 50;
/// How soon a busy device is asked again by a caller that sleeps.
const BUSY_RETRY_US: u64 = 20;

/// Says whose a frame is, from its headers; taken modulo the number of cores.
pub type Place = Arc<dyn Fn(&[u8]) -> u16 + Send + Sync>;

/// One core's queues of a device.
pub struct Dpdk {
    /// Of this core, not looked at yet.
    received: Vec<Mbuf>,
    /// Just arrived, of any core.
    arrived: Vec<Mbuf>,
    /// Taken and not sent yet.
    pending: Vec<Mbuf>,
    /// Of these, from the front, the driver has seen to the offloads.
    prepared: usize,
    /// Large segments are left to the device.
    device_cuts: bool,
    /// Since when the device takes nothing.
    stuck_since: Option<Instant>,
    /// Readable when the queue or the inbox has something.
    ready: Option<OwnedFd>,
    slept: bool,
    queue: u16,
    place: Option<Place>,
    caps: Caps,
    counters: Counters,
    /// A frame of several parts in one, or one to be summed.
    whole: Vec<u8>,
    // Last: all mbufs must be back before its pools go.
    attached: Arc<Attached>,
}

impl Dpdk {
    /// Opens a device with one queue.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(config: &Config) -> Result<Self, OpenError> {
        let (attached, caps) = Attached::open(config, 1)?;
        Self::of_queue(Arc::new(attached), &caps, 0, None)
    }

    /// Opens a device with a queue for each core; `place` says whose a frame is.
    ///
    /// # Errors
    /// As [`Dpdk::open`].
    pub fn open_queues(config: &Config, cores: u16, place: &Place) -> Result<Vec<Self>, OpenError> {
        let (attached, caps) = Attached::open(config, cores)?;
        let attached = Arc::new(attached);
        let place = (cores > 1).then_some(place);
        let open = |queue| Self::of_queue(Arc::clone(&attached), &caps, queue, place.cloned());
        (0..cores).map(open).collect()
    }

    fn of_queue(
        attached: Arc<Attached>,
        caps: &Caps,
        queue: u16,
        place: Option<Place>,
    ) -> Result<Self, OpenError> {
        let ready = ready(&attached, queue).map_err(|reason| OpenError::System {
            call: "epoll",
            device: attached.name.clone(),
            reason,
        })?;
        Ok(Self {
            received: Vec::with_capacity(2 * usize::from(BURST)),
            arrived: Vec::with_capacity(usize::from(BURST)),
            pending: Vec::with_capacity(PENDING),
            prepared: 0,
            device_cuts: attached.setup.able & able::TX_TSO != 0,
            stuck_since: None,
            ready,
            slept: false,
            queue,
            place,
            caps: caps.clone(),
            counters: Counters::default(),
            whole: vec![0; MAX_FRAME_BYTES],
            attached,
        })
    }

    fn inbox(&self) -> Option<&Inbox> {
        self.attached.inboxes.get(usize::from(self.queue))
    }

    fn watch(&self) -> Option<BorrowedFd<'_>> {
        let watch = self.attached.watches.get(usize::from(self.queue))?.as_ref();
        watch.map(OwnedFd::as_fd)
    }

    /// Looks for frames of this core, and hands others theirs.
    fn fetch(&mut self) {
        let (port, queue) = (&self.attached.port, self.queue);
        let Some(place) = &self.place else {
            port.receive(queue, &mut self.received, BURST);
            return;
        };
        let inboxes = &self.attached.inboxes;
        if let Some(inbox) = inboxes.get(usize::from(queue)) {
            inbox.take(&mut self.received, BURST);
        }
        port.receive(queue, &mut self.arrived, BURST);
        for mbuf in self.arrived.drain(..) {
            let core = place(mbuf.look().first) % self.caps.queues;
            if core == queue {
                self.received.push(mbuf);
            } else if !inboxes[usize::from(core)].put(mbuf) {
                self.counters.rx_dropped += 1;
            }
        }
    }

    /// Ends a sleep that [`Driver::prepare_wait`] announced.
    fn wake(&mut self) {
        if !std::mem::take(&mut self.slept) {
            return;
        }
        if let Some(inbox) = self.inbox() {
            inbox.wake();
        }
        if let Some(watch) = self.watch() {
            self.attached.port.disarm(self.queue, watch);
        }
    }
}

/// What becomes readable for a queue; `None`: nothing does.
fn ready(attached: &Attached, queue: u16) -> io::Result<Option<OwnedFd>> {
    let at = usize::from(queue);
    let bell = attached.inboxes.get(at).map(|inbox| inbox.bell.as_fd());
    let watch = attached.watches.get(at).and_then(Option::as_ref);
    let sources = [bell, watch.map(OwnedFd::as_fd)];
    if sources.iter().all(Option::is_none) {
        return Ok(None);
    }
    let ready = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for source in sources.into_iter().flatten() {
        let data = epoll::EventData::new_u64(0);
        epoll::add(&ready, source, data, epoll::EventFlags::IN)?;
    }
    Ok(Some(ready))
}

/// DPDK keeps memory for each thread that it knows, and takes it back when the thread ends.
fn register_thread() {
    thread_local! {
        static REGISTERED: Registered = Registered::new();
    }
    REGISTERED.with(|_| {});
}

impl Driver for Dpdk {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn rx_burst(&mut self, budget: usize, sink: &mut dyn FnMut(RxFrame<'_>)) -> io::Result<usize> {
        register_thread();
        self.wake();
        let (mut looked_at, mut handed) = (0, 0);
        while looked_at < budget {
            if self.received.is_empty() {
                self.fetch();
            }
            if self.received.is_empty() {
                break;
            }
            let Self {
                received,
                counters,
                whole,
                ..
            } = self;
            let count = received.len().min(budget - looked_at);
            for mbuf in received.drain(..count) {
                handed += usize::from(deliver(&mbuf, counters, whole, sink));
            }
            looked_at += count;
            if count < usize::from(BURST) {
                break;
            }
        }
        Ok(handed)
    }

    fn tx_burst(&mut self, frames: &[TxFrame<'_>]) -> io::Result<usize> {
        register_thread();
        for (taken, frame) in frames.iter().enumerate() {
            match self.take(frame) {
                Sent::Taken => {
                    self.counters.tx_frames += 1;
                    self.counters.tx_bytes += frame.frame_len() as u64;
                }
                Sent::Dropped => self.counters.tx_dropped += 1,
                Sent::Busy => {
                    self.counters.tx_busy += 1;
                    return Ok(taken);
                }
            }
        }
        Ok(frames.len())
    }

    fn flush_tx(&mut self) -> io::Result<()> {
        self.flush();
        Ok(())
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.ready.as_ref().map(OwnedFd::as_fd)
    }

    fn prepare_wait(&mut self) -> io::Result<bool> {
        self.flush();
        self.slept = true;
        let may_sleep = self.inbox().is_none_or(Inbox::announce_sleep);
        if self.watch().is_some() {
            self.attached.port.arm(self.queue);
        }
        // What came before the interrupt was armed announces itself no more.
        if self.received.is_empty() {
            self.fetch();
        }
        Ok(may_sleep && self.received.is_empty())
    }

    fn wait_deadline_us(&self) -> Option<u64> {
        let busy = (!self.pending.is_empty()).then_some(BUSY_RETRY_US);
        busy.or_else(|| self.watch().is_none().then_some(NAP_US))
    }

    fn listen_to(&mut self, group: [u8; 6], listen: bool) -> io::Result<()> {
        self.attached.listen_to(group, listen)
    }

    /// What the device lost counts at its first queue.
    fn counters(&self) -> Counters {
        let mut counters = self.counters;
        if self.queue == 0 {
            let losses = self.attached.port.losses();
            counters.rx_dropped += losses.received;
            counters.tx_dropped += losses.sent;
        }
        counters
    }

    fn mode(&self) -> Option<&'static str> {
        Some(self.attached.driver)
    }

    fn complaints(&self) -> Vec<String> {
        if self.queue > 0 || self.attached.port.is_linked() {
            return Vec::new();
        }
        let name = &self.attached.name;
        vec![format!(
            "the link of {name:?} is down: nothing is sent or received; look at its cable and the other end"
        )]
    }
}

/// Whether the sink got it.
fn deliver(
    mbuf: &Mbuf,
    counters: &mut Counters,
    whole: &mut [u8],
    sink: &mut dyn FnMut(RxFrame<'_>),
) -> bool {
    let look = mbuf.look();
    let bytes = if look.len == look.first.len() {
        look.first
    } else if look.len <= whole.len() {
        let len = mbuf.gather(&mut whole[..look.len]);
        &whole[..len]
    } else {
        counters.rx_dropped += 1;
        return false;
    };
    counters.rx_frames += 1;
    counters.rx_bytes += bytes.len() as u64;
    sink(RxFrame {
        bytes,
        checksum: look.checksum,
        segment_size: None,
    });
    true
}
