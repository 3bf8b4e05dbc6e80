//! What sockets of every protocol have in common: the engine's name for it, its header in a region, its locks, whether it is
//! still there, and what is asked of its engine.
//!
//! All calls take `&self` and may come from several threads at once.

mod guard;

use core::net::SocketAddr;
use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use hostif::control::{Reply, Request};
use hostif::{
    Figures, Flags, HeaderPlace, Op, OptionChanges, Query, Region, RegionLock, SocketHeader,
    SocketId, SocketOption, Window, WindowSpan,
};
use rustix::io::Errno;

use crate::engines::attachment::Attachment;
use crate::engines::inline_engine::DirectReceive;
use crate::engines::session::registry::Observer;
use crate::engines::session::{Opened, Session};
use crate::lock::lock;
use crate::private::PrivateFd;
use crate::readiness::{Readiness, State};
use crate::wait::Awaited;

pub(crate) use guard::LockGuard;

/// A socket of either protocol. What does not differ between them is in [`SocketCore`].
pub trait Socket: Awaited + Send + Sync {
    /// What it has in common with others.
    fn core(&self) -> &SocketCore;

    /// Where the socket stands.
    fn state(&self) -> State;

    /// The event bits that hold now, as poll(2) would say it. Where OUT does not, the engine is asked for an event.
    fn readiness(&self) -> Readiness;

    /// Whether an error waits to be fetched.
    fn has_error(&self) -> bool;

    /// Takes the pending error (SO_ERROR), which the next call would report otherwise. EBADF: another thread has closed it.
    fn take_error(&self) -> Option<Errno>;

    /// The number of events that made the socket readable, for edge-triggered readers. Wraps around.
    fn rx_events(&self) -> u32;

    /// Notes something for all processes that hold the socket, or takes it back.
    fn mark(&self, marks: u32, on: bool);

    /// Waits until the signals for all events that can be seen of the socket were sent (F_SETOWN).
    fn await_signals(&self) {
        self.core().await_signals();
    }

    /// Drops this process's hold. The engine then ends a connection as the kernel would: FIN, or RST
    /// where bytes were not read or lingering is off; other processes that hold the socket keep it.
    fn close(&self);

    /// Registers an observer, in place of one with the same token. Look at the socket afterwards: what
    /// happened before is not told.
    fn observe(&self, token: u64, observer: Arc<dyn Observer>) {
        self.visit_parts(&mut |session, id| session.observe(id, token, Arc::clone(&observer)));
    }

    /// Removes the observer with that token.
    fn forget(&self, token: u64) {
        self.visit_parts(&mut |session, id| session.forget(id, token));
    }

    /// Changes options; takes effect soon. ECONNRESET: the engine is gone.
    fn set_options(&self, changes: &OptionChanges) -> Result<(), Errno> {
        if *changes == OptionChanges::default() {
            return Ok(());
        }
        let set = Op::SetOptions {
            changes: *changes,
            written_low: self.core().written_low(),
        };
        post_to_parts(self, set)
    }

    /// Changes one of the rarer options; takes effect soon. ECONNRESET: the engine is gone.
    fn set_option(&self, option: SocketOption, value: u64) -> Result<(), Errno> {
        post_to_parts(self, self.core().option_command(option, value))
    }

    /// A descriptor of this socket is about to leave in a message.
    fn share(&self) {
        self.visit_parts(&mut |session, id| {
            let request = Request::Share { socket: Some(id) };
            // It fails only when the engine is gone, and the socket with it.
            let _ = session.request(id.core(), &request, &[]);
        });
    }

    /// The descriptors on which is set who is signalled of the socket's events (fcntl(2), F_SETOWN and what belongs to it);
    /// those of a listener are several. The kernel sends the signals.
    fn signal_ends(&self) -> Result<Vec<PrivateFd>, Errno> {
        let mut ends = Ok(Vec::new());
        self.visit_parts(&mut |session, id| {
            if let Ok(known) = &mut ends {
                match signal_end(session, id) {
                    Ok(end) => known.push(end),
                    Err(error) => ends = Err(error),
                }
            }
        });
        ends
    }
}

/// Sends a command to each part; stops where one's engine is gone.
fn post_to_parts<S: Socket + ?Sized>(socket: &S, op: Op) -> Result<(), Errno> {
    let mut result = Ok(());
    socket.visit_parts(&mut |session, id| {
        if result.is_ok() {
            result = session.post(id, op);
        }
    });
    result
}

fn signal_end(session: &Session, id: SocketId) -> Result<PrivateFd, Errno> {
    match session.request(id.core(), &Request::Signals { socket: id }, &[])? {
        (Reply::Signals, descriptors) => {
            let end = descriptors.into_iter().next().ok_or(Errno::PROTO)?;
            Ok(PrivateFd::new(end))
        }
        _ => Err(Errno::PROTO),
    }
}

/// See the file's head.
pub struct SocketCore {
    session: &'static Session,
    id: SocketId,
    region: Region,
    place: HeaderPlace,
    /// This process has dropped it.
    closed: AtomicBool,
    /// Its engine does not know this process as a holder.
    lost: AtomicBool,
    /// The reset that a lost engine means has been reported.
    reset_reported: AtomicBool,
}

impl SocketCore {
    /// Over a header of a region; the header's index is checked here, once.
    pub(crate) fn new(session: &'static Session, opened: Opened) -> Result<SocketCore, Errno> {
        let place = opened.region.header_place(opened.header);
        Ok(SocketCore {
            session,
            id: opened.id,
            region: opened.region,
            place: place.ok_or(Errno::PROTO)?,
            closed: AtomicBool::new(false),
            lost: AtomicBool::new(false),
            reset_reported: AtomicBool::new(false),
        })
    }

    /// The engine's name for it.
    #[must_use]
    pub fn id(&self) -> SocketId {
        self.id
    }

    /// The session it belongs to.
    #[must_use]
    pub fn session(&self) -> &'static Session {
        self.session
    }

    /// The attachment to the core that serves the socket.
    pub(crate) fn attachment(&self) -> Result<&'static Attachment, Errno> {
        self.session.attachment(self.id.core())
    }

    /// The attachment, or ECONNRESET if the engine is gone.
    pub(crate) fn living(&self) -> Result<&'static Attachment, Errno> {
        self.session.living(self.id.core())
    }

    /// The attachment, unless the engine or this process's hold on the socket is gone.
    #[inline(always)]
    pub(crate) fn attachment_of_living(&self) -> Option<&'static Attachment> {
        let all = self.session.attached().filter(|all| !all.is_dead())?;
        let is_lost = self.lost.load(Ordering::Acquire) || !self.header().is_of(self.id);
        all.to_core(self.id.core()).filter(|_| !is_lost)
    }

    /// A call found nothing to do: an engine inside the program takes what has come, and now and then this looks whether
    /// that is because the engine is gone.
    pub fn on_idle_call(&self) {
        self.on_idle_call_of(None);
    }

    /// As [`Self::on_idle_call`], where the thread polls so.
    pub(crate) fn on_idle_call_of(&self, direct_receive: Option<&dyn DirectReceive>) {
        let all = self.session.attached();
        if let Some(attachment) = all.and_then(|all| all.to_core(self.id.core())) {
            self.session.on_idle_call(attachment, direct_receive);
        }
    }

    /// See [`Socket::await_signals`].
    pub(crate) fn await_signals(&self) {
        let header = self.header();
        if !header.has_sent_signals() {
            header.program_await_signals(&mut || !self.is_reset());
        }
    }

    pub(crate) fn region(&self) -> &Region {
        &self.region
    }

    pub(crate) fn header(&self) -> SocketHeader<'_> {
        self.place.header()
    }

    /// See [`Op::SetOptions`].
    fn written_low(&self) -> u32 {
        hostif::descriptor::low(self.header().written())
    }

    /// Changes an option from here on.
    pub(crate) fn option_command(&self, option: SocketOption, value: u64) -> Op {
        Op::SetOption {
            option,
            value,
            written_low: self.written_low(),
        }
    }

    /// Whether this process has closed it.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Whether the engine, or this process's hold on the socket, is gone.
    #[must_use]
    pub fn is_reset(&self) -> bool {
        self.lost.load(Ordering::Acquire) || self.session.is_dead() || !self.header().is_of(self.id)
    }

    /// Whether that has not been reported as an error yet.
    pub(crate) fn is_reset_unreported(&self) -> bool {
        self.is_reset() && !self.reset_reported.load(Ordering::Acquire)
    }

    /// Its engine is gone for good; false: that was known.
    pub(crate) fn set_lost(&self) -> bool {
        !self.lost.swap(true, Ordering::AcqRel)
    }

    /// Where the socket stands, as its engine says.
    pub(crate) fn told_state(&self) -> State {
        let flags = self.header().flags();
        if flags.intersects(Flags::ERROR | Flags::HUP | Flags::CLOSED) {
            State::Closed
        } else if flags.contains(Flags::LISTENING) {
            State::Listening
        } else if flags.contains(Flags::CONNECTED) {
            State::Connected
        } else if flags.contains(Flags::CONNECTING) {
            State::Connecting
        } else {
            State::Idle
        }
    }

    /// Takes a lock of the header in the session's name.
    pub(crate) fn hold<'a>(
        &'a self,
        attachment: &'static Attachment,
        lock: RegionLock<'a>,
    ) -> Result<LockGuard<'a>, Errno> {
        self.hold_by(attachment, lock, RegionLock::lock)
    }

    /// As `hold`, for who only copies, and publishes by comparing (`RegionLock::lock_to_copy`).
    pub(crate) fn hold_to_copy<'a>(
        &'a self,
        attachment: &'static Attachment,
        lock: RegionLock<'a>,
    ) -> Result<LockGuard<'a>, Errno> {
        self.hold_by(attachment, lock, RegionLock::lock_to_copy)
    }

    fn hold_by<'a>(
        &'a self,
        attachment: &'static Attachment,
        lock: RegionLock<'a>,
        take: impl FnOnce(&RegionLock<'a>, u32, &mut dyn FnMut() -> bool) -> bool,
    ) -> Result<LockGuard<'a>, Errno> {
        let session = attachment.session;
        let mut keep_waiting = || !attachment.is_dead() && !attachment.control.is_hung_up();
        match take(&lock, session, &mut keep_waiting) {
            true => Ok(LockGuard::of(lock, session)),
            false => Err(Errno::CONNRESET),
        }
    }

    /// As `hold`, where the lock is free.
    pub(crate) fn try_hold<'a>(
        &'a self,
        attachment: &'static Attachment,
        lock: RegionLock<'a>,
    ) -> Option<LockGuard<'a>> {
        LockGuard::try_take(lock, attachment.session)
    }

    /// The send window, once its ring has space for a note of what is written there.
    #[inline]
    pub(crate) fn lock_send_window(
        &self,
        attachment: &'static Attachment,
        span: WindowSpan,
    ) -> Result<LockedWindow<'_>, Errno> {
        let window = self.region.window(span).ok_or(Errno::PROTO)?;
        attachment.await_capacity(&attachment.sends)?;
        let header = self.header();
        let held = self.hold(attachment, header.send_lock())?;
        Ok(LockedWindow {
            id: self.id,
            attachment,
            header,
            window,
            _held: held,
        })
    }

    /// The receive window, once its ring has space for a note of what is taken there; an engine that is gone gets none.
    #[inline]
    pub(crate) fn lock_receive_window(
        &self,
        attachment: &'static Attachment,
        span: WindowSpan,
    ) -> Result<LockedWindow<'_>, Errno> {
        let window = self.region.window(span).ok_or(Errno::PROTO)?;
        if !attachment.is_dead() {
            attachment.await_capacity(&attachment.receives)?;
        }
        let header = self.header();
        let held = self.hold(attachment, header.receive_lock())?;
        Ok(LockedWindow {
            id: self.id,
            attachment,
            header,
            window,
            _held: held,
        })
    }

    /// Takes the pending error: what the engine has told, which `take` finds in the header; else that another thread has
    /// closed the socket; else the reset that a lost engine means, unless other engines serve it.
    pub(crate) fn take_error_by(
        &self,
        take: impl FnOnce(&SocketHeader<'_>) -> Option<u32>,
        is_served_elsewhere: impl FnOnce() -> bool,
    ) -> Option<Errno> {
        let header = self.header();
        // Once the socket is closed the header may be another one's.
        let told = if header.is_of(self.id) {
            take(&header)
        } else {
            None
        };
        if let Some(errno) = told {
            return Some(i32::try_from(errno).map_or(Errno::IO, Errno::from_raw_os_error));
        }
        if self.is_closed() && !self.lost.load(Ordering::Acquire) {
            return Some(Errno::BADF);
        }
        let is_told_now = self.is_reset_unreported()
            && !is_served_elsewhere()
            && !self.reset_reported.swap(true, Ordering::AcqRel);
        is_told_now.then_some(Errno::CONNRESET)
    }

    /// The local address, once known.
    #[must_use]
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.header().addresses().0
    }

    /// The peer, once known.
    #[must_use]
    pub fn peer_address(&self) -> Option<SocketAddr> {
        self.header().addresses().1
    }

    /// Takes a local address and returns it with its port.
    pub fn bind(&self, local: SocketAddr) -> Result<SocketAddr, Errno> {
        let port = self.call(Op::Bind { local })?;
        let port = u16::try_from(port).map_err(|_| Errno::PROTO)?;
        Ok(SocketAddr::new(local.ip(), port))
    }

    /// Asks the engine for more than a completion holds; the bytes of the answer.
    pub fn query(&self, what: Query) -> Result<Vec<u8>, Errno> {
        let attachment = self.living()?;
        // The region has room for one answer.
        let _asking = lock(&attachment.asking);
        let len = self.call(Op::Query { what })?;
        let answer = attachment.region.answer();
        let bytes = answer.iter().flat_map(|word| word.to_le_bytes());
        Ok(bytes.take(usize::try_from(len).unwrap_or(0)).collect())
    }

    /// Its figures alone, without those of what belongs to it.
    pub(crate) fn own_figures(&self) -> Result<Figures, Errno> {
        let words = self.query_words(Query::Figures)?;
        Ok(Figures::from_words(&words))
    }

    /// As `query`, in words of eight bytes.
    pub(crate) fn query_words(&self, what: Query) -> Result<Vec<u64>, Errno> {
        let bytes = self.query(what)?;
        let (words, _) = bytes.as_chunks::<8>();
        Ok(words.iter().map(|word| u64::from_le_bytes(*word)).collect())
    }

    /// Sends a command and waits for its completion, an errno and a number.
    pub(crate) fn call(&self, op: Op) -> Result<u64, Errno> {
        self.session.call_plain(self.id, op)
    }

    /// The number of events that made the socket writable, for edge-triggered writers. Wraps around.
    #[must_use]
    pub fn tx_events(&self) -> u32 {
        self.header().tx_events()
    }

    /// Bytes written and not acknowledged (SIOCOUTQ).
    #[must_use]
    pub fn unacknowledged_bytes(&self) -> usize {
        let header = self.header();
        let acknowledged = header.acknowledged();
        usize::try_from(header.written().saturating_sub(acknowledged)).unwrap_or(usize::MAX)
    }

    /// Which directions the program has shut down: reading, writing.
    #[must_use]
    pub fn shut(&self) -> (bool, bool) {
        let shut = self.header().shut();
        (
            shut & hostif::header::SHUT_READ != 0,
            shut & hostif::header::SHUT_WRITE != 0,
        )
    }

    /// Marks it closed; `true` for the first to do so.
    pub(crate) fn set_closed(&self) -> bool {
        !self.closed.swap(true, Ordering::AcqRel)
    }

    /// Drops this process's hold; false: there was none any more. `holds_port`: the engine holds the backing socket as well,
    /// and with it the port, which who binds next shall find free.
    pub(crate) fn release(&self, holds_port: bool) -> bool {
        // The next engine may have given its name to another socket.
        if self.lost.load(Ordering::Acquire) {
            return false;
        }
        lock(&self.session.registry).remove(self.id);
        let header = self.header();
        if !header.is_of(self.id) {
            return false;
        }
        let close = Op::Close {
            written: header.written(),
            consumed: header.consumed(),
        };
        // Who waits for the answer needs a descriptor, of which there may be none. Both fail only when the engine is gone,
        // which closes everything.
        if !holds_port || self.session.call(self.id, close).is_err() {
            let _ = self.session.post(self.id, close);
        }
        true
    }
}

/// One of a socket's windows, with its lock held: only the holder moves the position.
pub(crate) struct LockedWindow<'a> {
    pub id: SocketId,
    pub attachment: &'static Attachment,
    pub header: SocketHeader<'a>,
    pub window: Window<'a>,
    _held: LockGuard<'a>,
}
