//! What the switch remembers of a UDP socket (`calls::datagram`). Flags share a word with those of streams,
//! whose numbers are below 1 << 16.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Socket;
use super::corked::Corked;
use client::address::Family;
use switch::device::{Chosen, Device};
use switch::groups::Membership;

/// A UDP socket has a peer that the engine reaches.
const ENGINE_PEER: u32 = 1 << 16;
/// Datagrams arrive on the backing socket too and are the program's.
pub(super) const KERNEL_RECEIVES: u32 = 1 << 17;
/// IPV6_V6ONLY was set when it was opened on the engine.
const V6_ONLY: u32 = 1 << 18;
/// See [`Socket::is_filtered`].
const FILTERED: u32 = 1 << 19;
/// It has joined a group by an address or an interface of the kernel's.
const KERNEL_GROUPS: u32 = 1 << 26;
/// UDP_CORK.
const CORKED: u32 = 1 << 27;
/// A datagram is being put together.
const HAS_CORKED: u32 = 1 << 28;
/// Of so many receiving calls on both stacks one asks the kernel first.
const KERNEL_TURN: u32 = 16;

/// The options that forbid fragments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoFragments {
    /// IP_MTU_DISCOVER.
    DiscoveryV4,
    /// IPV6_MTU_DISCOVER.
    DiscoveryV6,
    /// IPV6_DONTFRAG.
    OptionV6,
}

impl NoFragments {
    fn flag(self) -> u32 {
        match self {
            NoFragments::DiscoveryV4 => 1 << 23,
            NoFragments::DiscoveryV6 => 1 << 24,
            NoFragments::OptionV6 => 1 << 25,
        }
    }
}

impl Socket {
    /// A UDP socket.
    pub fn datagram(family: Family) -> Socket {
        Socket {
            is_datagram: true,
            ..Socket::new(family)
        }
    }

    /// Whether it is a UDP socket.
    pub fn is_datagram(&self) -> bool {
        self.is_datagram
    }

    /// Whether a UDP socket has a peer that the engine reaches.
    pub fn has_engine_peer(&self) -> bool {
        self.has(ENGINE_PEER)
    }

    /// Remembers it.
    pub fn set_engine_peer(&self, on: bool) {
        self.set(ENGINE_PEER, on);
    }

    /// Whether datagrams arrive on the backing socket too.
    pub fn kernel_receives(&self) -> bool {
        self.has(KERNEL_RECEIVES)
    }

    /// Remembers it.
    pub fn set_kernel_receives(&self, on: bool) {
        self.set(KERNEL_RECEIVES, on);
    }

    /// The number of a receiving call, which decides what is asked first.
    pub fn next_receive(&self) -> u32 {
        self.receives.fetch_add(1, Ordering::Relaxed)
    }

    /// The number that the next call will have.
    pub fn receive_count(&self) -> u32 {
        self.receives.load(Ordering::Relaxed)
    }

    /// Whether a receiving call is to ask the kernel first, so that a busy engine does not hide it.
    pub fn is_kernels_turn(turn: u32) -> bool {
        turn % KERNEL_TURN == KERNEL_TURN - 1
    }

    /// What a program asks for with each datagram.
    pub fn wanted(&self) -> u32 {
        self.wanted.load(Ordering::Relaxed)
    }

    /// Remembers it.
    pub fn set_wanted(&self, what: u32, on: bool) {
        if on {
            self.wanted.fetch_or(what, Ordering::Relaxed);
        } else {
            self.wanted.fetch_and(!what, Ordering::Relaxed);
        }
    }

    /// Whether what is sent is put together to one datagram until the program says otherwise (UDP_CORK).
    pub fn is_corked(&self) -> bool {
        self.has(CORKED)
    }

    /// Remembers it.
    pub fn set_corked(&self, on: bool) {
        self.set(CORKED, on);
    }

    /// Whether a datagram is being put together.
    pub fn has_corked(&self) -> bool {
        self.has(HAS_CORKED)
    }

    /// Changes the datagram that is being put together; `None`: there is none.
    pub fn change_corked(&self, change: impl FnMut(Option<&Arc<Corked>>) -> Option<Arc<Corked>>) {
        self.corked.change(change);
        self.set(HAS_CORKED, self.corked.load().is_some());
    }

    /// Takes it.
    pub fn take_corked(&self) -> Option<Arc<Corked>> {
        self.set(HAS_CORKED, false);
        self.corked.swap(None)
    }

    /// Groups that a UDP socket is in on engines, or will be once it is there.
    pub fn memberships(&self) -> Arc<Vec<Membership>> {
        self.memberships.load_full().unwrap_or_default()
    }

    /// Notes that it has joined one, or left.
    pub fn note_membership(&self, join: bool, membership: Membership) {
        self.memberships.change(|list| {
            let mut list = list.map(|list| Vec::clone(list)).unwrap_or_default();
            let is_it = |one: &Membership| {
                *one == membership
                    || (membership.source.is_none()
                        && (one.group, one.place) == (membership.group, membership.place))
            };
            list.retain(|one| !is_it(one));
            if join {
                list.push(membership);
            }
            (!list.is_empty()).then(|| Arc::new(list))
        });
    }

    /// Whose interface IP_MULTICAST_IF or IPV6_MULTICAST_IF names.
    pub fn multicast_device(&self, family: Family) -> Device {
        self.multicast_of(family).load()
    }

    /// Remembers it.
    pub fn set_multicast_device(&self, family: Family, device: Device) {
        self.multicast_of(family).store(device);
    }

    fn multicast_of(&self, family: Family) -> &Chosen {
        let [v4, v6] = &self.multicast;
        match family {
            Family::V4 => v4,
            Family::V6 => v6,
        }
    }

    /// Whether the backing socket has the filter that drops what engines receive too.
    pub fn is_filtered(&self) -> bool {
        self.has(FILTERED)
    }

    /// Remembers it.
    pub fn set_filtered(&self, on: bool) {
        self.set(FILTERED, on);
    }

    /// Whether it is in a group by an address or an interface of the kernel's.
    pub fn hears_kernel_groups(&self) -> bool {
        self.has(KERNEL_GROUPS)
    }

    /// Remembers it.
    pub fn set_hears_kernel_groups(&self) {
        self.set(KERNEL_GROUPS, true);
    }

    /// Whether it is for IPv6 alone; said once it was opened on the engine.
    pub fn is_v6_only(&self) -> bool {
        self.has(V6_ONLY)
    }

    /// Remembers it.
    pub fn set_v6_only(&self, on: bool) {
        self.set(V6_ONLY, on);
    }

    /// UDP_SEGMENT.
    pub fn segment_bytes(&self) -> u16 {
        u16::try_from(self.segment_bytes.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// Sets it.
    pub fn set_segment_bytes(&self, bytes: u16) {
        self.segment_bytes.store(bytes.into(), Ordering::Relaxed);
    }

    /// Whether one of these options rules fragments out: a datagram that does not fit is refused.
    pub fn forbids_fragments(&self, why: NoFragments) -> bool {
        self.has(why.flag())
    }

    /// Sets it.
    pub fn set_forbids_fragments(&self, why: NoFragments, on: bool) {
        self.set(why.flag(), on);
    }
}
