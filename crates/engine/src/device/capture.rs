//! Captures of this core's frames: what readers have asked for is copied into a bounded queue and sent to them when the
//! core has finished its poll. Read first: `hostif::control::capture`.
//!
//! Nobody waits for a reader: a frame that finds the queue full is dropped and counted. Without a capture each frame costs
//! a look at an empty list. Bytes in mapped files are not read (the file could be cut short meanwhile): such frames are
//! captured as far as their headers.

use std::collections::VecDeque;

use hostif::control::{CaptureFilter, CaptureProtocol, CaptureRecord};
use hostif::host_hooks;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socketpair, sockopt};
use wire::ipv4::Protocol;
use wire::outline::Outline;

/// Captures at once of a core.
const CAPTURES_MAX: usize = 8;
/// Bytes of a queue, and of the socket behind it.
const QUEUE_BYTES: usize = 4 * 1024 * 1024;
/// ICMP for IPv6 (RFC 4443).
const ICMPV6: Protocol = Protocol(58);

/// All captures of a core.
#[derive(Default)]
pub struct Captures {
    all: Vec<Capture>,
}

struct Capture {
    /// Of its reader.
    session: u32,
    filter: CaptureFilter,
    reader: OwnedFd,
    queue: VecDeque<u8>,
    dropped_frames: u64,
    /// The number that the reader knows.
    told_dropped: u64,
}

impl Captures {
    /// Whether nobody wants a frame.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// A capture for a session; the reader's end of its stream.
    ///
    /// # Errors
    /// There are too many, or no socket is to be had.
    pub fn start(&mut self, session: u32, filter: CaptureFilter) -> Result<OwnedFd, Errno> {
        if self.all.len() >= CAPTURES_MAX {
            return Err(Errno::BUSY);
        }
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (readers, own) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        // Beyond the system's limit where the engine may, else up to it.
        sockopt::set_socket_send_buffer_size_force(&own, QUEUE_BYTES)
            .or_else(|_| sockopt::set_socket_send_buffer_size(&own, QUEUE_BYTES))?;
        self.all.push(Capture {
            session,
            filter,
            reader: host_hooks::relocate_fd(own),
            queue: VecDeque::new(),
            dropped_frames: 0,
            told_dropped: 0,
        });
        Ok(readers)
    }

    /// The session is over.
    pub fn end(&mut self, session: u32) {
        self.all.retain(|one| one.session != session);
    }

    /// A frame has passed; `head` gives at most so many of its bytes, and how many it has.
    pub fn add(&mut self, is_sent: bool, head: impl FnOnce(usize) -> (Vec<u8>, u32)) {
        let snaps = self.all.iter().map(|one| one.filter.snap_bytes);
        // A filter looks behind the headers of the link, IP and the start of TCP.
        let snap = snaps.max().unwrap_or(0).max(OUTLINE_BYTES);
        let (bytes, frame_bytes) = head(usize::try_from(snap).unwrap_or(usize::MAX));
        let outline = Outline::of(&bytes);
        let time_ns = now_ns();
        for one in self
            .all
            .iter_mut()
            .filter(|one| wants(&one.filter, &outline))
        {
            one.push(is_sent, &bytes, frame_bytes, time_ns);
        }
    }

    /// Hands on what is queued. A reader that has gone ends its capture.
    pub fn flush(&mut self) {
        self.all.retain_mut(|one| one.flush().is_ok());
    }
}

/// Enough for an Ethernet header with a VLAN tag, the longest IP header that is usual, and ports.
const OUTLINE_BYTES: u32 = 128;

fn wants(filter: &CaptureFilter, outline: &Outline) -> bool {
    let is_protocol = match (filter.protocol, outline.protocol) {
        (CaptureProtocol::Any, _) => true,
        (CaptureProtocol::Arp, _) => outline.is_arp,
        (CaptureProtocol::Tcp, Some(protocol)) => protocol == Protocol::TCP,
        (CaptureProtocol::Udp, Some(protocol)) => protocol == Protocol::UDP,
        (CaptureProtocol::Icmp, Some(protocol)) => protocol == Protocol::ICMP || protocol == ICMPV6,
        (_, None) => false,
    };
    let is_host = filter.host.is_none_or(|host| {
        let ends = outline.addresses;
        ends.is_some_and(|(source, destination)| source == host || destination == host)
    });
    let is_port = filter.port.is_none_or(|port| {
        let ends = outline.ports;
        ends.is_some_and(|(source, destination)| source == port || destination == port)
    });
    is_protocol && is_host && is_port
}

fn now_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanoseconds = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds
        .saturating_mul(1_000_000_000)
        .saturating_add(nanoseconds)
}

impl Capture {
    fn push(&mut self, is_sent: bool, bytes: &[u8], frame_bytes: u32, time_ns: u64) {
        let snap = usize::try_from(self.filter.snap_bytes).unwrap_or(usize::MAX);
        let bytes = &bytes[..bytes.len().min(snap)];
        let record = CaptureRecord {
            captured_bytes: u32::try_from(bytes.len()).unwrap_or(0),
            frame_bytes,
            time_ns,
            dropped_frames: self.dropped_frames,
            is_sent,
        };
        if self.queue.len() + hostif::control::RECORD_BYTES + bytes.len() > QUEUE_BYTES {
            self.dropped_frames += 1;
            return;
        }
        self.queue.extend(record.encode());
        self.queue.extend(bytes);
        self.told_dropped = self.dropped_frames;
    }

    fn flush(&mut self) -> Result<(), Errno> {
        if self.queue.is_empty() && self.told_dropped < self.dropped_frames {
            let news = CaptureRecord {
                dropped_frames: self.dropped_frames,
                ..CaptureRecord::default()
            };
            self.queue.extend(news.encode());
            self.told_dropped = self.dropped_frames;
        }
        while !self.queue.is_empty() {
            let (first, _) = self.queue.as_slices();
            match send(
                &self.reader,
                first,
                SendFlags::DONTWAIT | SendFlags::NOSIGNAL,
            ) {
                Ok(sent) => drop(self.queue.drain(..sent)),
                Err(Errno::AGAIN | Errno::INTR | Errno::NOBUFS | Errno::NOMEM) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::IpAddr;
    use rustix::net::{RecvFlags, recv};

    fn filter(snap_bytes: u32) -> CaptureFilter {
        CaptureFilter {
            snap_bytes,
            ..CaptureFilter::default()
        }
    }

    fn received(reader: &OwnedFd) -> Vec<u8> {
        let (mut all, mut piece) = (Vec::new(), vec![0; 65_536]);
        while let Ok((_, len)) = recv(reader, &mut piece[..], RecvFlags::DONTWAIT) {
            if len == 0 {
                break;
            }
            all.extend_from_slice(&piece[..len]);
        }
        all
    }

    fn frames(mut bytes: &[u8]) -> Vec<(CaptureRecord, Vec<u8>)> {
        let mut found = Vec::new();
        while let Some((head, rest)) = bytes.split_first_chunk() {
            let record = CaptureRecord::decode(head).unwrap();
            let (frame, rest) = rest.split_at(usize::try_from(record.captured_bytes).unwrap());
            found.push((record, frame.to_vec()));
            bytes = rest;
        }
        found
    }

    #[test]
    fn each_reader_gets_as_much_of_a_frame_as_it_wants() {
        let mut captures = Captures::default();
        let [short, long] = [60, 1000].map(|snap| captures.start(1, filter(snap)).unwrap());
        captures.add(true, |max| (vec![7; 500.min(max)], 500));
        captures.flush();
        for (reader, expected) in [(short, 60), (long, 500)] {
            let [(record, frame)] = &frames(&received(&reader))[..] else {
                panic!("one frame was captured")
            };
            assert_eq!((record.frame_bytes, record.is_sent), (500, true));
            assert_eq!(frame, &vec![7; expected]);
        }
    }

    #[test]
    fn a_slow_reader_loses_frames_and_hears_how_many() {
        let mut captures = Captures::default();
        let reader = captures.start(1, filter(60_000)).unwrap();
        const OFFERED: u64 = 400;
        for _ in 0..OFFERED {
            captures.add(false, |_| (vec![1; 60_000], 60_000));
            captures.flush();
        }
        let mut bytes = received(&reader);
        // What was queued behind, and at the end the news of what was lost.
        for _ in 0..64 {
            captures.flush();
            bytes.extend(received(&reader));
        }
        let all = frames(&bytes);
        let (last, _) = all.last().unwrap();
        let whole = all.iter().filter(|(record, _)| record.frame_bytes > 0);
        let captured = u64::try_from(whole.count()).unwrap();
        assert!(last.dropped_frames > 0, "{last:?}");
        assert_eq!(captured + last.dropped_frames, OFFERED);
    }

    #[test]
    fn a_reader_that_has_gone_and_a_session_that_is_over_end_their_captures() {
        let mut captures = Captures::default();
        drop(captures.start(1, filter(60)).unwrap());
        let _kept = captures.start(2, filter(60)).unwrap();
        captures.add(true, |_| (vec![0; 60], 60));
        captures.flush();
        assert_eq!(captures.all.len(), 1);
        captures.end(2);
        assert!(captures.is_empty());
        let many: Vec<_> = (0..CAPTURES_MAX)
            .map(|_| captures.start(3, filter(60)).unwrap())
            .collect();
        assert_eq!(captures.start(3, filter(60)).map(drop), Err(Errno::BUSY));
        drop(many);
    }

    #[test]
    fn a_filter_wants_what_fits_in_every_part() {
        let (here, there) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let outline = Outline {
            is_arp: false,
            addresses: Some((here, there)),
            protocol: Some(Protocol::TCP),
            ports: Some((80, 5000)),
        };
        let base = filter(60);
        let tcp = CaptureProtocol::Tcp;
        for (filter, expected) in [
            (base, true),
            (
                CaptureFilter {
                    host: Some(there),
                    ..base
                },
                true,
            ),
            (
                CaptureFilter {
                    host: Some([9; 4].into()),
                    ..base
                },
                false,
            ),
            (
                CaptureFilter {
                    port: Some(5000),
                    protocol: tcp,
                    ..base
                },
                true,
            ),
            (
                CaptureFilter {
                    port: Some(81),
                    ..base
                },
                false,
            ),
            (
                CaptureFilter {
                    protocol: CaptureProtocol::Udp,
                    ..base
                },
                false,
            ),
            (
                CaptureFilter {
                    protocol: CaptureProtocol::Arp,
                    ..base
                },
                false,
            ),
        ] {
            assert_eq!(wants(&filter, &outline), expected, "{filter:?}");
        }
    }
}
