//! Round trips and bulk over a driver, answered by a peer that knows nothing of it: a segment to a port on which
//! nobody listens is answered with RST that acknowledges it (RFC 9293 §3.10.7.1), once for each piece that
//! arrives, whatever its length.

use std::{
    net::{Ipv4Addr, SocketAddrV4},
    time::{Duration, Instant},
};

use anyhow::bail;
use nic::{Driver, PartialChecksum, RxFrame, SharedSlice, TxFrame};
use wire::{
    checksum::Sum,
    ethernet::{self, EtherType},
    ipv4::{self, Protocol},
    tcp::{self, Flags},
};

const IP_AT: usize = ethernet::Header::LEN;
const TCP_AT: usize = IP_AT + ipv4::Header::LEN;
const HEADERS_LEN: usize = TCP_AT + tcp::Header::LEN;
/// So that a frame has 64 bytes, as the round trips of `shunt bench` have.
const SMALL_BYTES: u16 = 10;
/// Sent and not acknowledged, at most: less than a peer's receive ring holds.
const IN_FLIGHT_BYTES: u32 = 512 * 1024;
/// An answer that takes longer was lost, or there is none.
const LOST_AFTER: Duration = Duration::from_millis(50);
/// A device may need time before it carries frames again when an XDP program came to it.
const FIRST_ANSWER_WITHIN: Duration = Duration::from_secs(4);
/// Received in one turn.
const BURST: usize = 64;

/// Who sends to whom.
#[derive(Debug, Clone, Copy)]
pub struct Ends {
    /// Our address, and a port that nobody else has.
    pub own: SocketAddrV4,
    /// The peer's, and a port on which nobody listens.
    pub peer: SocketAddrV4,
    /// Its hardware address, or the router's.
    pub station: ethernet::Address,
}

/// A driver that sends segments and looks for what acknowledges them.
pub struct ProbeTraffic<'a> {
    driver: &'a mut dyn Driver,
    ends: Ends,
    seq: u32,
    payload: Vec<u8>,
}

impl<'a> ProbeTraffic<'a> {
    /// Over `driver`.
    pub fn new(driver: &'a mut dyn Driver, ends: Ends) -> Self {
        let payload = vec![0x5a; usize::from(u16::MAX)];
        Self {
            driver,
            ends,
            seq: 1,
            payload,
        }
    }

    /// Sends until the first answer comes.
    pub fn first_answer(&mut self) -> anyhow::Result<()> {
        let until = Instant::now() + FIRST_ANSWER_WITHIN;
        while Instant::now() < until {
            if self.round_trip()?.is_some() {
                return Ok(());
            }
        }
        bail!(
            "{} does not answer segments to port {}: a firewall may drop them; give --peer a host of this network that refuses connections",
            self.ends.peer.ip(),
            self.ends.peer.port()
        )
    }

    /// Microseconds of each round trip of a small frame, one after the other, for so long.
    pub fn round_trips(&mut self, time: Duration) -> anyhow::Result<Vec<f64>> {
        let until = Instant::now() + time;
        let mut taken = Vec::new();
        while Instant::now() < until {
            taken.extend(self.round_trip()?);
        }
        Ok(taken)
    }

    /// `None`: the answer was lost.
    fn round_trip(&mut self) -> anyhow::Result<Option<f64>> {
        let begun = Instant::now();
        self.send(SMALL_BYTES, None)?;
        let wanted = self.seq;
        let mut is_there = false;
        while !is_there {
            self.receive(&mut |acknowledged| is_there |= acknowledged == wanted)?;
            if begun.elapsed() > LOST_AFTER {
                return Ok(None);
            }
        }
        Ok(Some(begun.elapsed().as_secs_f64() * 1e6))
    }

    /// Gigabits of payload a second that the peer acknowledges of the largest segments the driver takes.
    pub fn bulk(&mut self, time: Duration) -> anyhow::Result<f64> {
        let caps = self.driver.caps();
        let mss = caps.mtu.saturating_sub(40).clamp(1, 65_000);
        let largest = caps.tso_max_bytes.min(65_000).max(mss);
        let segment = u16::try_from(largest / mss * mss)?;
        let size = (u32::from(segment) > mss).then_some(u16::try_from(mss)?);
        let begun = Instant::now();
        let (mut acknowledged, mut delivered, mut last) = (self.seq, 0_u64, begun);
        while begun.elapsed() < time {
            let in_flight = self.seq.wrapping_sub(acknowledged);
            if in_flight < IN_FLIGHT_BYTES {
                self.send(segment, size)?;
            }
            let sent = self.seq;
            self.receive(&mut |ack| {
                let step = ack.wrapping_sub(acknowledged);
                if step == 0 || step > sent.wrapping_sub(acknowledged) {
                    return;
                }
                // What was lost in between is not acknowledged by what comes after it.
                delivered += u64::from(step.min(segment.into()));
                (acknowledged, last) = (ack, Instant::now());
            })?;
            if last.elapsed() > LOST_AFTER {
                (acknowledged, last) = (self.seq, Instant::now());
            }
        }
        Ok(delivered as f64 * 8.0 / begun.elapsed().as_secs_f64() / 1e9)
    }

    /// Offers the segment until the device takes it.
    fn send(&mut self, len: u16, segment_size: Option<u16>) -> anyhow::Result<()> {
        let headers = self.headers(len);
        let payload: &[u8] = &self.payload[..usize::from(len)];
        let frame = TxFrame {
            headers: &headers,
            payload: TxFrame::spans([SharedSlice::from(payload)]),
            checksum: Some(PartialChecksum {
                start: u16::try_from(TCP_AT)?,
                offset: tcp::CHECKSUM_OFFSET,
            }),
            segment_size,
        };
        let begun = Instant::now();
        while self.driver.tx_burst(std::slice::from_ref(&frame))? == 0 {
            self.driver.flush_tx()?;
            if begun.elapsed() > LOST_AFTER {
                bail!("the device took no frame for {} ms", LOST_AFTER.as_millis());
            }
        }
        self.driver.flush_tx()?;
        self.seq = self.seq.wrapping_add(len.into());
        Ok(())
    }

    fn headers(&self, len: u16) -> [u8; HEADERS_LEN] {
        let mut bytes = [0; HEADERS_LEN];
        let Ends { own, peer, station } = self.ends;
        let ethernet = ethernet::Header {
            destination: station,
            source: self.driver.caps().hardware_address,
            ethertype: EtherType::IPV4,
        };
        ethernet.emit(&mut bytes);
        let tcp_len = tcp::Header::LEN + usize::from(len);
        ip_header(*own.ip(), *peer.ip()).emit(tcp_len, &mut bytes[IP_AT..]);
        let segment = tcp::Header {
            source_port: own.port(),
            destination_port: peer.port(),
            seq: self.seq,
            flags: Flags::PSH,
            ..tcp::Header::default()
        };
        segment.emit(&mut bytes[TCP_AT..]);
        let partial = Sum::new().pseudo_header_v4(*own.ip(), *peer.ip(), Protocol::TCP, tcp_len);
        let at = TCP_AT + usize::from(tcp::CHECKSUM_OFFSET);
        bytes[at..at + 2].copy_from_slice(&partial.fold().to_be_bytes());
        bytes
    }

    /// Hands on what answers acknowledge.
    fn receive(&mut self, sink: &mut dyn FnMut(u32)) -> anyhow::Result<()> {
        let ends = self.ends;
        self.driver.rx_burst(BURST, &mut |frame| {
            if let Some(acknowledged) = acknowledged(&frame, &ends) {
                sink(acknowledged);
            }
        })?;
        Ok(())
    }
}

fn ip_header(source: Ipv4Addr, destination: Ipv4Addr) -> ipv4::Header {
    ipv4::Header::new(source, destination, Protocol::TCP)
}

/// What an RST of the peer acknowledges.
fn acknowledged(frame: &RxFrame<'_>, ends: &Ends) -> Option<u32> {
    let (ethernet, packet) = ethernet::Header::parse(frame.bytes).ok()?;
    let (ip, segment) = ipv4::Header::parse(packet).ok()?;
    let is_from_peer = ethernet.ethertype == EtherType::IPV4
        && (ip.source, ip.destination) == (*ends.peer.ip(), *ends.own.ip())
        && ip.protocol == Protocol::TCP;
    let (tcp, _) = tcp::Header::parse(segment).ok().filter(|_| is_from_peer)?;
    let is_answer = (tcp.source_port, tcp.destination_port) == (ends.peer.port(), ends.own.port())
        && tcp.flags.contains(Flags::RST | Flags::ACK);
    is_answer.then_some(tcp.ack)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nic::wire::{Config, WireEnd};
    use std::sync::atomic::{AtomicBool, Ordering};

    const OWN: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 50_000);
    const PEER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 2), 9);

    /// Answers as a kernel does on whose port nobody listens; says how many bytes it was sent.
    fn answer(driver: &mut WireEnd, is_over: &AtomicBool) -> u64 {
        let mut bytes = 0;
        while !is_over.load(Ordering::Relaxed) {
            let mut answers = Vec::new();
            let received = driver.rx_burst(BURST, &mut |frame| {
                let (_, packet) = ethernet::Header::parse(frame.bytes).unwrap();
                let (_, segment) = ipv4::Header::parse(packet).unwrap();
                let (tcp, payload) = tcp::Header::parse(segment).unwrap();
                bytes += payload.len() as u64;
                let len = u32::try_from(payload.len()).unwrap();
                answers.push(tcp.seq.wrapping_add(len));
            });
            received.unwrap();
            for ack in answers {
                let frame = reset(ack);
                while driver.tx_burst(&[TxFrame::plain(&frame)]).unwrap() == 0 {}
            }
        }
        bytes
    }

    fn reset(ack: u32) -> [u8; HEADERS_LEN] {
        let mut bytes = [0; HEADERS_LEN];
        let ethernet = ethernet::Header {
            destination: ethernet::Address([2; 6]),
            source: ethernet::Address([4; 6]),
            ethertype: EtherType::IPV4,
        };
        ethernet.emit(&mut bytes);
        ip_header(*PEER.ip(), *OWN.ip()).emit(tcp::Header::LEN, &mut bytes[IP_AT..]);
        let tcp = tcp::Header {
            source_port: PEER.port(),
            destination_port: OWN.port(),
            ack,
            flags: Flags::RST | Flags::ACK,
            ..tcp::Header::default()
        };
        tcp.emit(&mut bytes[TCP_AT..]);
        bytes
    }

    #[test]
    fn only_what_the_peer_acknowledged_counts() {
        let (mut own, mut other) = WireEnd::pair(&Config::default()).unwrap();
        let is_over = AtomicBool::new(false);
        let ends = Ends {
            own: OWN,
            peer: PEER,
            station: ethernet::Address([4; 6]),
        };
        std::thread::scope(|scope| {
            let peer = scope.spawn(|| answer(&mut other, &is_over));
            let mut probe_traffic = ProbeTraffic::new(&mut own, ends);
            probe_traffic.first_answer().unwrap();
            let taken = probe_traffic.round_trips(Duration::from_millis(5)).unwrap();
            assert!(taken.iter().all(|us| (0.0..1e6).contains(us)));
            let lasting = Duration::from_millis(20);
            // Where others want the processor the peer may not run for as long as that.
            let mut tries = (0..500).map(|_| probe_traffic.bulk(lasting).unwrap());
            let gbit_s = tries.find(|gbit_s| *gbit_s > 0.0).unwrap_or(0.0);
            is_over.store(true, Ordering::Relaxed);
            let received = u32::try_from(peer.join().unwrap()).unwrap();
            let counted = gbit_s * 1e9 / 8.0 * lasting.as_secs_f64();
            assert!(
                counted > 0.0 && counted <= f64::from(received),
                "{counted} of {received}"
            );
        });
    }

    #[test]
    fn what_is_not_the_answer_is_nobodys() {
        let ends = Ends {
            own: OWN,
            peer: PEER,
            station: ethernet::Address([4; 6]),
        };
        let of = |bytes: &[u8]| {
            let frame = RxFrame {
                bytes,
                checksum: nic::RxChecksum::Unknown,
                segment_size: None,
                arrived_at_ns: None,
            };
            acknowledged(&frame, &ends)
        };
        let answer = reset(77);
        assert_eq!(of(&answer), Some(77));
        for (at, what) in [
            (IP_AT + 9, "protocol"),
            (TCP_AT + 1, "port"),
            (TCP_AT + 13, "flags"),
        ] {
            let mut other = answer;
            other[at] ^= 0x14;
            assert_eq!(of(&other), None, "{what}");
        }
        for len in 0..HEADERS_LEN {
            assert_eq!(of(&answer[..len]), None, "{len}");
        }
    }
}
