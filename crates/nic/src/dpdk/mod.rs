//! DPDK's poll-mode drivers: the device's rings in this process, no system call for a frame. With the cargo
//! feature `dpdk`, against the system's libdpdk.
//!
//! Read first: docs/dpdk.md, and "Poll Mode Driver" in DPDK's programmer's guide. Each core has a queue pair.
//! Received frames are passed to the stack where the device put them and freed after; what is sent is copied once,
//! into the device's memory. A device spreads frames by a hash of its own: what belongs to another core is
//! handed over through a ring. Merging of received segments by the device (LRO) is not asked for.

mod config;
mod error;
mod ffi;
mod hang;
mod port;
mod rx;
mod slot;
mod sys;
#[cfg(test)]
mod tests;
mod tx;

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use rustix::event::epoll;

use crate::driver::{Caps, Counters, Driver, MAX_FRAME_BYTES, Presence, RxFrame, TxFrame};
pub use config::{Config, Spread};
pub use error::OpenError;
use ffi::able;
use hang::Hang;
use port::{Attached, Inbox, PENDING};
use slot::Slot;
use sys::{Mbuf, Registered};

/// Frames that are asked for at once.
const BURST: u16 = 32;
/// How long a caller may sleep where the device cannot wake it.
const NAP_US: u64 = 50;
/// How soon a busy device is asked again by a caller that sleeps.
const BUSY_RETRY_US: u64 = 20;

/// Says whose a frame is, from its headers; taken modulo the number of cores.
pub type CoreOfFrame = Arc<dyn Fn(&[u8]) -> u16 + Send + Sync>;

/// One core's queues of a device.
pub struct Dpdk {
    /// Of this core, not looked at yet.
    received: Vec<Mbuf>,
    /// Just arrived, of any core.
    arrived: Vec<Mbuf>,
    /// Taken and not sent yet.
    pending: Vec<Mbuf>,
    /// For so many of these, from the front, the driver has prepared the offloads.
    prepared: usize,
    /// Large segments are left to the device.
    device_cuts: bool,
    /// Since when the device takes nothing.
    stuck_since: Option<Instant>,
    /// Readable when the queue or the inbox has something.
    ready: Option<OwnedFd>,
    slept: bool,
    queue: u16,
    core_of_frame: Option<CoreOfFrame>,
    caps: Caps,
    counters: Counters,
    /// A frame of several parts in one, or one to be summed.
    whole: Vec<u8>,
    name: String,
    driver: &'static str,
    hang: Hang,
    /// It was let go because it sent nothing.
    has_hung: bool,
    slot: Arc<Slot>,
    // Last: all mbufs must be back before its pools go.
    /// `None`: the device is gone.
    attached: Option<Arc<Attached>>,
}

impl Drop for Dpdk {
    fn drop(&mut self) {
        self.let_go();
    }
}

impl Dpdk {
    /// Opens a device with one queue.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(config: &Config) -> Result<Self, OpenError> {
        let (slot, attached) = Slot::open(config, 1)?;
        Self::of_queue(&slot, attached, 0, None)
    }

    /// Opens a device with a queue for each core; `core_of_frame` says whose a frame is.
    ///
    /// # Errors
    /// As [`Dpdk::open`].
    pub fn open_queues(
        config: &Config,
        cores: u16,
        core_of_frame: &CoreOfFrame,
    ) -> Result<Vec<Self>, OpenError> {
        let (slot, attached) = Slot::open(config, cores)?;
        let core_of_frame = (cores > 1).then_some(core_of_frame);
        let open =
            |queue| Self::of_queue(&slot, Arc::clone(&attached), queue, core_of_frame.cloned());
        (0..cores).map(open).collect()
    }

    fn of_queue(
        slot: &Arc<Slot>,
        attached: Arc<Attached>,
        queue: u16,
        core_of_frame: Option<CoreOfFrame>,
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
            core_of_frame,
            caps: attached.caps.clone(),
            counters: Counters::default(),
            whole: vec![0; MAX_FRAME_BYTES],
            name: attached.name.clone(),
            driver: attached.driver,
            hang: Hang::default(),
            has_hung: false,
            slot: Arc::clone(slot),
            attached: Some(attached),
        })
    }

    fn inbox(&self) -> Option<&Inbox> {
        let inboxes = &self.attached.as_ref()?.inboxes;
        inboxes.get(usize::from(self.queue))
    }

    fn watch(&self) -> Option<BorrowedFd<'_>> {
        let watches = &self.attached.as_ref()?.watches;
        let watch = watches.get(usize::from(self.queue))?.as_ref();
        watch.map(OwnedFd::as_fd)
    }

    /// Gives up the device; with the last of its queues it is closed.
    fn let_go(&mut self) {
        self.counters = self.counters();
        self.received.clear();
        self.arrived.clear();
        self.pending.clear();
        self.prepared = 0;
        self.stuck_since = None;
        self.ready = None;
        self.slept = false;
        self.hang = Hang::default();
        if let Some(attached) = self.attached.take() {
            self.slot.put_back(attached);
        }
    }

    /// Takes the device into use again, where it is there and every queue had let it go.
    fn take_back(&mut self) -> Option<u32> {
        let attached = self.slot.take_again(self.queue)?;
        self.ready = ready(&attached, self.queue).ok()?;
        self.device_cuts = attached.setup.able & able::TX_TSO != 0;
        self.caps = attached.caps.clone();
        self.has_hung = false;
        let number = u32::from(attached.port.number());
        self.attached = Some(attached);
        Some(number)
    }

    /// Whether the device takes frames and none of them leaves. The first queue judges for all.
    fn sends_nothing(&mut self) -> bool {
        let Some(attached) = &self.attached else {
            return false;
        };
        attached.taken[usize::from(self.queue)].store(self.counters.tx_frames, Ordering::Relaxed);
        // A virtual device would lose what belongs to it: an interface of the kernel's, with addresses.
        if self.queue > 0 || self.slot.driver().is_none() {
            return false;
        }
        if !attached.port.is_linked() {
            self.hang = Hang::default();
            return false;
        }
        let taken = attached.taken.iter();
        let taken = taken.map(|taken| taken.load(Ordering::Relaxed)).sum();
        let counts = attached.port.counts();
        let left = counts.sent + counts.lost_sending;
        self.hang.look(Instant::now(), taken, left)
    }

    /// Ends a sleep that [`Driver::prepare_wait`] announced.
    fn wake(&mut self) {
        if !std::mem::take(&mut self.slept) {
            return;
        }
        if let Some(inbox) = self.inbox() {
            inbox.wake();
        }
        if let Some((attached, watch)) = self.attached.as_ref().zip(self.watch()) {
            attached.port.disarm(self.queue, watch);
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
        Ok(self.receive(budget, sink))
    }

    fn tx_burst(&mut self, frames: &[TxFrame<'_>]) -> io::Result<usize> {
        register_thread();
        Ok(self.send(frames))
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
        if let Some((attached, _)) = self.attached.as_ref().zip(self.watch()) {
            attached.port.arm(self.queue);
        }
        // What came before the interrupt was armed announces itself no more.
        if self.received.is_empty() {
            self.fetch();
        }
        Ok(may_sleep && self.received.is_empty())
    }

    fn wait_deadline_us(&self) -> Option<u64> {
        self.attached.as_ref()?;
        let busy = (!self.pending.is_empty()).then_some(BUSY_RETRY_US);
        busy.or_else(|| self.watch().is_none().then_some(NAP_US))
    }

    fn listen_to(&mut self, group: [u8; 6], listen: bool) -> io::Result<()> {
        let port = self.attached.as_ref().map(|attached| &attached.port);
        self.slot.listen_to(group, listen, port)
    }

    /// What the device lost counts at its first queue.
    fn counters(&self) -> Counters {
        let mut counters = self.counters;
        if let Some(attached) = self.attached.as_ref().filter(|_| self.queue == 0) {
            let counts = attached.port.counts();
            counters.rx_dropped += counts.lost_receiving;
            counters.tx_dropped += counts.lost_sending;
        }
        counters
    }

    fn mode(&self) -> Option<&'static str> {
        Some(self.driver)
    }

    /// A device that the kernel wants back is let go: it waits for that, with whoever draws the card. So is one that sends
    /// nothing. It is taken again once it is there with the driver that it had.
    fn attend(&mut self) -> Presence {
        if self.sends_nothing() {
            self.has_hung = true;
            if let Some(attached) = &self.attached {
                attached.port.recall();
            }
        }
        let recalled = |attached: &Arc<Attached>| attached.port.is_recalled();
        match &self.attached {
            Some(attached) if recalled(attached) => self.let_go(),
            Some(_) => return Presence::Up,
            None => {
                if let Some(index) = self.take_back() {
                    return Presence::Back { index };
                }
            }
        }
        Presence::Gone
    }

    fn complaints(&self) -> Vec<String> {
        let name = &self.name;
        let complaint = match &self.attached {
            _ if self.queue > 0 => return Vec::new(),
            None => match self.slot.refusal() {
                Some(why) => format!("{name:?} is there again and cannot be opened: {why}"),
                None if self.has_hung => {
                    format!("{name:?} took frames and sent none: it is set up anew")
                }
                None => format!(
                    "{name:?} is gone: it was drawn, or the kernel took it back; connections wait for it until their time is over; it is taken into use again as soon as {} has it",
                    self.slot.driver().unwrap_or("DPDK")
                ),
            },
            Some(attached) if attached.port.is_linked() => return Vec::new(),
            Some(_) => format!(
                "the link of {name:?} is down: nothing is sent or received; look at its cable and the other end"
            ),
        };
        vec![complaint]
    }
}
