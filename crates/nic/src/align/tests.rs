//! Frames whose payload lies anywhere, against what a device that wants aligned addresses may be given.

use proptest::prelude::*;

use super::*;

fn bytes_of(frame: &TxFrame<'_>) -> Vec<u8> {
    let mut all = Vec::new();
    for span in &frame.payload {
        span.append_to(&mut all);
    }
    all
}

/// A pattern of bytes of which any part can be told from any other.
fn memory() -> Vec<u8> {
    (0..40_000_u32).flat_map(u32::to_be_bytes).collect()
}

/// Where in `memory` its first page begins.
fn page(memory: &[u8]) -> usize {
    memory.as_ptr().addr().wrapping_neg() & 4095
}

fn is_aligned(frame: &TxFrame<'_>, align: u16) -> bool {
    let mut spans = frame.payload.iter().filter(|span| !span.is_empty());
    spans.all(|span| span.is_at_multiple_of(align))
}

proptest! {
    /// A part of a window at any offset of a page, which may wrap: the second span is the window's own start.
    #[test]
    fn of_a_window_only_the_head_before_an_aligned_address_is_copied(
        align in prop_oneof![Just(4_u16), Just(64)],
        offset in 0_usize..4096,
        first in 0_usize..40_000,
        second in prop_oneof![Just(0_usize), 0_usize..20_000],
    ) {
        let memory = memory();
        let base = page(&memory);
        let start = base + 4096 + offset;
        let payload = [&memory[start..start + first], &memory[base..base + second]];
        let frame = TxFrame {
            payload: TxFrame::spans(payload.map(SharedSlice::from)),
            segment_size: Some(1448),
            ..TxFrame::plain(b"headers")
        };
        let unit = usize::from(align);
        let head = (offset.wrapping_neg() & (unit - 1)).min(first);
        let mut aligner = Aligner::new(align);
        // Again, as after a device that was busy: what was copied before does not disturb.
        for round in 1..=2 {
            let aligned = aligner.align(&frame);
            prop_assert!(is_aligned(&aligned, align));
            prop_assert_eq!(bytes_of(&aligned), payload.concat());
            prop_assert_eq!((aligned.headers, aligned.segment_size), (frame.headers, frame.segment_size));
            // What is not copied is where it was.
            let is_there = aligned.payload.iter().any(|span| {
                span.len() == first - head && span.as_ptr() == memory[start + head..].as_ptr()
            });
            prop_assert!(is_there || first == head);
            prop_assert_eq!(aligner.copied_bytes(), round * head as u64);
        }
    }

    /// Spans that come from anywhere arrive as they are too, at the price of a copy of the later ones.
    #[test]
    fn any_spans_come_out_aligned_and_whole(
        align in 1_u16..200,
        starts in prop::array::uniform3(0_usize..9000),
        lens in prop::array::uniform3(prop_oneof![Just(0_usize), 1_usize..80, 0_usize..20_000]),
    ) {
        let memory = memory();
        let part = |index: usize| &memory[starts[index]..starts[index] + lens[index]];
        let payload = [part(0), part(1), part(2)];
        let frame = TxFrame {
            payload: payload.map(SharedSlice::from),
            ..TxFrame::plain(&[])
        };
        let mut aligner = Aligner::new(align);
        let aligned = aligner.align(&frame);
        prop_assert_eq!(bytes_of(&aligned), payload.concat());
        prop_assert!(is_aligned(&aligned, align.next_power_of_two()));
        prop_assert!(aligner.copied_bytes() <= frame.payload_len() as u64);
    }
}

#[test]
fn where_nothing_is_asked_for_nothing_is_copied() {
    let memory = memory();
    let frame = TxFrame {
        payload: TxFrame::spans([memory[1..999].into(), memory[3..77].into()]),
        ..TxFrame::plain(&[])
    };
    for align in [0, 1] {
        let mut aligner = Aligner::new(align);
        assert_eq!(
            aligner.align(&frame).payload[0].as_ptr(),
            memory[1..].as_ptr()
        );
        assert_eq!(aligner.copied_bytes(), 0);
    }
}

#[test]
fn what_only_the_kernel_may_read_is_left_alone() {
    let memory = memory();
    let base = page(&memory);
    let span = SharedSlice::from(&memory[base + 1..base + 100]).for_kernel();
    let frame = TxFrame {
        payload: TxFrame::spans([span]),
        ..TxFrame::plain(&[])
    };
    let mut aligner = Aligner::new(64);
    assert_eq!(aligner.align(&frame).payload[0].as_ptr(), span.as_ptr());
    assert_eq!(aligner.copied_bytes(), 0);
}
