//! Sending: a frame into mbufs, with what the device does for it; the rest in software.
//!
//! Read first: `rte_mbuf_core.h`, `RTE_MBUF_F_TX_TCP_SEG`. Frames wait until the end of a poll, so that the
//! device is told once for many.

use std::time::{Duration, Instant};

use ::wire::ethernet;

use super::ffi::Offload;
use super::port::PENDING;
use super::sys::{Mbuf, Pool};
use super::{BURST, Dpdk};
use crate::driver::{PartialChecksum, TxFrame};
use crate::offload::{Cuts, complete_checksum, copy_range};

/// A device that takes nothing for so long never takes the first frame.
const STUCK: Duration = Duration::from_secs(1);
/// Frames that a device is asked to cut a large segment to at most: net_tap's software never sends one of more,
/// and of such small frames ours costs no more.
const CUT_MAX: usize = 64;
/// Bytes of a TCP header without options (RFC 9293 §3.1) and of a UDP header (RFC 768); where their sums lie.
const TCP_LEN: usize = 20;
const TCP_SUM: u16 = 16;
const UDP_LEN: usize = 8;
const UDP_SUM: u16 = 6;

/// What came of taking one frame.
pub(super) enum Sent {
    Taken,
    Dropped,
    Busy,
}

/// What a device that fills checksums is told of a frame; `None`: it has to be filled in software.
pub(super) fn offload_of(headers: &[u8], sum: PartialChecksum, segment: u16) -> Option<Offload> {
    let ip = ethernet::Header::LEN;
    let transport = usize::from(sum.start);
    let version = *headers.get(ip)? >> 4;
    let ethertype: [u8; 2] = *headers.get(12..14)?.first_chunk()?;
    let is_v6 = match (ethertype, version) {
        ([0x08, 0x00], 4) => false,
        ([0x86, 0xdd], 6) => true,
        _ => return None,
    };
    let is_tcp = match sum.offset {
        TCP_SUM => true,
        UDP_SUM if segment == 0 => false,
        _ => return None,
    };
    let shortest = if is_v6 { 40 } else { 20 };
    let len = if is_tcp {
        let offset = *headers.get(transport.checked_add(12)?)?;
        usize::from(offset >> 4) * 4
    } else {
        UDP_LEN
    };
    let payload = transport + len;
    let is_sound = transport >= ip + shortest
        && (!is_tcp || len >= TCP_LEN)
        && payload <= headers.len()
        // The headers of a large segment are repeated before each part of its payload.
        && (segment == 0 || payload == headers.len());
    is_sound.then_some(Offload {
        ip: u16::try_from(ip).ok()?,
        transport: sum.start,
        payload: u16::try_from(payload).ok()?,
        segment,
        is_v6: u32::from(is_v6),
        is_tcp: u32::from(is_tcp),
    })
}

/// Writes the bytes of a frame from `start` on.
fn copy_frame(frame: &TxFrame<'_>, start: usize, target: &mut [u8]) {
    let headers = frame.headers.get(start..).unwrap_or_default();
    let count = headers.len().min(target.len());
    let (front, back) = target.split_at_mut(count);
    front.copy_from_slice(&headers[..count]);
    copy_range(
        &frame.payload,
        (start + count) - frame.headers.len().min(start + count),
        back,
    );
}

impl Dpdk {
    pub(super) fn send(&mut self, frames: &[TxFrame<'_>]) -> usize {
        for (taken, frame) in frames.iter().enumerate() {
            match self.take(frame) {
                Sent::Taken => {
                    self.counters.tx_frames += 1;
                    self.counters.tx_bytes += frame.frame_len() as u64;
                }
                Sent::Dropped => self.counters.tx_dropped += 1,
                Sent::Busy => {
                    self.counters.tx_busy += 1;
                    return taken;
                }
            }
        }
        frames.len()
    }

    /// Takes a frame, to be sent by [`Dpdk::flush`].
    pub(super) fn take(&mut self, frame: &TxFrame<'_>) -> Sent {
        let Some(attached) = &self.attached else {
            return Sent::Dropped;
        };
        let cut_frame_max = attached.cut_frame_max;
        if self.pending.len() >= usize::from(BURST) {
            self.flush();
        }
        if frame.is_large() {
            let segment = frame.segment_size.unwrap_or_default();
            let is_for_device = self.device_cuts
                && frame.headers.len() + usize::from(segment) <= cut_frame_max
                && frame.payload_len() <= CUT_MAX * usize::from(segment);
            let offload = frame
                .checksum
                .filter(|_| is_for_device)
                .and_then(|sum| offload_of(frame.headers, sum, segment));
            return match offload {
                Some(offload) => self.take_whole(frame, Some(&offload)),
                None => self.take_cut(frame),
            };
        }
        if self.is_too_long(frame.frame_len()) {
            return Sent::Dropped;
        }
        let offload = frame
            .checksum
            .filter(|_| self.caps.tx_checksum)
            .and_then(|sum| offload_of(frame.headers, sum, 0));
        self.take_whole(frame, offload.as_ref())
    }

    fn is_too_long(&self, len: usize) -> bool {
        let most = usize::try_from(self.caps.mtu).unwrap_or(usize::MAX);
        len.saturating_sub(ethernet::Header::LEN) > most || len > self.pool().map_or(0, Pool::room)
    }

    /// An mbuf for `len` bytes, where there is room for another frame.
    fn make(&mut self, len: usize) -> Option<Mbuf> {
        if self.pending.len() >= PENDING {
            self.flush();
        }
        if self.pending.len() >= PENDING {
            return None;
        }
        let made = self.pool()?.make(len);
        if made.is_none() {
            // What the device has sent comes back when it is given more.
            self.flush();
            return self.pool()?.make(len);
        }
        made
    }

    fn pool(&self) -> Option<&Pool> {
        self.attached.as_ref()?.port.sending()
    }

    fn take_whole(&mut self, frame: &TxFrame<'_>, offload: Option<&Offload>) -> Sent {
        let Some(mut mbuf) = self.make(frame.frame_len()) else {
            return Sent::Busy;
        };
        let mut is_sound = true;
        mbuf.fill(|at, target| {
            copy_frame(frame, at, target);
            // Only what is cut by the device has several parts.
            if let (None, Some(sum)) = (offload, frame.checksum) {
                is_sound = complete_checksum(target, sum).is_ok();
            }
        });
        if !is_sound {
            return Sent::Dropped;
        }
        if let Some(offload) = offload {
            mbuf.offload(offload);
        }
        self.pending.push(mbuf);
        Sent::Taken
    }

    /// A large segment cut to frames: all of it or, where there never was room for all, as much as there is; the
    /// peer asks for the rest.
    fn take_cut(&mut self, frame: &TxFrame<'_>) -> Sent {
        let Ok(cuts) = Cuts::of(frame) else {
            return Sent::Dropped;
        };
        if self.is_too_long(cuts.frame_len(0)) {
            return Sent::Dropped;
        }
        if self.pending.len() + cuts.count() > PENDING {
            self.flush();
        }
        if !self.pending.is_empty() && self.pending.len() + cuts.count() > PENDING {
            return Sent::Busy;
        }
        for index in 0..cuts.count() {
            let Some(mut mbuf) = self.make(cuts.frame_len(index)) else {
                if index == 0 {
                    return Sent::Busy;
                }
                self.counters.tx_dropped += 1;
                break;
            };
            mbuf.fill(|_, target| cuts.write(frame, index, target));
            self.pending.push(mbuf);
        }
        Sent::Taken
    }

    /// Gives the device what waits, as much as it takes.
    pub(super) fn flush(&mut self) {
        while let Some(attached) = self.attached.as_ref().filter(|_| !self.pending.is_empty()) {
            let port = &attached.port;
            let unprepared = &mut self.pending[self.prepared..];
            self.prepared += port.prepare(self.queue, unprepared);
            let sent = port.send(self.queue, &mut self.pending, self.prepared);
            self.prepared -= sent;
            if sent > 0 {
                self.stuck_since = None;
            } else if self.prepared == 0 {
                // The driver refuses the first frame for good.
                self.drop_first();
            } else {
                let since = *self.stuck_since.get_or_insert_with(Instant::now);
                if since.elapsed() < STUCK {
                    return;
                }
                // Perhaps a large segment that the driver takes for too large and says nothing of.
                self.device_cuts = false;
                self.prepared -= 1;
                self.drop_first();
            }
        }
    }

    fn drop_first(&mut self) {
        drop(self.pending.remove(0));
        self.counters.tx_dropped += 1;
        self.stuck_since = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared_slice::SharedSlice;

    fn headers(ethertype: u16, version: u8, ip_len: usize, transport_len: usize) -> Vec<u8> {
        let mut headers = vec![0; 14 + ip_len + transport_len];
        headers[12..14].copy_from_slice(&ethertype.to_be_bytes());
        headers[14] = version << 4;
        if let Some(offset) = headers.get_mut(14 + ip_len + 12) {
            *offset = u8::try_from(transport_len / 4).unwrap() << 4;
        }
        headers
    }

    fn sum(start: u16, offset: u16) -> PartialChecksum {
        PartialChecksum { start, offset }
    }

    #[test]
    fn the_device_is_told_where_the_headers_lie() {
        let told = |headers: &[u8], sum, segment| {
            let offload = offload_of(headers, sum, segment)?;
            let kind = (offload.is_v6, offload.is_tcp);
            Some((offload.transport, offload.payload, kind))
        };
        let v4 = headers(0x0800, 4, 20, 32);
        assert_eq!(told(&v4, sum(34, 16), 0), Some((34, 66, (0, 1))));
        assert_eq!(told(&v4, sum(34, 16), 1448), Some((34, 66, (0, 1))));
        let v6 = headers(0x86dd, 6, 40, 20);
        assert_eq!(told(&v6, sum(54, 16), 1440), Some((54, 74, (1, 1))));
        let udp = headers(0x0800, 4, 20, 8);
        assert_eq!(told(&udp, sum(34, 6), 0), Some((34, 42, (0, 0))));
    }

    #[test]
    fn what_no_device_knows_is_left_to_software() {
        let v4 = headers(0x0800, 4, 20, 20);
        for (why, headers, sum, segment) in [
            ("ICMPv6's sum", &headers(0x86dd, 6, 40, 8), sum(54, 2), 0),
            (
                "another protocol",
                &headers(0x0806, 4, 20, 20),
                sum(34, 16),
                0,
            ),
            (
                "a version that is not its type's",
                &headers(0x0800, 6, 20, 20),
                sum(34, 16),
                0,
            ),
            ("large UDP", &headers(0x0800, 4, 20, 8), sum(34, 6), 1000),
            ("a start inside the IP header", &v4, sum(20, 16), 0),
            ("a start behind the frame", &v4, sum(u16::MAX, 16), 0),
            ("a header cut short", &v4[..40].to_vec(), sum(34, 16), 0),
            ("nothing", &Vec::new(), sum(34, 16), 0),
            (
                "payload among the headers of a large one",
                &headers_and(&v4),
                sum(34, 16),
                1000,
            ),
        ] {
            assert_eq!(offload_of(headers, sum, segment), None, "{why}");
        }
    }

    fn headers_and(headers: &[u8]) -> Vec<u8> {
        [headers, &[0; 9]].concat()
    }

    #[test]
    fn parts_of_a_frame_are_the_frame() {
        let bytes: Vec<u8> = (0..100).collect();
        let frame = TxFrame {
            headers: &bytes[..30],
            payload: TxFrame::spans([
                SharedSlice::from(&bytes[30..40]),
                SharedSlice::from(&bytes[40..50]),
                SharedSlice::from(&bytes[50..]),
            ]),
            checksum: None,
            segment_size: None,
        };
        for part in 1..=100 {
            let mut copied = Vec::new();
            for start in (0..100).step_by(part) {
                let mut target = vec![0; part.min(100 - start)];
                copy_frame(&frame, start, &mut target);
                copied.extend_from_slice(&target);
            }
            assert_eq!(copied, bytes, "in parts of {part}");
        }
    }
}
