//! The end of connections whose engine was killed with the program around it: their peers are told, by RST.
//!
//! The tables of an engine are plain data in a memory file, so whoever has that file knows each connection's ends and numbers.
//! A stack is built over them that does nothing but give them up, and hears nothing but neighbours: the next engine may have begun
//! at the address, and its connections are not this one's to refuse. See docs/decisions/0065-peers-of-a-killed-program.md.

use std::io;
use std::sync::Arc;

use nic::{Driver, RxFrame, forward_driver};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd as _, OwnedFd};
use stack::tables::ConnectionId;
use tcp::{Duration, Instant};
use wire::ethernet::{self, EtherType};
use wire::icmpv6::ndp;
use wire::ipv6::{self, Protocol};

use crate::core::EngineCore;
use crate::process::clock::{Origin, STARTED, time_since};
use crate::programs::users::Users;
use crate::start_error::StartError;
use engine_config::Config;
use shards::Shard;
use shards::section::Section;

/// Connections that are reset at a time.
const BATCH: usize = 128;
/// How long the peers of a batch may take to be found by ARP or neighbour discovery; another engine may begin at the address
/// meanwhile.
const LAST_WORDS: Duration = Duration::from_ms(300);

/// Resets the connections of one core in `state`, the file of an engine with the same limits that nobody runs any more. How many
/// there were.
///
/// # Errors
/// [`StartError`]: the file is none of such an engine, or the device cannot be used.
pub fn reset_left(
    mut config: Config,
    state: OwnedFd,
    section: Section,
    driver: Box<dyn Driver>,
) -> Result<usize, StartError> {
    config.limits = config.limits.of_core(section.cores);
    config.left = Some(Arc::new(state));
    let mut secret = [0; 16];
    rustix::rand::getrandom(&mut secret, rustix::rand::GetRandomFlags::empty())
        .map_err(|errno| StartError::System("get random numbers", errno))?;
    let origin = Origin::now();
    let now = || time_since(origin);
    let mut core = EngineCore::with_shard(
        config,
        Shard::of_left(section),
        Users::direct(),
        Box::new(NeighboursOnly(driver)),
        secret,
        STARTED,
    )?;
    let all = core.layer.stack.connections();
    let all: Vec<_> = all.map(|row| row.connection).collect();
    for batch in all.chunks(BATCH) {
        let until = now() + LAST_WORDS;
        core.abort(now(), batch);
        loop {
            let worked = core.poll(now(), None) > 0;
            if let Some(error) = core.failure() {
                return Err(StartError::Device(error));
            }
            if !core.has_still(batch) || now() >= until {
                break;
            }
            if !worked {
                wait(&core);
            }
        }
    }
    Ok(all.len())
}

/// A driver that receives what neighbours say of themselves, and drops the rest.
struct NeighboursOnly(Box<dyn Driver>);

impl Driver for NeighboursOnly {
    forward_driver!(this => this.0;
        caps, may_have_frames, tx_burst, flush_tx, wait_fd, prepare_wait, stop_watch, wait_deadline_us, listen_to, poll_local_peer,
        has_peer_news, counters, mode, complaints);

    fn rx_burst(&mut self, budget: usize, sink: &mut dyn FnMut(RxFrame<'_>)) -> io::Result<usize> {
        self.0.rx_burst(budget, &mut |frame| {
            if is_of_neighbour(frame.bytes) {
                sink(frame);
            }
        })
    }
}

/// Whether a frame is of ARP, or of neighbour discovery (RFC 4861 §4), whose messages carry no extension headers.
fn is_of_neighbour(frame: &[u8]) -> bool {
    let Ok((link, packet)) = ethernet::Header::parse(frame) else {
        return false;
    };
    if link.ethertype != EtherType::IPV6 {
        return link.ethertype == EtherType::ARP;
    }
    ipv6::Header::parse(packet).is_ok_and(|(header, message)| {
        let kind = message.first();
        header.next_header == Protocol::ICMPV6 && kind.is_some_and(|kind| ndp::is_kind(*kind))
    })
}

/// Until the device has something, a millisecond at most.
fn wait(core: &EngineCore) {
    let moment = Timespec {
        tv_sec: 0,
        tv_nsec: 1_000_000,
    };
    let device = core.layer.link.driver.wait_fd();
    let mut fds: Vec<PollFd<'_>> = device
        .iter()
        .map(|fd| PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN))
        .collect();
    // A signal is as good as a moment.
    let _ = rustix::event::poll(&mut fds, Some(&moment));
}

impl EngineCore {
    /// Whether the last segment of one of these has not left yet.
    fn has_still(&self, connections: &[ConnectionId]) -> bool {
        let mut all = self.layer.stack.connections();
        self.layer.has_backlog() || all.any(|row| connections.contains(&row.connection))
    }

    /// Gives these connections up, whoever holds them.
    fn abort(&mut self, now: Instant, connections: &[ConnectionId]) {
        let layer = &mut self.layer;
        layer.sockets.set_now(now);
        for connection in connections {
            // One that is over already needs no end.
            let _ = layer.stack.abort(now, *connection, &mut layer.sockets);
        }
    }
}

#[cfg(test)]
mod tests {
    use nic::TxFrame;
    use nic::wire::{Config as WireConfig, WireEnd};

    use super::*;

    /// A frame of that type, of zeros but for these bytes.
    fn frame(ether_type: [u8; 2], bytes: &[(usize, u8)]) -> Vec<u8> {
        let mut frame = vec![0; 80];
        frame[12..14].copy_from_slice(&ether_type);
        for (at, byte) in bytes {
            frame[*at] = *byte;
        }
        frame
    }

    /// An IPv6 packet of eight bytes behind its header, of which this is the first.
    fn ipv6(next_header: u8, first: u8) -> Vec<u8> {
        let bytes = [(14, 0x60), (19, 8), (20, next_header), (54, first)];
        frame([0x86, 0xdd], &bytes)
    }

    #[test]
    fn the_stack_of_what_was_left_hears_neighbours_and_no_connection_of_the_next_engine() {
        let rows = [
            (frame([0x08, 0x06], &[]), true),
            (ipv6(58, 136), true),
            (ipv6(58, 128), false),
            (ipv6(6, 136), false),
            (frame([0x86, 0xdd], &[(20, 58), (54, 136)]), false),
            (frame([0x08, 0x00], &[(14, 0x45), (23, 6), (47, 2)]), false),
            (vec![0x08; 13], false),
        ];
        let (mut peer, own) = WireEnd::pair(&WireConfig::default()).unwrap();
        let mut driver = NeighboursOnly(Box::new(own));
        for (frame, is_heard) in rows {
            assert_eq!(peer.tx_burst(&[TxFrame::plain(&frame)]).unwrap(), 1);
            let mut heard = 0;
            driver.rx_burst(8, &mut |_| heard += 1).unwrap();
            assert_eq!(heard, usize::from(is_heard), "{frame:x?}");
        }
    }
}
