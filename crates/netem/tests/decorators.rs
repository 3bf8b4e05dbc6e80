//! A driver hears every call, whatever stands in front of it: a box, offloads that are off, a capture, a bad cable.

#![allow(clippy::unwrap_used)] // a failure here ends the test, as it should

use std::io;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::sync::mpsc::{Receiver, Sender, channel};

use netem::pcap::Recorder;
use netem::{Impaired, Impairment};
use nic::{Caps, Counters, Driver, LocalPeerChange, OffloadOverride, Presence, RxFrame, TxFrame};
use wire::ethernet;

/// Notes which of the calls that have a default reached it.
struct Noting {
    caps: Caps,
    notes: Sender<&'static str>,
}

fn noting() -> (Noting, Receiver<&'static str>) {
    let (notes, heard) = channel();
    let caps = Caps {
        tx_checksum: false,
        rx_checksum: false,
        tso_max_bytes: 0,
        gro: false,
        queues: 1,
        payload_by_address: false,
        align: 1,
        mtu: 1500,
        hardware_address: ethernet::Address([2; 6]),
    };
    (Noting { caps, notes }, heard)
}

impl Driver for Noting {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn rx_burst(&mut self, _: usize, _: &mut dyn FnMut(RxFrame<'_>)) -> io::Result<usize> {
        Ok(0)
    }

    fn may_have_frames(&self) -> bool {
        false
    }

    fn tx_burst(&mut self, _: &[TxFrame<'_>]) -> io::Result<usize> {
        Ok(0)
    }

    fn flush_tx(&mut self) -> io::Result<()> {
        self.notes.send("flush").map_err(io::Error::other)
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn prepare_wait(&mut self) -> io::Result<bool> {
        self.notes.send("wait").map_err(io::Error::other)?;
        Ok(true)
    }

    fn stop_watch(&mut self) -> io::Result<()> {
        self.notes.send("stop watch").map_err(io::Error::other)
    }

    fn wait_deadline_us(&self) -> Option<u64> {
        Some(7)
    }

    fn listen_to(&mut self, _: [u8; 6], _: bool) -> io::Result<()> {
        self.notes.send("listen").map_err(io::Error::other)
    }

    fn poll_local_peer(&mut self) -> Option<LocalPeerChange> {
        Some(LocalPeerChange::Gone(IpAddr::from([10, 0, 0, 7])))
    }

    fn has_peer_news(&self) -> bool {
        true
    }

    fn attend(&mut self) -> Presence {
        Presence::Gone
    }

    fn counters(&self) -> Counters {
        Counters {
            tx_busy: 3,
            ..Counters::default()
        }
    }

    fn mode(&self) -> Option<&'static str> {
        Some("noting")
    }

    fn complaints(&self) -> Vec<String> {
        vec!["nothing".to_owned()]
    }
}

/// Calls each method through `decorate`, which puts something in front of the driver. Whether there may be frames then.
fn hears_every_call(decorate: impl FnOnce(Box<dyn Driver>) -> Box<dyn Driver>) -> bool {
    let (inner, heard) = noting();
    let mut driver = decorate(Box::new(inner));
    driver.flush_tx().unwrap();
    assert!(driver.prepare_wait().unwrap());
    driver.stop_watch().unwrap();
    driver.listen_to([1; 6], true).unwrap();
    let heard: Vec<&str> = heard.try_iter().collect();
    assert_eq!(heard, ["flush", "wait", "stop watch", "listen"]);
    assert!(driver.has_peer_news());
    assert!(driver.poll_local_peer().is_some());
    assert_eq!(driver.attend(), Presence::Gone);
    assert_eq!(driver.wait_deadline_us(), Some(7));
    assert_eq!(driver.counters().tx_busy, 3);
    assert_eq!(driver.mode(), Some("noting"));
    assert_eq!(driver.complaints(), ["nothing"]);
    assert_eq!(driver.caps().mtu, 1500);
    driver.may_have_frames()
}

#[test]
fn through_a_box() {
    assert!(!hears_every_call(|driver| Box::new(driver)));
}

#[test]
fn with_offloads_off() {
    let overrides = OffloadOverride {
        merging: true,
        ..OffloadOverride::default()
    };
    assert!(!hears_every_call(|driver| overrides.apply_to(driver)));
}

#[test]
fn behind_a_capture() {
    assert!(!hears_every_call(|driver| {
        Box::new(Recorder::new(driver, Box::new(io::sink()), "eth0").unwrap())
    }));
}

#[test]
fn behind_a_bad_cable() {
    let plain = Impairment::default;
    // It has frames of its own, which are late.
    assert!(hears_every_call(|driver| Box::new(Impaired::new(
        driver,
        plain(),
        plain(),
        1
    ))));
}
