//! A cable between two devices of several queues each: a strand of shared memory from every queue of one
//! side to every queue of the other, so that no two queues write one line of memory. What the receiving
//! device would do by its hash, the sending side does: the caller's function says which queue of the
//! other side gets a frame.
//!
//! Each strand is a [`WireEnd`].

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use nic::wire::{Config, OpenError, WireEnd};
use nic::{Caps, Counters, Driver, RxFrame, TxFrame, random_address};

fn failed<E: Into<io::Error>>(call: &'static str) -> impl FnOnce(E) -> OpenError {
    move |source| OpenError::System {
        call,
        source: source.into(),
    }
}

/// Says which queue of the other side gets a frame, from its headers; taken modulo their number.
pub type Steer = Arc<dyn Fn(&[u8]) -> u16 + Send + Sync>;

/// One queue of one side.
pub struct Bundle {
    /// To each queue of the other side.
    strands: Vec<WireEnd>,
    steer: Steer,
    caps: Caps,
    /// Readable when one of the strands is.
    epoll: OwnedFd,
    /// The strand that is received from first.
    turn: usize,
}

impl Bundle {
    /// All queues of both sides, at least one each. Each side's `steer` says where its frames go.
    ///
    /// # Errors
    /// See [`OpenError`].
    ///
    /// # Panics
    /// A side has no queue.
    pub fn pair(
        config: &Config,
        queues: [u16; 2],
        steer: [Steer; 2],
    ) -> Result<[Vec<Self>; 2], OpenError> {
        let addresses = match config.hardware_addresses {
            Some(addresses) => addresses,
            None => [
                random_address().map_err(failed("getrandom"))?,
                random_address().map_err(failed("getrandom"))?,
            ],
        };
        let config = Config {
            hardware_addresses: Some(addresses),
            ..*config
        };
        let [lefts, rights] = queues.map(usize::from);
        let mut ends: [Vec<Vec<WireEnd>>; 2] = [lefts, rights].map(|count| {
            let mut lists = Vec::new();
            lists.resize_with(count, Vec::new);
            lists
        });
        for left in 0..lefts {
            for right in 0..rights {
                let (near, far) = WireEnd::pair(&config)?;
                ends[0][left].push(near);
                ends[1][right].push(far);
            }
        }
        let [left, right] = ends;
        let [steer_left, steer_right] = steer;
        Ok([
            Self::side(left, &steer_left)?,
            Self::side(right, &steer_right)?,
        ])
    }

    fn side(queues: Vec<Vec<WireEnd>>, steer: &Steer) -> Result<Vec<Self>, OpenError> {
        let count = u16::try_from(queues.len()).unwrap_or(u16::MAX);
        let queue = |strands: Vec<WireEnd>| {
            let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(failed("epoll"))?;
            for (strand, at) in strands.iter().zip(0..) {
                let bell = strand
                    .wait_fd()
                    .expect("invariant: a wire can be waited for");
                epoll::add(&epoll, bell, EventData::new_u64(at), EventFlags::IN)
                    .map_err(failed("watching a strand"))?;
            }
            let first = strands
                .first()
                .expect("invariant: the other side has a queue");
            Ok(Self {
                caps: Caps {
                    queues: count,
                    ..first.caps().clone()
                },
                strands,
                steer: Arc::clone(steer),
                epoll,
                turn: 0,
            })
        };
        queues.into_iter().map(queue).collect()
    }
}

impl Driver for Bundle {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn rx_burst(&mut self, budget: usize, sink: &mut dyn FnMut(RxFrame<'_>)) -> io::Result<usize> {
        let count = self.strands.len();
        let mut received = 0;
        // Each is asked even when nothing more may be taken: it may have announced a sleep.
        for step in 0..count {
            let strand = &mut self.strands[(self.turn + step) % count];
            received += strand.rx_burst(budget - received, sink)?;
        }
        self.turn = (self.turn + 1) % count;
        Ok(received)
    }

    fn tx_burst(&mut self, frames: &[TxFrame<'_>]) -> io::Result<usize> {
        for (taken, frame) in frames.iter().enumerate() {
            let strand = usize::from((self.steer)(frame.headers)) % self.strands.len();
            if self.strands[strand].tx_burst(std::slice::from_ref(frame))? == 0 {
                return Ok(taken);
            }
        }
        Ok(frames.len())
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.epoll.as_fd())
    }

    fn prepare_wait(&mut self) -> io::Result<bool> {
        for strand in &mut self.strands {
            if !strand.prepare_wait()? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn counters(&self) -> Counters {
        let mut sum = Counters::default();
        for one in self.strands.iter().map(Driver::counters) {
            sum += one;
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by_last_byte() -> Steer {
        Arc::new(|headers| u16::from(headers[headers.len() - 1]))
    }

    fn received(queue: &mut Bundle) -> Vec<u8> {
        let mut last = Vec::new();
        queue
            .rx_burst(64, &mut |frame| last.extend(frame.bytes.last()))
            .unwrap();
        last
    }

    #[test]
    fn every_queue_reaches_every_queue_of_the_other_side() {
        let config = Config::default();
        let both = Bundle::pair(&config, [2, 3], [by_last_byte(), by_last_byte()]).unwrap();
        let [mut left, mut right] = both;
        assert_eq!(left[1].caps().queues, 2);
        assert_eq!(
            left[0].caps().hardware_address,
            left[1].caps().hardware_address
        );
        for queue in &mut left {
            for last in 0..4 {
                let frame = [[0; 59].as_slice(), &[last]].concat();
                assert_eq!(queue.tx_burst(&[TxFrame::plain(&frame)]).unwrap(), 1);
            }
        }
        assert_eq!(received(&mut right[0]), [0, 3, 0, 3]);
        assert_eq!(received(&mut right[1]), [1, 1]);
        assert_eq!(received(&mut right[2]), [2, 2]);
    }

    #[test]
    fn a_queue_that_sleeps_is_woken_by_any_strand() {
        let config = Config::default();
        let both = Bundle::pair(&config, [2, 1], [by_last_byte(), by_last_byte()]).unwrap();
        let [mut left, mut right] = both;
        for sender in &mut left {
            assert!(right[0].prepare_wait().unwrap());
            sender.tx_burst(&[TxFrame::plain(&[0; 60])]).unwrap();
            let mut watched = [rustix::event::PollFd::from_borrowed_fd(
                right[0].wait_fd().unwrap(),
                rustix::event::PollFlags::IN,
            )];
            let at_once = rustix::event::Timespec::default();
            let ready = rustix::event::poll(&mut watched, Some(&at_once)).unwrap();
            assert_eq!(ready, 1);
            assert_eq!(received(&mut right[0]), [0]);
        }
        assert!(right[0].prepare_wait().unwrap());
    }
}
