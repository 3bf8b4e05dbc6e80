//! What programs do with sockets, over the stack and the device: the engine without the programs themselves. It knows
//! neither sessions nor threads; `core` knows who asks, and when.

mod answers;
pub(crate) mod bursts;
mod calls;
mod congestion;
mod connect;
mod datagrams;
mod files_left;
mod options;
mod receive;
mod resume;
pub mod senders;
mod start;
mod stream;
mod upkeep;

use crate::byte_channels::ByteChannels;
use crate::device::link::Link;
use crate::device::replies::Replies;
use crate::kernel::holders::PortHolders;
use crate::kernel::sharing::Shared;
use crate::orphans::Orphans;
use crate::sockets::Sockets;
use crate::sockets::copies::Copies;
use crate::sockets::rows::{Kind, Marks};
use crate::stamps::Stamps;
use bursts::Bursts;
use core::net::SocketAddr;
use hostif::Op;
use nic::sharing::Transport;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use senders::{Senders, note_too_long, scoped};
use stack::{InterfaceId, Stack};
use tcp::Instant;

/// Segments sent in one poll.
const TX_BUDGET: usize = 64;

/// The sockets of a core, with the stack and the device that serve them.
pub struct SocketLayer {
    pub(crate) stack: Stack<'static>,
    /// The device's, in the stack.
    pub(crate) interface: InterfaceId,
    /// The device's interface number, which link-local addresses get.
    pub(crate) scope_id: u32,
    pub(crate) sockets: Sockets,
    pub(crate) link: Link,
    pub(crate) replies: Replies,
    pub(crate) bursts: Bursts,
    /// Datagram sockets with something to send.
    pub(crate) senders: Senders,
    /// Times of sending that programs wait for.
    pub(crate) stamps: Stamps,
    /// Slots of connections to neighbours.
    pub(crate) byte_channels: ByteChannels,
    /// Present where the addresses are the kernel's too.
    pub(crate) shared: Option<Shared>,
    pub(crate) holders: PortHolders,
    /// Sockets that no session holds, whose descriptors are open somewhere.
    pub(crate) orphans: Orphans,
    /// Where the tables lie, for whoever takes over.
    pub(crate) state_file: OwnedFd,
}

impl SocketLayer {
    /// A poll begins, at this time.
    pub(crate) fn set_now(&mut self, now: Instant) {
        self.sockets.set_now(now);
        self.link.queues.set_now(now);
    }

    /// After what programs have asked: what sockets have to send leaves, timers fire, who waits hears of it. Returns how
    /// much there was to do that is the stack's own affair, and that programs wait for.
    #[inline]
    pub(crate) fn poll(&mut self, now: Instant) -> (usize, usize) {
        let (mut work, mut served) = (0, 0);
        if self.has_errands(now) {
            (work, served) = self.run_errands(now);
        }
        served += self.transmit(now);
        self.stamps.tell(&mut self.sockets);
        if let Some(shared) = &mut self.shared {
            shared.finish_poll(&mut self.stack, &mut self.link.unresolved);
        }
        (work, served)
    }

    /// Sends what connections have to send. Returns how many segments.
    #[inline(always)]
    pub(crate) fn transmit(&mut self, now: Instant) -> usize {
        let Self {
            stack,
            sockets,
            link,
            ..
        } = self;
        let mut sent = 0;
        if stack.wants_transmit() {
            sent = self.stamps.transmit(now, stack, sockets, link, TX_BUDGET);
        }
        link.flush();
        sent
    }

    /// Whether of all sockets at most the one in `row` has news, and it none but of bytes that have come and gone: no window, no
    /// connection, no signal, no time of sending. Captures see whole polls only.
    #[inline]
    pub(crate) fn concerns_at_most(&self, row: u32) -> bool {
        let sockets = &self.sockets;
        sockets.dirty.is_at_most(row)
            && sockets.new_windows.is_empty()
                & sockets.established.is_empty()
                & sockets.signalled.is_empty()
                & self.senders.is_empty()
                & self.stamps.is_idle()
                & self.link.loopback.is_empty()
                & self.link.captures.is_empty()
                & self.shared.is_none()
    }

    /// Whether there is anything to do before segments leave. Nearly always there is not: all of it is asked, without branches.
    #[inline]
    fn has_errands(&self, now: Instant) -> bool {
        let sockets = &self.sockets;
        let is_due = |time: Option<Instant>| time.is_some_and(|time| time <= now);
        !self.senders.is_empty()
            | !sockets.new_windows.is_empty()
            | !sockets.acknowledged.is_empty()
            | self.stack.has_group_changes()
            | self.byte_channels.has_news(sockets, &self.link)
            | is_due(self.stack.next_deadline())
            | is_due(self.orphans.next_look())
    }

    #[inline(never)]
    fn run_errands(&mut self, now: Instant) -> (usize, usize) {
        let Self {
            stack,
            sockets,
            link,
            ..
        } = self;
        let mut served = 0;
        if !self.senders.is_empty() {
            served += self.senders.poll(now, stack, sockets, link);
        }
        if stack.has_group_changes() {
            follow_groups(self.interface, stack, link);
        }
        let mut work = self.byte_channels.poll(now, stack, sockets, link);
        if stack
            .next_deadline()
            .is_some_and(|deadline| deadline <= now)
        {
            stack.handle_timeouts(now, sockets);
            work += 1;
        }
        if self.orphans.next_look().is_some_and(|look| look <= now) {
            self.close_orphans(now);
            work += 1;
        }
        self.take_windows();
        self.follow_acknowledged();
        (work, served)
    }

    /// The link hears of windows that sockets have got and given back.
    fn take_windows(&mut self) {
        for (row, window) in self.sockets.new_windows.drain(..) {
            self.link.set_window(row, window);
        }
    }

    /// When `poll` has something to do by the clock.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let deadlines = [self.stack.next_deadline(), self.orphans.next_look()];
        deadlines.into_iter().flatten().min()
    }

    /// Does to the socket in `row` what a program that holds it asks; the value that it is told.
    pub(crate) fn carry_out(&mut self, now: Instant, row: u32, op: Op) -> Result<u64, Errno> {
        match op {
            Op::Bind { local } if self.is_datagram(row) => self.bind_datagram(row, local),
            Op::Bind { local } => self.bind(row, local),
            Op::Listen { backlog } => self.listen(now, row, backlog),
            Op::Connect { remote, local } if self.is_datagram(row) => {
                self.connect_datagram(row, remote, local)
            }
            Op::Disconnect => self.disconnect_datagram(row),
            Op::TooLong { destination } => {
                let destination = scoped(destination, self.scope_id);
                note_too_long(now, &mut self.stack, &mut self.sockets, row, destination)
            }
            Op::Membership {
                change,
                group,
                source,
                interface,
            } => self.change_membership(row, change, (group, source), interface),
            Op::SetDatagramOptions(options) => self.set_datagram_options(row, &options),
            Op::Connect { .. }
            | Op::ConnectHeard { .. }
            | Op::ConnectFast { .. }
            | Op::ConnectForCookie { .. } => self.begin_connect(now, row, op),
            Op::Shutdown { how, written } => self.shutdown(now, row, how, written),
            Op::SetOptions { changes, .. } => {
                self.set_options(now, row, &changes);
                Ok(0)
            }
            Op::SetOption { option, value, .. } => self.set_option(now, row, option, value),
            Op::SetFastOpenKeys(keys) => self.set_fast_open_keys(row, &keys),
            Op::TellLane(news) => {
                let (stack, sockets) = (&mut self.stack, &mut self.sockets);
                self.byte_channels.tell(now, stack, sockets, row, news)
            }
            // These concern the program that asks.
            Op::Accept { .. } | Op::Close { .. } | Op::CloseBacking { .. } | Op::Query { .. } => {
                Err(Errno::INVAL)
            }
        }
    }

    /// Whether it is a datagram socket.
    pub(crate) fn is_datagram(&self, row: u32) -> bool {
        let kind = self.sockets.row(row).kind;
        matches!(kind, Kind::FreshDatagram | Kind::Datagram)
    }

    /// A program has closed its descriptor of a socket.
    pub(crate) fn on_hold_released(&mut self, now: Instant, row: u32) {
        if !self.sockets.holders(row).is_empty() {
            return;
        }
        if self.sockets.has(row, Marks::SHARED) {
            let closed = self.orphans.begin(now, &mut self.sockets, &[row]);
            self.close_all(now, closed);
        } else {
            self.close(now, row);
        }
    }

    /// Closes these, and those whose descriptors are all closed.
    pub(crate) fn close_all(&mut self, now: Instant, rows: Vec<u32>) {
        for row in rows {
            self.close(now, row);
        }
        self.close_orphans(now);
    }

    /// Closes those whose descriptors are all closed, as far as a look is due.
    pub(crate) fn close_orphans(&mut self, now: Instant) {
        for (row, port) in self.orphans.poll(now, &mut self.sockets) {
            self.orphans
                .hold_port(&self.stack, &mut self.sockets, (row, port));
            self.close(now, row);
        }
    }

    /// To be called before a socket begins to receive on `local`.
    fn claim_port(
        &mut self,
        row: u32,
        transport: Transport,
        local: SocketAddr,
        v6_only: bool,
    ) -> Result<(), Errno> {
        match &mut self.shared {
            Some(shared) => shared.claim_port(&mut self.sockets, row, transport, local, v6_only),
            None => Ok(()),
        }
    }

    /// The socket stops receiving; its connections go on.
    fn leave_port(&mut self, row: u32) {
        if let Some(shared) = &mut self.shared {
            shared.leave_port(&self.stack, &mut self.sockets, row);
        }
    }

    /// Before the SYN of a new connection leaves.
    fn claim_flow(&mut self, row: u32, local: SocketAddr, remote: SocketAddr) -> Result<(), Errno> {
        let Some(shared) = &mut self.shared else {
            return Ok(());
        };
        shared.must_be_free(&mut self.sockets, row, local, remote)?;
        // What is for this engine's own addresses the kernel never sees.
        if self.stack.owns_address(remote.ip()) {
            return Ok(());
        }
        shared.claim_flow(&mut self.sockets, row, local, remote)
    }

    /// How often bytes were copied.
    pub(crate) fn copies(&self) -> Copies {
        let mut copies = self.sockets.copies;
        copies.on_copied_out(self.link.copied_bytes());
        copies.passed = self.byte_channels.passed_in_all();
        copies
    }

    /// Whether segments wait for a busy device, or frames for this engine itself.
    pub(crate) fn has_backlog(&self) -> bool {
        self.stack.wants_transmit()
            || !self.senders.is_empty()
            || !self.link.loopback.is_empty()
            || self.byte_channels.has_backlog()
    }

    /// Acts on what the kernel has told of the addresses that it shares.
    pub(crate) fn follow_kernel(&mut self, now: Instant) {
        if let Some(shared) = &mut self.shared {
            shared.follow_kernel(now, &mut self.stack, &mut self.link.device);
        }
    }

    /// How the addresses are shared, for programs.
    pub(crate) fn sharing(&self) -> hostif::control::Sharing {
        let shared = self.shared.as_ref();
        shared.map_or(hostif::control::Sharing::Owned, Shared::sharing)
    }
}

/// The device listens to groups that programs are in.
#[cold]
fn follow_groups(interface: InterfaceId, stack: &mut Stack<'_>, link: &mut Link) {
    for change in stack.take_group_changes() {
        if change.interface == interface {
            // A device that does not take more groups gets none of those frames; the program's call
            // is over. On veth, TAP and bridges they arrive all the same.
            let _ = link.driver.listen_to(change.hardware.0, change.listen);
        }
    }
}
