//! The driver around the device: bursts to and from both sides, and what a caller sleeps on.

use std::io;

use nic::{Caps, Counters, Driver, LocalPeerChange, LocalPeers, RxFrame, TxFrame};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::{AsFd as _, AsRawFd as _, BorrowedFd};

use crate::{
    BURSTS_PER_LOOK, FULL_PATIENCE, FULL_RETRY_US, LocalPeerDriver, NOTES_MAX, Neighbour,
    TAG_DEVICE, destination,
};

impl<D: Driver> LocalPeerDriver<D> {
    fn watch_device(&mut self) -> io::Result<()> {
        let Some(device) = self.device.wait_fd() else {
            return Ok(());
        };
        let tag = EventData::new_u64(TAG_DEVICE);
        epoll::add(&self.epoll, device, tag, EventFlags::IN)?;
        self.watched = Some(device.as_raw_fd());
        Ok(())
    }

    /// The device may go on with another descriptor (`ring_later` of `nic::af_packet`). The one before receives nothing, and is watched
    /// until it is closed.
    fn follow_device(&mut self) -> io::Result<()> {
        let device = self.device.wait_fd().map(|fd| fd.as_raw_fd());
        if self.watched.is_some() && self.watched != device {
            self.watch_device()?;
        }
        Ok(())
    }
}

impl<D: Driver> Driver for LocalPeerDriver<D> {
    nic::forward_driver!(this => this.device;
        flush_tx, listen_to, attend, mode, complaints);

    fn caps(&self) -> &Caps {
        self.device.caps()
    }

    fn rx_burst(&mut self, budget: usize, sink: &mut dyn FnMut(RxFrame<'_>)) -> io::Result<usize> {
        self.bursts = self.bursts.wrapping_add(1);
        if self.neighbours.is_empty() {
            let received = self.device.rx_burst(budget, sink)?;
            self.follow_device()?;
            // What the device had explains why the caller woke; it will sleep again.
            let woken = std::mem::take(&mut self.slept) && received == 0;
            if woken || self.bursts.is_multiple_of(BURSTS_PER_LOOK) {
                self.look()?;
            }
            return Ok(received);
        }
        if std::mem::take(&mut self.slept) || self.bursts.is_multiple_of(BURSTS_PER_LOOK) {
            self.look()?;
        }
        // Neither can starve the other.
        let received = self.device.rx_burst(budget.div_ceil(2), sink)?;
        self.follow_device()?;
        if self.heard.len() >= NOTES_MAX {
            return Ok(received);
        }
        Ok(received + self.receive(budget - received, sink))
    }

    fn may_have_frames(&self) -> bool {
        !self.neighbours.is_empty() || self.device.may_have_frames()
    }

    fn tx_burst(&mut self, frames: &[TxFrame<'_>]) -> io::Result<usize> {
        if self.neighbours.is_empty()
            && let [frame] = frames
            && destination::asks_nothing(frame.headers)
        {
            return self.device.tx_burst(frames);
        }
        for (taken, frame) in frames.iter().enumerate() {
            if !self.send(frame)? {
                return Ok(taken);
            }
        }
        Ok(frames.len())
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.epoll.as_fd())
    }

    fn stop_watch(&mut self) -> io::Result<()> {
        if self.watched.take().is_some()
            && let Some(device) = self.device.wait_fd()
        {
            epoll::delete(&self.epoll, device)?;
        }
        self.device.stop_watch()
    }

    fn prepare_wait(&mut self) -> io::Result<bool> {
        self.slept = true;
        if self.watched.is_none() {
            self.watch_device()?;
        }
        if !self.news.is_empty() || !self.heard.is_empty() || !self.device.prepare_wait()? {
            return Ok(false);
        }
        for one in &mut self.neighbours {
            if one.is_gone {
                return Ok(false);
            }
            match one.wire.prepare_wait() {
                Ok(true) => {}
                Ok(false) => return Ok(false),
                Err(_) => {
                    one.is_gone = true;
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    fn wait_deadline_us(&self) -> Option<u64> {
        let is_full = |one: &Neighbour| {
            one.full_since
                .is_some_and(|since| since.elapsed() < FULL_PATIENCE)
        };
        let full = self.neighbours.iter().any(is_full).then_some(FULL_RETRY_US);
        [full, self.device.wait_deadline_us()]
            .into_iter()
            .flatten()
            .min()
    }

    fn poll_local_peer(&mut self) -> Option<LocalPeerChange> {
        self.news
            .pop_front()
            .or_else(|| self.device.poll_local_peer())
    }

    fn has_peer_news(&self) -> bool {
        !self.news.is_empty() || !self.heard.is_empty() || self.device.has_peer_news()
    }

    fn local_peers(&mut self) -> Option<&mut dyn LocalPeers> {
        Some(self)
    }

    fn counters(&self) -> Counters {
        let mut total = self.device.counters();
        total += self.past;
        for one in &self.neighbours {
            total += one.wire.counters();
        }
        total
    }
}
