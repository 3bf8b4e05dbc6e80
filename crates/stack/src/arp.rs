//! ARP on the link: answering, asking, announcing, defending (RFC 826, RFC 5227).
//!
//! The cache is `neighbour.rs`. What is received is believed only as far as it must be: senders must
//! be on the link, entries are created only for those who ask for us, and nobody's claim displaces
//! what was confirmed within the last second. Proxy ARP and RARP are not done.

use crate::egress::{Busy, Egress, Frame, Host, Payload};
use crate::interface::{InterfaceId, Resolution};
use crate::neighbour::{Expiry, Probe};
use crate::stack::{QUESTIONS_MAX, Stack};
use crate::tables::Flags;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use tcp::{ConnectionError, Duration, Instant};
use wire::arp::{Operation, Packet};
use wire::ethernet::{Address, EtherType, Header};

/// RFC 5227 §1.1, DEFEND_INTERVAL.
const DEFEND_INTERVAL: Duration = Duration::from_secs(10);

const FRAME_LEN: usize = Header::LEN + Packet::LEN;

/// Something to say on the link of our own accord.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Question {
    Who(Probe),
    /// This own address is ours (a gratuitous request, RFC 5227 §3).
    Announce(InterfaceId, IpAddr),
    /// Does somebody else have this own address? (RFC 4862 §5.4.2)
    Duplicate(InterfaceId, Ipv6Addr),
    /// Which routers are there? (RFC 4861 §6.3.7)
    Routers(InterfaceId),
}

impl Stack<'_> {
    /// Takes in an ARP packet that came in a frame from `source`.
    pub(crate) fn handle_arp(
        &mut self,
        now: Instant,
        id: InterfaceId,
        source: Address,
        bytes: &[u8],
        egress: &mut dyn Egress,
    ) {
        self.counters.arp_in += 1;
        let Some(interface) = self
            .interfaces
            .find(id)
            .filter(|i| i.config.resolution == Resolution::Arp)
        else {
            return;
        };
        let Ok(packet) = Packet::parse(bytes) else {
            self.counters.arp_in_errors += 1;
            return;
        };
        let sender = packet.sender_protocol;
        let is_probe = sender.is_unspecified();
        // A sender that speaks for another station's hardware address is a relay or an attacker.
        let plausible = packet.sender_hardware.is_unicast()
            && packet.sender_hardware == source
            && (is_probe
                || (self.interfaces.is_unicast(sender.into())
                    && interface.is_on_link(sender.into())));
        if !plausible {
            self.counters.arp_in_errors += 1;
            return;
        }
        let hardware = interface.config.hardware;
        if packet.sender_hardware == hardware {
            return; // Our own, looped back.
        }
        let asks_us =
            packet.operation == Operation::REQUEST && interface.owns(packet.target_protocol.into());
        if interface.owns(sender.into()) {
            self.defend(now, id, sender.into());
            return;
        }
        if !is_probe {
            let answers_us =
                packet.operation == Operation::REPLY && packet.target_hardware == hardware;
            self.merge(now, id, &packet, asks_us, answers_us);
        }
        if asks_us {
            let reply = Packet {
                operation: Operation::REPLY,
                sender_hardware: hardware,
                sender_protocol: packet.target_protocol,
                target_hardware: packet.sender_hardware,
                target_protocol: sender,
            };
            if send(id, packet.sender_hardware, &reply, egress).is_ok() {
                self.counters.arp_out_replies += 1;
            }
        }
    }

    /// RFC 826 "merge": an existing entry is refreshed by anything, a new one is made only for who asks us.
    fn merge(
        &mut self,
        now: Instant,
        id: InterfaceId,
        packet: &Packet,
        asks_us: bool,
        answers_us: bool,
    ) {
        let entry = match self.neighbours.find(id, packet.sender_protocol.into()) {
            None if asks_us => self
                .neighbours
                .learn(now, id, packet.sender_protocol.into()),
            found => found,
        };
        if let Some(n) = entry {
            self.neighbours
                .heard(now, n, packet.sender_hardware, answers_us);
            self.arm_neighbour(n);
            self.wake_waiters(n);
        }
    }

    /// Somebody else uses one of our addresses: say once in a while that it is ours (RFC 5227 §2.4 (b)).
    fn defend(&mut self, now: Instant, id: InterfaceId, address: IpAddr) {
        self.counters.arp_conflicts += 1;
        let interface = self.interfaces.find_mut(id);
        let Some(owned) = interface.and_then(|interface| interface.owned_mut(address)) else {
            return;
        };
        if owned
            .defended_at
            .is_none_or(|at| now.since(at) >= DEFEND_INTERVAL)
        {
            owned.defended_at = Some(now);
            self.question(Question::Announce(id, address));
        }
    }

    /// Asks for a hardware address as soon as the interface takes it.
    pub(crate) fn ask(&mut self, probe: Probe) {
        self.question(Question::Who(probe));
    }

    pub(crate) fn question(&mut self, question: Question) {
        // Bounded: whoever asks has a timer and asks again.
        if self.questions.len() < QUESTIONS_MAX {
            self.questions.push_back(question);
        }
    }

    pub(crate) fn send_question(
        &mut self,
        question: &Question,
        egress: &mut dyn Egress,
    ) -> Result<(), Busy> {
        let (id, target, unicast) = match *question {
            Question::Who(probe) => (probe.interface, probe.address, probe.hardware),
            Question::Announce(id, address) => (id, address, None),
            Question::Duplicate(id, address) => return self.probe_duplicate(id, address, egress),
            Question::Routers(id) => return self.ask_routers(id, egress),
        };
        let Some(interface) = self.interfaces.find(id) else {
            return Ok(());
        };
        if interface.config.resolution == Resolution::External {
            egress.resolve(id, target);
            return Ok(());
        }
        match target {
            IpAddr::V4(target) => {
                let is_announcement = matches!(question, Question::Announce(..));
                self.send_request(id, target, unicast, is_announcement, egress)
            }
            IpAddr::V6(target) => self.solicit_neighbour(id, target, unicast, egress),
        }
    }

    fn send_request(
        &mut self,
        id: InterfaceId,
        target: Ipv4Addr,
        unicast: Option<Address>,
        is_announcement: bool,
        egress: &mut dyn Egress,
    ) -> Result<(), Busy> {
        let Some(interface) = self.interfaces.find(id) else {
            return Ok(());
        };
        let sender = if is_announcement {
            Some(target.into())
        } else {
            interface.source_for(target.into(), target.into())
        };
        let Some(IpAddr::V4(sender_protocol)) = sender else {
            return Ok(());
        };
        let request = Packet {
            operation: Operation::REQUEST,
            sender_hardware: interface.config.hardware,
            sender_protocol,
            target_hardware: Address([0; 6]),
            target_protocol: target,
        };
        send(id, unicast.unwrap_or(Address::BROADCAST), &request, egress)?;
        self.counters.arp_out_requests += 1;
        Ok(())
    }

    /// Puts the deadline of neighbour `n` into the wheel.
    pub(crate) fn arm_neighbour(&mut self, n: u32) {
        let timer = self.neighbour_timer(n);
        let wanted = self.neighbours.deadline(n).map(Instant::as_us);
        if self.wheel.deadline_us(timer) == wanted {
            return;
        }
        match wanted {
            Some(deadline_us) => self.wheel.set(timer, deadline_us),
            None => self.wheel.cancel(timer),
        }
    }

    pub(crate) fn handle_neighbour_timer(&mut self, now: Instant, n: u32) {
        match self.neighbours.handle_timeout(now, n) {
            Expiry::Nothing => {}
            Expiry::Ask(probe) => self.ask(probe),
            Expiry::Unreachable => self.neighbour_failed(n),
        }
        self.arm_neighbour(n);
    }

    /// Nobody has the address: those who wait hear of it, as Linux's `arp_error_report` does it.
    pub(crate) fn neighbour_failed(&mut self, n: u32) {
        self.counters.neighbour_failures += 1;
        self.neighbours.set_failed(n);
        self.udp.held.on_neighbour_changed();
        self.arm_neighbour(n);
        let (interface, address) = self.neighbours.place(n);
        self.forget_redirects_to(interface, address);
        // RFC 4861 §7.2.2, §6.3.6: what waits for a router goes by another one.
        let has_other_way = self.routes.on_silent_router(interface, address);
        while let Some(index) = self.pop_waiter(n) {
            if has_other_way {
                self.senders.push(index);
            } else {
                self.failed.push(index);
            }
        }
    }

    /// Those who waited for neighbour `n` may go on, if it is known now.
    pub(crate) fn wake_waiters(&mut self, n: u32) {
        use crate::neighbour::NeighbourState as S;
        if matches!(self.neighbours.entry(n).state, S::Incomplete | S::Failed) {
            return;
        }
        if self.routes.has_silent_routers() {
            let (interface, address) = self.neighbours.place(n);
            self.routes.on_heard_router(interface, address);
        }
        self.udp.held.on_neighbour_changed();
        while let Some(index) = self.pop_waiter(n) {
            self.senders.push(index);
        }
    }

    /// Tells connections what has failed since the last call. While connecting it is fatal, later it is
    /// a loss from which retransmission may recover (RFC 1122 §4.2.3.9).
    pub(crate) fn tell_failed(&mut self, now: Instant, host: &mut dyn Host) {
        while let Some(index) = self.failed.pop() {
            if !self.record(index).has(Flags::USED) {
                continue;
            }
            if self.record(index).has(Flags::INTERRUPTED) {
                self.run(now, index, host, |tcp| {
                    tcp.handle_unreachable(ConnectionError::Reset, true)
                });
                continue;
            }
            self.change(index, |record| record.set(Flags::LOSE, true));
            self.senders.push(index);
            self.run(now, index, host, |tcp| {
                tcp.handle_unreachable(ConnectionError::HostUnreachable, false)
            });
        }
    }
}

fn send(
    id: InterfaceId,
    destination: Address,
    packet: &Packet,
    egress: &mut dyn Egress,
) -> Result<(), Busy> {
    let mut headers = [0; FRAME_LEN];
    let source = packet.sender_hardware;
    Header {
        destination,
        source,
        ethertype: EtherType::ARP,
    }
    .emit(&mut headers);
    packet.emit(&mut headers[Header::LEN..]);
    let payload = Payload::None;
    egress.transmit(&Frame {
        interface: id,
        headers: &headers,
        payload,
        checksum: None,
        segment_size: None,
    })
}
