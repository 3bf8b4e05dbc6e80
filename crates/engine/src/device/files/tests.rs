//! Ranges in files against a driver that reads what it is given: the bytes, and where they came from.

use super::super::link::{IsMapped, Link, SendWindow};
use super::*;
use crate::state::rows::ExtentRow;
use hostif::{Layout, Region, RingEntries, SocketId};
use nic::{Caps, Counters, Driver, RxFrame, TxFrame};
use proptest::prelude::*;
use rustix::fd::BorrowedFd;
use stack::{ConnectionId, Egress as _, Frame, InterfaceId, Payload};
use std::io;
use std::sync::Mutex;
use zerocopy::FromZeros as _;

const WINDOW: u64 = 65_536;
/// The only socket.
const OF: SocketUse = SocketUse {
    row: 1,
    generation: 1,
};

/// Payloads as they lay, and in how many spans.
type Sent = Arc<Mutex<Vec<(Vec<u8>, usize)>>>;

struct Recording {
    caps: Caps,
    sent: Sent,
}

impl Driver for Recording {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn rx_burst(&mut self, _: usize, _: &mut dyn FnMut(RxFrame<'_>)) -> io::Result<usize> {
        Ok(0)
    }

    fn tx_burst(&mut self, frames: &[TxFrame<'_>]) -> io::Result<usize> {
        for frame in frames {
            let mut bytes = Vec::new();
            for span in &frame.payload {
                span.append_to(&mut bytes);
            }
            let spans = frame.payload.iter().filter(|span| !span.is_empty());
            self.sent.lock().unwrap().push((bytes, spans.count()));
        }
        Ok(frames.len())
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn prepare_wait(&mut self) -> io::Result<bool> {
        Ok(true)
    }

    fn counters(&self) -> Counters {
        Counters::default()
    }
}

struct Scene {
    link: Link,
    sent: Sent,
    region: Region,
}

impl Scene {
    fn new(payload_by_address: bool) -> Self {
        let ring_entries = RingEntries {
            command: 2,
            send: 2,
            receive: 2,
            completion: 2,
        };
        let layout = Layout {
            ring_entries,
            socket_headers: 1,
            window_pairs: 1,
            send_window_bytes: u32::try_from(WINDOW).unwrap(),
            receive_window_bytes: 4096,
        };
        let region = Region::create(layout, 1, 1).unwrap();
        let sent = Sent::default();
        let (end, _) = nic::wire::WireEnd::pair(&nic::wire::Config::default()).unwrap();
        let caps = Caps {
            payload_by_address,
            ..end.caps().clone()
        };
        let driver = Recording {
            caps,
            sent: Arc::clone(&sent),
        };
        let mut link = Link::new(
            Box::new(driver),
            2,
            stack::InterfaceId(1),
            vec![ExtentRow::new_zeroed(); 128].leak(),
        );
        let (span, _) = region.window_pair(0).unwrap();
        link.set_window(1, SendWindow::of(region.clone(), span, 0));
        Self { link, sent, region }
    }

    fn write(&self, at: u64, bytes: &[u8]) {
        let (span, _) = self.region.window_pair(0).unwrap();
        self.region.window(span).unwrap().copy_in(at, bytes);
    }

    /// What leaves for a range of the stream, and in how many spans; nothing if the frame is dropped.
    fn transmit(&mut self, offset: u64, len: usize) -> Option<(Vec<u8>, usize)> {
        let frame = Frame {
            interface: InterfaceId(0),
            headers: &[0; 54],
            payload: Payload::Window {
                connection: ConnectionId {
                    index: 0,
                    generation: 1,
                },
                owner: SocketId::new(1, 1).unwrap().to_bits(),
                offset,
                len: u32::try_from(len).unwrap(),
            },
            checksum: None,
            segment_size: None,
        };
        self.link.transmit(&frame).unwrap();
        self.sent.lock().unwrap().pop()
    }
}

fn pattern(start: u64, len: usize) -> Vec<u8> {
    (start..start + len as u64)
        .map(|at| (at.wrapping_mul(0x9e37_79b9) >> 11).to_le_bytes()[0])
        .collect()
}

/// A file of that length, without a name.
fn file(len: usize) -> Arc<SourceFile> {
    static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let name = format!("shunt-ranges-{}-{number}", std::process::id());
    let path = std::env::temp_dir().join(name);
    std::fs::write(&path, pattern(1 << 40, len)).unwrap();
    let file = std::fs::File::options()
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    std::fs::remove_file(&path).unwrap();
    Arc::new(SourceFile::new(crate::harness::user().keep(file.into())))
}

fn in_file(offset: u64, len: usize) -> Vec<u8> {
    pattern((1 << 40) + offset, len)
}

#[test]
fn a_range_within_one_extent_is_one_span_of_the_file() {
    let mut scene = Scene::new(true);
    let file = file(100_000);
    let added = scene.link.add_file(OF, &file, 777, 1000, 50_000);
    assert_eq!(added, Ok(IsMapped(true)));
    assert_eq!(
        scene.transmit(2000, 30_000),
        Some((in_file(1777, 30_000), 1))
    );
    scene.write(0, &pattern(0, 1000));
    assert_eq!(scene.transmit(0, 1000), Some((pattern(0, 1000), 1)));
}

#[test]
fn a_range_of_header_and_file_is_two_spans_and_one_of_three_parts_goes_through_the_window() {
    let mut scene = Scene::new(true);
    let file = file(3000);
    scene.write(0, &pattern(0, 1000));
    scene.link.add_file(OF, &file, 0, 1000, 4000).unwrap();
    scene.write(4000, &pattern(4000, 500));
    let mut all = [pattern(0, 1000), in_file(0, 3000), pattern(4000, 500)].concat();
    assert_eq!(scene.transmit(0, 4500), Some((all.clone(), 1)));
    assert_eq!(scene.transmit(3999, 501), Some((all.split_off(3999), 2)));
    assert_eq!(scene.transmit(0, 3999), Some((all, 2)));
}

#[test]
fn pieces_that_follow_each_other_share_an_extent_and_a_mapping() {
    let mut scene = Scene::new(true);
    let file = file(60_000);
    for at in 0..600 {
        scene
            .link
            .add_file(OF, &file, at * 100, at * 100, at * 100 + 100)
            .unwrap();
    }
    assert_eq!(scene.link.mapped_pieces(), 1);
    assert_eq!(scene.transmit(55, 59_000), Some((in_file(55, 59_000), 1)));
    assert_eq!(scene.link.release_files(1, 59_999), IsMapped(true));
    assert_eq!(scene.link.mapped_pieces(), 1);
    assert_eq!(scene.link.release_files(1, 60_000), IsMapped(false));
    assert_eq!(scene.link.mapped_pieces(), 1, "for whoever asks next");
    drop(file);
    assert_eq!(scene.link.mapped_pieces(), 0);
}

#[test]
fn a_range_over_the_border_of_two_mappings_is_two_spans() {
    let mut scene = Scene::new(true);
    let file = file(2 * 1024 * 1024 + 5000);
    let offset = PIECE_BYTES - 3001;
    scene.link.add_file(OF, &file, offset, 10, 8011).unwrap();
    assert_eq!(scene.link.mapped_pieces(), 2);
    assert_eq!(scene.transmit(10, 8001), Some((in_file(offset, 8001), 2)));
    drop(file);
    assert_eq!(scene.link.release_files(1, 3011), IsMapped(true));
    assert_eq!(scene.link.mapped_pieces(), 2);
    scene.link.set_window(1, None);
    assert_eq!(scene.link.mapped_pieces(), 0);
}

#[test]
fn pieces_beyond_those_kept_go_when_they_are_acknowledged() {
    let mut scene = Scene::new(true);
    let file = file(0);
    let keep = u64::try_from(KEPT_MAX).unwrap();
    for at in 0..keep + 3 {
        let offset = at * PIECE_BYTES;
        scene.link.add_file(OF, &file, offset, at, at + 1).unwrap();
        if at < keep {
            scene.link.release_files(1, at + 1);
        }
    }
    assert_eq!(scene.link.mapped_pieces(), KEPT_MAX + 3);
    scene.link.release_files(1, keep + 3);
    assert_eq!(scene.link.mapped_pieces(), KEPT_MAX);
}

#[test]
fn too_many_extents_go_on_in_the_window() {
    let mut scene = Scene::new(true);
    let file = file(60_000);
    // Backwards through the file, so that no piece follows the one before.
    for at in 0..100 {
        let offset = 50_000 - at * 500;
        scene
            .link
            .add_file(OF, &file, offset, at * 500, at * 500 + 500)
            .unwrap();
    }
    for at in 0..100 {
        let offset = 50_000 - at * 500;
        let found = scene.transmit(at * 500, 500);
        assert_eq!(found, Some((in_file(offset, 500), 1)), "piece {at}");
    }
}

#[test]
fn without_addresses_the_file_is_read_at_once_and_one_that_is_too_short_is_refused() {
    let mut scene = Scene::new(false);
    let file = file(3000);
    let added = scene.link.add_file(OF, &file, 1, 65_000, 67_999);
    assert_eq!(added, Ok(IsMapped(false)));
    assert_eq!(scene.link.mapped_pieces(), 0);
    rustix::fs::ftruncate(file.file(), 0).unwrap();
    assert_eq!(scene.transmit(65_000, 2999), Some((in_file(1, 2999), 2)));
    let beyond = scene.link.add_file(OF, &file, 0, 67_999, 68_000);
    assert_eq!(beyond, Err(super::super::link::FileTooShort));
}

#[test]
fn a_file_cut_short_loses_the_frames_that_had_to_be_read() {
    let mut scene = Scene::new(true);
    let file = file(9000);
    scene.link.add_file(OF, &file, 0, 1000, 10_000).unwrap();
    rustix::fs::ftruncate(file.file(), 5000).unwrap();
    assert_eq!(scene.transmit(999, 9002), None);
    assert_eq!(scene.transmit(0, 1000).unwrap().1, 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn any_mixture_of_window_and_file_leaves_as_it_was_given(
        parts in proptest::collection::vec((any::<bool>(), 1usize..9000, 0u64..80_000), 1..7),
        cuts in proptest::collection::vec((0.0..1.0, 0.0..1.0), 8),
        acknowledged in 0.0..1.0,
    ) {
        let mut scene = Scene::new(true);
        let file = file(100_000);
        let start = 1_000_003_u64;
        let mut stream = Vec::new();
        for (from_file, len, offset) in parts {
            let at = start + stream.len() as u64;
            if from_file {
                scene.link.add_file(OF, &file, offset, at, at + len as u64).unwrap();
                stream.extend(in_file(offset, len));
            } else {
                let bytes = pattern(at, len);
                scene.write(at, &bytes);
                stream.extend(bytes);
            }
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
        let cut = |share: f64, of: usize| (share * of as f64) as usize;
        let low = cut(acknowledged, stream.len());
        scene.link.release_files(1, start + low as u64);
        for (from, to) in cuts {
            let from = low + cut(from, stream.len() - low);
            let len = 1 + cut(to, stream.len() - from - 1);
            let (bytes, _) = scene.transmit(start + from as u64, len).unwrap();
            prop_assert!(bytes == stream[from..from + len]);
        }
    }
}
