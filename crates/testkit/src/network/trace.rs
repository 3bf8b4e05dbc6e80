//! One frame as one line, for whoever replays a seed.

use std::fmt::Write;

use wire::{ethernet, icmpv4, ipv4, tcp};

/// A frame that arrives, in words.
pub fn line(now_us: u64, from: usize, frame: &[u8]) -> String {
    let arrow = if from == 0 { "-->" } else { "<--" };
    let what = packet(frame).unwrap_or_else(|| format!("{} bytes that are no packet", frame.len()));
    format!(
        "{:>6}.{:06} {arrow} {what}",
        now_us / 1_000_000,
        now_us % 1_000_000
    )
}

fn packet(frame: &[u8]) -> Option<String> {
    let (_, packet) = ethernet::Header::parse(frame).ok()?;
    let (header, payload) = ipv4::Header::parse(packet).ok()?;
    match header.protocol {
        ipv4::Protocol::TCP => {
            let (segment, data) = tcp::Header::parse(payload).ok()?;
            let mut text = format!(
                "{:?} {}:{} ack {} win {}",
                segment.flags,
                segment.seq,
                segment.seq.wrapping_add(u32::try_from(data.len()).ok()?),
                segment.ack,
                segment.window
            );
            for block in segment.options.sack.iter() {
                write!(text, " sack {block:?}").ok()?;
            }
            Some(text)
        }
        ipv4::Protocol::ICMP => {
            let message = icmpv4::Message::parse(payload).ok()?;
            Some(format!("{message:?}"))
        }
        other => Some(format!("{other:?}")),
    }
}
