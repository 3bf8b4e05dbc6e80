//! A hostile program: arbitrary bytes in rings, headers and control messages, read by the engine's side.
//!
//! The body of a fuzz target and of a property test. It must never panic, pop more than a ring holds,
//! or accept a span outside the windows.

use crate::control::Request;
use crate::{Completion, Layout, Region, RingEntries, SocketId};

const ENTRIES: u32 = 8;

fn layout() -> Layout {
    Layout {
        ring_entries: RingEntries {
            command: ENTRIES,
            send: ENTRIES,
            receive: ENTRIES,
            completion: 4,
        },
        socket_headers: 4,
        window_pairs: 2,
        send_window_bytes: 4096,
        receive_window_bytes: 4096,
    }
}

/// Reads `data` as a list of (offset, length, bytes) to write into the region; the engine's side reads
/// everything after each.
pub fn hostile_program(data: &[u8]) {
    let region = Region::create(layout(), 1, 1).expect("invariant: the layout is good");
    let mut commands = region.command_consumer();
    let mut sends = region.send_consumer();
    let mut receives = region.receive_consumer();
    let completions = region.completion_producer();
    let mut rest = data;
    while let Some((head, tail)) = rest.split_first_chunk::<4>() {
        let offset = u64::from(u16::from_le_bytes([head[0], head[1]]));
        let len = usize::from(head[2]).min(tail.len());
        region.scribble(offset + 4096 * u64::from(head[3] % 8), &tail[..len]);
        rest = &tail[len..];

        let mut popped = 0;
        while let Ok(Some(command)) = commands.pop() {
            let again = crate::descriptor::Descriptor::encode(&command);
            assert_eq!(crate::descriptor::Descriptor::decode(&again), Ok(command));
            popped += 1;
        }
        while let Ok(Some(_)) = sends.pop() {
            popped += 1;
        }
        while let Ok(Some(_)) = receives.pop() {
            popped += 1;
        }
        assert!(popped <= 3 * ENTRIES, "a ring gave more than it holds");
        let _ = commands.has_next();
        let socket = SocketId {
            index: 1,
            generation: 1,
        };
        let _ = completions.push(&Completion::Event { socket });
        let _ = completions.pending();
        read_headers(&region);
        let _ = region.engine_sleep_word().must_ring();
        let _ = region.program_sleep_word().must_ring();
        let _ = Request::decode(rest);
    }
    for _ in 0..=ENTRIES {
        let _ = (
            commands.pop_final(),
            sends.pop_final(),
            receives.pop_final(),
        );
    }
}

fn read_headers(region: &Region) {
    for index in 0..5 {
        let Some(header) = region.socket_header(index) else {
            continue;
        };
        let _ = header.engine_take_tx_wanted();
        header.engine_release_dead(1);
        let (_, _) = header.addresses();
        let (send, receive) = header.windows();
        for span in [send, receive] {
            if let Some(window) = region.window(span) {
                let mut byte = [0];
                window.copy_out(header.consumed(), &mut byte);
                assert!(span.offset >= region.layout().windows_start());
                assert!(span.offset + u64::from(span.size) <= region.layout().region_bytes());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_hostile_program_never_makes_the_engine_side_panic(
            data in proptest::collection::vec(any::<u8>(), 0..600)
        ) {
            super::hostile_program(&data);
        }

        #[test]
        fn plausible_stamps_with_arbitrary_payload_never_panic(
            slots in proptest::collection::vec((0u8..4, 0u8..10, any::<[u8; 7]>(), 0u8..40), 1..20)
        ) {
            // Offsets follow the layout: rings start on the third page, one page each.
            let mut data = Vec::new();
            for (ring, stamp, bytes, kind) in slots {
                let at = 64 + u16::from(stamp % 8) * 64;
                data.extend_from_slice(&at.to_le_bytes());
                data.extend_from_slice(&[64, 2 + ring]);
                let mut slot = [0u8; 64];
                slot[..7].copy_from_slice(&bytes);
                slot[0] = kind;
                slot[12] = 1;
                slot[56] = stamp + 1;
                data.extend_from_slice(&slot);
            }
            super::hostile_program(&data);
        }
    }
}
