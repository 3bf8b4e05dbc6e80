//! A core's place among the cores of its engine: its number, which connections are its own, and the few
//! slow things that one core leaves for another. On the way of data cores share nothing.
//!
//! The first core listens on the control socket and passes on the channels of programs that use another
//! core as well. It also gets every frame that belongs to no connection (see `hostif::steering`), and
//! passes on what all must know: the answers of neighbours. What turns out to belong to a connection of
//! another core after all goes there by way of [`owner`].

use core::net::IpAddr;
use engine_config::Address;
use hostif::{Steering, sync::doorbell};
use rustix::fd::{AsFd as _, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

pub mod card;
pub mod owner;
pub mod section;
pub mod steering;
use owner::{CrossShardQueue, Returns};
pub use owner::{Packet, ShardOwner};
use section::Section;

/// Messages that wait for a core at most. Programs are refused beyond it; neighbours are asked again.
const MESSAGES_MAX: usize = 256;
/// Bytes of the longest frame that is passed on: an advertisement with a few prefixes.
const FRAME_MAX: usize = 160;

/// What one core leaves for another.
pub enum Message {
    /// A program's control channel.
    Session {
        /// The engine's end.
        control: OwnedFd,
        /// The process.
        pid: i32,
        /// Its user.
        uid: u32,
    },
    /// A frame that came in at the first core.
    Frame {
        /// Its bytes, the first `len` of these.
        bytes: [u8; FRAME_MAX],
        /// How many.
        len: usize,
    },
    /// A packet of a connection of this core.
    Packet(Packet),
}

/// The way to another core.
#[derive(Clone)]
struct Sibling {
    sender: SyncSender<Message>,
    bell: Arc<OwnedFd>,
    is_used: Arc<AtomicBool>,
}

/// What has been left for this core.
struct Inbox {
    receiver: Receiver<Message>,
    bell: Arc<OwnedFd>,
    is_used: Arc<AtomicBool>,
    returns: Returns,
}

/// A core's place.
pub struct Shard {
    /// Which core this is.
    pub core: u16,
    /// How connections are spread.
    pub steering: Steering,
    /// Of the first core: the others, from core 1 on.
    siblings: Vec<Sibling>,
    /// The same for packets, until [`Shard::take_owner`].
    ways: Vec<CrossShardQueue>,
    /// Of the others.
    inbox: Option<Inbox>,
}

impl Shard {
    /// The only core.
    pub fn single() -> Self {
        Self {
            core: 0,
            steering: Steering::SINGLE,
            siblings: Vec::new(),
            ways: Vec::new(),
            inbox: None,
        }
    }

    /// A core that is alone with what the cores of another engine have left: it hears of no other, and none of it.
    pub fn of_left(section: Section) -> Self {
        let steering = Steering {
            cores: section.cores,
            key: 0,
        };
        Self {
            core: section.core,
            steering,
            ..Self::single()
        }
    }

    /// The shards of all cores of an engine, in their order.
    ///
    /// # Errors
    /// No more descriptors.
    pub fn all(steering: Steering) -> Result<Vec<Self>, Errno> {
        let mut first = Self {
            steering,
            ..Self::single()
        };
        let mut others = Vec::new();
        for core in 1..steering.cores {
            let (sender, receiver) = sync_channel(MESSAGES_MAX);
            let bell = Arc::new(doorbell::create()?);
            let is_used = Arc::new(AtomicBool::new(false));
            let sibling = Sibling {
                sender,
                bell: Arc::clone(&bell),
                is_used: Arc::clone(&is_used),
            };
            let (way, returns) = CrossShardQueue::new(sibling.clone());
            first.siblings.push(sibling);
            first.ways.push(way);
            others.push(Self {
                core,
                steering,
                inbox: Some(Inbox {
                    receiver,
                    bell,
                    is_used,
                    returns,
                }),
                ..Self::single()
            });
        }
        others.insert(0, first);
        Ok(others)
    }

    /// Whose connections are this core's, for its sockets.
    pub fn take_owner(&mut self) -> ShardOwner {
        let ways = core::mem::take(&mut self.ways);
        ShardOwner::new(self.core, self.steering, ways)
    }

    /// Leaves a program's channel for `core`.
    ///
    /// # Errors
    /// There is no such core, or it has too much to do.
    pub fn pass_session(&self, core: u16, session: Message) -> Result<(), Errno> {
        let sibling = usize::from(core)
            .checked_sub(1)
            .and_then(|at| self.siblings.get(at))
            .ok_or(Errno::INVAL)?;
        sibling.leave(session).map_err(|()| Errno::AGAIN)
    }

    /// Leaves a frame for the other cores if it concerns them all; `own` are the engine's addresses.
    #[inline]
    pub fn pass_frame(&self, frame: &[u8], own: &[Address]) {
        if self.siblings.is_empty() || !concerns_all(frame, own) {
            return;
        }
        let len = frame.len();
        let mut bytes = [0; FRAME_MAX];
        let Some(place) = bytes.get_mut(..len) else {
            return; // Its checksum covers it to the end.
        };
        place.copy_from_slice(frame);
        for sibling in &self.siblings {
            // What is lost here is asked for again.
            let _ = sibling.leave(Message::Frame { bytes, len });
        }
    }

    /// What the bell of a core rings for.
    pub fn bell(&self) -> Option<BorrowedFd<'_>> {
        self.inbox.as_ref().map(|inbox| inbox.bell.as_fd())
    }

    /// The next message.
    pub fn take(&self) -> Option<Message> {
        let inbox = self.inbox.as_ref()?;
        if let Ok(message) = inbox.receiver.try_recv() {
            return Some(message);
        }
        // Drained, then looked at once more: a message rings after it was left.
        doorbell::drain(inbox.bell.as_fd());
        inbox.receiver.try_recv().ok()
    }

    /// A packet that was left here is done with.
    pub fn give_back(&self, packet: Packet) {
        if let Some(inbox) = &self.inbox {
            inbox.returns.give_back(packet);
        }
    }

    /// Says whether a program still needs this core; for [`Shard::others_are_used`] of the first one.
    pub fn publish_use(&self, is_used: bool) {
        if let Some(inbox) = &self.inbox {
            inbox.is_used.store(is_used, Ordering::Release);
        }
    }

    /// Whether a program needs another core.
    pub fn others_are_used(&self) -> bool {
        let is_used = |sibling: &Sibling| sibling.is_used.load(Ordering::Acquire);
        self.siblings.iter().any(is_used)
    }
}

impl Sibling {
    /// What is lost is sent again.
    fn leave_packet(&self, packet: Packet) {
        let _ = self.leave(Message::Packet(packet));
    }

    fn leave(&self, message: Message) -> Result<(), ()> {
        if matches!(message, Message::Session { .. }) {
            // From now on, lest the engine ends before the core has looked.
            self.is_used.store(true, Ordering::Release);
        }
        self.sender.try_send(message).map_err(|_| ())?;
        doorbell::ring(self.bell.as_fd());
        Ok(())
    }
}

/// What neighbours say of themselves: ARP replies (RFC 826), neighbour and router advertisements
/// (RFC 4861 §4). A claim to an own address is for the first core alone to answer.
fn concerns_all(frame: &[u8], own: &[Address]) -> bool {
    let claimed = match frame.get(12..14) {
        Some([0x08, 0x06]) => arp_sender(frame),
        Some([0x86, 0xdd]) => advertised(frame),
        _ => None,
    };
    claimed.is_some_and(|claimed| own.iter().all(|one| one.address != claimed))
}

/// Whose hardware address an ARP reply tells.
fn arp_sender(frame: &[u8]) -> Option<IpAddr> {
    const REPLY: [u8; 2] = [0, 2];
    let sender: &[u8; 4] = frame.get(28..32)?.first_chunk()?;
    (frame.get(20..22)? == REPLY).then(|| IpAddr::from(*sender))
}

/// Whose hardware address an advertisement tells. Behind extension headers none is looked for.
fn advertised(frame: &[u8]) -> Option<IpAddr> {
    const ICMPV6: u8 = 58;
    const ROUTER: u8 = 134;
    const NEIGHBOUR: u8 = 136;
    if *frame.get(20)? != ICMPV6 {
        return None;
    }
    let at = match *frame.get(54)? {
        ROUTER => 22, // the packet's source
        NEIGHBOUR => 62,
        _ => return None,
    };
    let address: &[u8; 16] = frame.get(at..)?.first_chunk()?;
    Some(IpAddr::from(*address))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arp(operation: u8, sender: [u8; 4]) -> Vec<u8> {
        let mut frame = vec![0; 42];
        frame[12..14].copy_from_slice(&[0x08, 0x06]);
        frame[21] = operation;
        frame[28..32].copy_from_slice(&sender);
        frame
    }

    fn advertisement(target: [u8; 16]) -> Vec<u8> {
        let mut frame = vec![0; 78];
        frame[12..14].copy_from_slice(&[0x86, 0xdd]);
        (frame[20], frame[54]) = (58, 136);
        frame[62..].copy_from_slice(&target);
        frame
    }

    #[test]
    fn advertisements_of_others_reach_every_core() {
        let target = "fe80::5".parse::<core::net::Ipv6Addr>().unwrap().octets();
        assert!(concerns_all(&advertisement(target), &own()));
        let ours = vec!["fe80::5/64".parse().unwrap()];
        assert!(!concerns_all(&advertisement(target), &ours));
        let mut question = advertisement(target);
        question[54] = 135;
        assert!(!concerns_all(&question, &own()));
        assert!(!concerns_all(&advertisement(target)[..70], &own()));
    }

    fn own() -> Vec<Address> {
        vec!["10.0.0.1/24".parse().expect("an address")]
    }

    #[test]
    fn answers_of_neighbours_reach_every_core_and_questions_only_the_first() {
        let steering = Steering { cores: 3, key: 1 };
        let shards = Shard::all(steering).unwrap();
        shards[0].pass_frame(&arp(2, [10, 0, 0, 2]), &own());
        shards[0].pass_frame(&arp(1, [10, 0, 0, 2]), &own());
        shards[0].pass_frame(&arp(2, [10, 0, 0, 1]), &own());
        shards[0].pass_frame(&[0; 20], &own());
        for shard in &shards[1..] {
            let Some(Message::Frame { bytes, len }) = shard.take() else {
                panic!("no frame");
            };
            assert_eq!(bytes[..len], arp(2, [10, 0, 0, 2]));
            assert!(shard.take().is_none());
        }
    }

    #[test]
    fn a_core_with_too_much_to_do_gets_no_more() {
        let shards = Shard::all(Steering { cores: 2, key: 1 }).unwrap();
        for _ in 0..2 * MESSAGES_MAX {
            shards[0].pass_frame(&arp(2, [10, 0, 0, 2]), &own());
        }
        let taken = core::iter::from_fn(|| shards[1].take()).count();
        assert_eq!(taken, MESSAGES_MAX);
    }

    #[test]
    fn a_core_is_in_use_from_the_moment_a_program_is_sent_there() {
        let shards = Shard::all(Steering { cores: 2, key: 1 }).unwrap();
        assert!(!shards[0].others_are_used());
        let control = doorbell::create().unwrap();
        let message = Message::Session {
            control,
            pid: 1,
            uid: 0,
        };
        shards[0].pass_session(1, message).unwrap();
        assert!(shards[0].others_are_used());
        shards[1].publish_use(false);
        assert!(!shards[0].others_are_used());
        let control = doorbell::create().unwrap();
        let message = Message::Session {
            control,
            pid: 1,
            uid: 0,
        };
        assert_eq!(shards[0].pass_session(2, message), Err(Errno::INVAL));
    }
}
