//! What lies between the hosts: a cable each way, a router that knows the path's MTU, and darkness.

use netem::{Cable, CableCounters};
use nic::{TxFrame, offload::Finisher};
use std::net::Ipv4Addr;
use wire::{
    ethernet,
    icmpv4::{Message, unreachable},
    ipv4,
};

use super::scenario::Scenario;

/// The router that says that a packet is too long; it lies behind both hosts' own network.
pub const ROUTER: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);

/// The path of one scenario.
pub struct Path {
    scenario: Scenario,
    cables: [Cable; 2],
    finisher: Finisher,
    /// Frames that the router refused, and those that met darkness.
    pub too_long: u64,
    /// See [`Path::too_long`].
    pub swallowed: u64,
}

impl Path {
    /// The path of `scenario`.
    pub fn new(scenario: &Scenario) -> Self {
        let [there, back] = scenario.impairments;
        Self {
            cables: [
                Cable::new(there, scenario.seed),
                Cable::new(back, !scenario.seed),
            ],
            scenario: scenario.clone(),
            finisher: Finisher::new(),
            too_long: 0,
            swallowed: 0,
        }
    }

    /// Takes a frame from host `from`: cut into packets and summed as a device would.
    pub fn offer(&mut self, now_us: u64, from: usize, frame: &TxFrame<'_>) {
        let Self {
            scenario,
            cables,
            finisher,
            too_long,
            swallowed,
        } = self;
        let mtu = usize::from(scenario.mtu(now_us)) + ethernet::Header::LEN;
        let taken = finisher.finish(frame, &mut |bytes| {
            if scenario.is_black(now_us) {
                *swallowed += 1;
            } else if bytes.len() > mtu {
                *too_long += 1;
                if let Some(answer) =
                    refusal(bytes, scenario.mtu(now_us)).filter(|_| !scenario.silent_router)
                {
                    cables[1 - from].push(now_us, &answer);
                }
            } else {
                cables[from].push(now_us, bytes);
            }
        });
        taken.expect("invariant: a stack's frames do not contradict themselves");
    }

    /// When the next frame arrives.
    pub fn next_us(&self) -> Option<u64> {
        self.cables.iter().filter_map(Cable::next_event_us).min()
    }

    /// Hands every frame that has arrived by now to `deliver` with the host it came from.
    pub fn arrivals(&mut self, now_us: u64, deliver: &mut dyn FnMut(usize, &[u8])) {
        for (from, cable) in self.cables.iter_mut().enumerate() {
            while let Some(frame) = cable.pop(now_us) {
                // What was on the way when it grew dark is lost as well.
                if !self.scenario.is_black(now_us) {
                    deliver(from, &frame);
                }
                cable.give_back(frame);
            }
        }
    }

    /// What the cables did, each way.
    pub fn counters(&self) -> [CableCounters; 2] {
        self.cables.each_ref().map(Cable::counters)
    }
}

/// "Fragmentation needed" for a packet that may not be fragmented (RFC 1191 §4).
fn refusal(frame: &[u8], mtu: u16) -> Option<Vec<u8>> {
    let (link, packet) = ethernet::Header::parse(frame).ok()?;
    let (header, _) = ipv4::Header::parse(packet).ok()?;
    // RFC 792: the internet header and 64 bits of the datagram.
    let quoted = &packet[..packet.len().min(header.header_len + 8)];
    let message = Message::DestinationUnreachable {
        code: unreachable::FRAGMENTATION_NEEDED,
        next_hop_mtu: mtu,
        quoted,
    };
    let mut payload = vec![0; message.emit_len()];
    message.emit(&mut payload);
    let answer = ipv4::Header {
        dont_fragment: false,
        ..ipv4::Header::new(ROUTER, header.source, ipv4::Protocol::ICMP)
    };
    let mut bytes = vec![0; ethernet::Header::LEN + ipv4::Header::LEN];
    let link = ethernet::Header {
        source: link.destination,
        destination: link.source,
        ethertype: link.ethertype,
    };
    link.emit(&mut bytes);
    answer.emit(payload.len(), &mut bytes[ethernet::Header::LEN..]);
    bytes.extend_from_slice(&payload);
    Some(bytes)
}
