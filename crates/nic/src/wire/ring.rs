//! A ring of frames in shared memory: one writer, one reader, records of any length.
//!
//! A record is one word (length, segment size, flags) and the frame, starts on a cache line, and
//! never wraps: what is left at the end of the ring is skipped by a record that says so. Positions
//! count bytes for ever and are taken modulo the size. Each side keeps its own position privately and
//! believes the other's only after checking it; frames are copied out before anyone looks at
//! them, because the other side can still write them.

use std::sync::atomic::Ordering;

use super::sys::Region;
use crate::driver::TxFrame;
use crate::shared_slice::SharedSlice;

const LINE: usize = 64;
const WORD: usize = 8;

const PARTIAL: u64 = 1 << 48;
const SKIP: u64 = 1 << 49;

/// The other side wrote what it never should.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the other end of the wire wrote an impossible {0}")]
pub(super) struct Corrupt(&'static str);

/// Where a ring lies in the region.
#[derive(Debug, Clone, Copy)]
pub(super) struct RingLayout {
    /// The word of the writer's position.
    pub tail: usize,
    /// The word of the reader's position.
    pub head: usize,
    /// The records.
    pub data: usize,
    /// Bytes of records, a multiple of a cache line.
    pub size: usize,
    /// The longest frame; the ring holds more than two.
    pub frame_bytes_max: usize,
}

/// What became of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pushed {
    /// It is in the ring.
    Whole,
    /// There is no free space now.
    NoRoom,
    /// It is too long, or what it lies in is gone.
    Never,
}

fn record_len(frame_len: usize) -> usize {
    (WORD + frame_len).next_multiple_of(LINE)
}

/// Distance from `from` to `to`, if it can be one.
fn distance(from: u64, to: u64, size: usize) -> Option<usize> {
    let distance = usize::try_from(to.wrapping_sub(from)).ok()?;
    (distance <= size && distance.is_multiple_of(LINE)).then_some(distance)
}

fn index(position: u64, size: usize) -> usize {
    usize::try_from(position % size as u64).expect("invariant: below the size, which is a usize")
}

/// The writing end.
#[derive(Debug)]
pub(super) struct Producer {
    layout: RingLayout,
    tail: u64,
    head: u64,
}

impl Producer {
    pub(super) fn new(layout: RingLayout) -> Self {
        Self {
            layout,
            tail: 0,
            head: 0,
        }
    }

    /// Whether `frame_len` bytes fit now, and what must be skipped before them.
    fn room(&mut self, region: &Region, frame_len: usize) -> Result<Option<usize>, Corrupt> {
        let size = self.layout.size;
        let to_end = size - index(self.tail, size);
        let record = record_len(frame_len);
        let skip = if record > to_end { to_end } else { 0 };
        let used = distance(self.head, self.tail, size).ok_or(Corrupt("position"))?;
        if size - used < skip + record {
            let head = region.word(self.layout.head).load(Ordering::Acquire);
            let used = distance(head, self.tail, size).ok_or(Corrupt("position"))?;
            self.head = head;
            if size - used < skip + record {
                return Ok(None);
            }
        }
        Ok(Some(skip))
    }

    /// Whether a frame of any length fits.
    pub(super) fn has_capacity(&mut self, region: &Region) -> Result<bool, Corrupt> {
        self.room(region, self.layout.frame_bytes_max)
            .map(|room| room.is_some())
    }

    /// Writes a frame.
    pub(super) fn push(&mut self, region: &Region, frame: &TxFrame<'_>) -> Result<Pushed, Corrupt> {
        let len = frame.frame_len();
        if len > self.layout.frame_bytes_max {
            return Ok(Pushed::Never);
        }
        let Some(skip) = self.room(region, len)? else {
            return Ok(Pushed::NoRoom);
        };
        let RingLayout { data, size, .. } = self.layout;
        if skip > 0 {
            region
                .word(data + index(self.tail, size))
                .store(SKIP, Ordering::Relaxed);
            self.tail += skip as u64;
        }
        let at = data + index(self.tail, size);
        let segment_size = frame.segment_size.filter(|_| frame.is_large()).unwrap_or(0);
        let partial = if frame.checksum.is_some() { PARTIAL } else { 0 };
        let word = len as u64 | u64::from(segment_size) << 32 | partial;
        region.word(at).store(word, Ordering::Relaxed);
        let mut next = at + WORD;
        for span in [
            SharedSlice::from(frame.headers),
            frame.payload[0],
            frame.payload[1],
            frame.payload[2],
        ] {
            if !region.copy_in(next, span) {
                return Ok(Pushed::Never);
            }
            next += span.len();
        }
        self.tail += record_len(len) as u64;
        region
            .word(self.layout.tail)
            .store(self.tail, Ordering::Release);
        Ok(Pushed::Whole)
    }
}

/// What a record says of its frame.
#[derive(Debug, Clone, Copy)]
pub(super) struct Record {
    pub len: usize,
    pub segment_size: Option<u16>,
    pub partial: bool,
}

/// The reading end.
#[derive(Debug)]
pub(super) struct Consumer {
    layout: RingLayout,
    head: u64,
    tail: u64,
}

impl Consumer {
    pub(super) fn new(layout: RingLayout) -> Self {
        Self {
            layout,
            head: 0,
            tail: 0,
        }
    }

    fn available(&mut self, region: &Region) -> Result<usize, Corrupt> {
        if self.tail == self.head {
            self.tail = region.word(self.layout.tail).load(Ordering::Acquire);
        }
        distance(self.head, self.tail, self.layout.size).ok_or(Corrupt("position"))
    }

    pub(super) fn is_empty(&mut self, region: &Region) -> Result<bool, Corrupt> {
        self.available(region).map(|bytes| bytes == 0)
    }

    /// Copies the next frame to the start of `target`, which holds the longest.
    pub(super) fn pop(
        &mut self,
        region: &Region,
        target: &mut [u8],
    ) -> Result<Option<Record>, Corrupt> {
        let RingLayout {
            data,
            size,
            head,
            frame_bytes_max,
            ..
        } = self.layout;
        loop {
            let available = self.available(region)?;
            if available == 0 {
                return Ok(None);
            }
            let start = index(self.head, size);
            let word = region.word(data + start).load(Ordering::Relaxed);
            if word & SKIP != 0 {
                // The end is skipped only in front of a record, so both must be there.
                if size - start >= available {
                    return Err(Corrupt("record"));
                }
                self.head += (size - start) as u64;
                continue;
            }
            let record = Record::parse(word, frame_bytes_max).ok_or(Corrupt("record"))?;
            let whole = record_len(record.len);
            if whole > available || whole > size - start {
                return Err(Corrupt("record"));
            }
            region.copy_out(data + start + WORD, &mut target[..record.len]);
            self.head += whole as u64;
            region.word(head).store(self.head, Ordering::Release);
            return Ok(Some(record));
        }
    }
}

impl Record {
    fn parse(word: u64, frame_bytes_max: usize) -> Option<Self> {
        let len = usize::try_from(word & 0xffff_ffff)
            .ok()
            .filter(|len| *len <= frame_bytes_max)?;
        let segment_size = u16::try_from(word >> 32 & 0xffff)
            .ok()
            .filter(|size| *size > 0);
        Some(Self {
            len,
            segment_size,
            partial: word & PARTIAL != 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;
    use crate::driver::MAX_FRAME_BYTES;

    const PLACE: RingLayout = RingLayout {
        tail: 0,
        head: 64,
        data: 128,
        size: 192 * 1024,
        frame_bytes_max: MAX_FRAME_BYTES,
    };

    fn region() -> Region {
        Region::create(PLACE.data + PLACE.size).unwrap().1
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn the_ring_is_a_bounded_queue(
            steps in proptest::collection::vec((any::<bool>(), 0..=MAX_FRAME_BYTES, any::<u8>()), 1..200),
        ) {
            let region = region();
            let (mut producer, mut consumer) = (Producer::new(PLACE), Consumer::new(PLACE));
            let mut oracle: VecDeque<(usize, u8)> = VecDeque::new();
            let mut buffer = vec![0; MAX_FRAME_BYTES];
            for (is_push, len, fill) in steps {
                if is_push {
                    let bytes = vec![fill; len];
                    if producer.push(&region, &TxFrame::plain(&bytes)).unwrap() == Pushed::Whole {
                        oracle.push_back((len, fill));
                    } else {
                        prop_assert!(!oracle.is_empty(), "an empty ring takes any frame");
                    }
                } else {
                    let found = consumer.pop(&region, &mut buffer).unwrap();
                    let expected = oracle.pop_front();
                    prop_assert_eq!(found.map(|record| record.len), expected.map(|(len, _)| len));
                    if let Some((len, fill)) = expected {
                        prop_assert!(buffer[..len].iter().all(|byte| *byte == fill));
                    }
                }
            }
        }

        #[test]
        fn a_hostile_writer_causes_errors_and_no_panic(
            tail in any::<u64>(), words in proptest::collection::vec(any::<u64>(), 1..40), small in any::<bool>(),
        ) {
            let region = region();
            let mut consumer = Consumer::new(PLACE);
            for (index, word) in words.iter().enumerate() {
                let word = if small { word & 0x3_ffff_0000_03ff } else { *word };
                region.word(PLACE.data + index * LINE).store(word, Ordering::Relaxed);
            }
            let tail = if small { tail % 4096 / 64 * 64 } else { tail };
            region.word(PLACE.tail).store(tail, Ordering::Release);
            let mut buffer = vec![0; MAX_FRAME_BYTES];
            for _ in 0..100 {
                if !matches!(consumer.pop(&region, &mut buffer), Ok(Some(_))) {
                    break;
                }
            }
        }

        #[test]
        fn a_hostile_reader_cannot_make_the_writer_overrun(head in any::<u64>()) {
            let region = region();
            let mut producer = Producer::new(PLACE);
            let frame = vec![1; MAX_FRAME_BYTES];
            while producer.push(&region, &TxFrame::plain(&frame)).unwrap() == Pushed::Whole {}
            region.word(PLACE.head).store(head, Ordering::Release);
            let _ = producer.push(&region, &TxFrame::plain(&frame));
        }
    }

    #[test]
    fn a_record_across_the_end_of_the_ring_is_refused() {
        let region = region();
        let (mut producer, mut consumer) = (Producer::new(PLACE), Consumer::new(PLACE));
        let mut buffer = vec![0; MAX_FRAME_BYTES];
        for _ in 0..PLACE.size / LINE - 1 {
            let pushed = producer.push(&region, &TxFrame::plain(b"frame"));
            assert_eq!(pushed, Ok(Pushed::Whole));
            assert!(consumer.pop(&region, &mut buffer).unwrap().is_some());
        }
        let last = PLACE.size - LINE;
        region
            .word(PLACE.data + last)
            .store(1000, Ordering::Relaxed);
        region
            .word(PLACE.tail)
            .store((last + 4096) as u64, Ordering::Release);
        assert!(consumer.pop(&region, &mut buffer).is_err());
        // Nor may the skipping of the end skip more than was written.
        region
            .word(PLACE.data + last)
            .store(SKIP, Ordering::Relaxed);
        region
            .word(PLACE.tail)
            .store(PLACE.size as u64, Ordering::Release);
        let mut consumer = Consumer {
            head: last as u64,
            tail: last as u64,
            layout: PLACE,
        };
        assert!(consumer.pop(&region, &mut buffer).is_err());
    }

    #[test]
    fn segment_size_and_partial_checksum_travel_with_the_frame() {
        let region = region();
        let (mut producer, mut consumer) = (Producer::new(PLACE), Consumer::new(PLACE));
        let payload = [7_u8; 3000];
        let frame = TxFrame {
            headers: &[1; 54],
            payload: TxFrame::spans([payload[..1000].into(), payload[1000..].into()]),
            checksum: Some(crate::PartialChecksum {
                start: 34,
                offset: 16,
            }),
            segment_size: Some(1460),
        };
        assert_eq!(producer.push(&region, &frame), Ok(Pushed::Whole));
        let mut buffer = vec![0; MAX_FRAME_BYTES];
        let record = consumer.pop(&region, &mut buffer).unwrap().unwrap();
        assert_eq!(
            (record.len, record.segment_size, record.partial),
            (3054, Some(1460), true)
        );
        assert_eq!(buffer[..54], [1; 54]);
        assert_eq!(buffer[54..3054], payload);
    }
}
