//! Clocks of network cards, which stamp frames: `/dev/ptpN`, see `Documentation/driver-api/ptp.rst` of the kernel. Each is a
//! clock that clock_gettime(2) reads by its descriptor.

use std::fs::{self, File};
use std::os::fd::AsFd as _;
use std::path::Path;

use rustix::time::{ClockId, DynamicClockId, Timespec, clock_gettime, clock_gettime_dynamic};

/// Reads of which the quickest counts.
const TRIES: usize = 20;
/// Cards that are looked at.
const CARDS_MAX: usize = 64;

#[derive(Debug)]
pub struct CardClock {
    /// `/dev/ptpN`.
    pub device: String,
    /// As its driver calls it.
    pub name: String,
    /// The interfaces of the card.
    pub interfaces: Vec<String>,
    clock: File,
}

/// A card's clock and two of the kernel's at one moment.
#[derive(Debug, Clone, Copy)]
pub struct Reading {
    /// The card's.
    pub card_ns: u64,
    /// CLOCK_REALTIME.
    pub real_ns: u64,
    /// CLOCK_MONOTONIC_RAW.
    pub raw_ns: u64,
    /// Between the reads around it: the card's belongs to some moment of that.
    pub within_ns: u64,
}

/// The clocks of this machine's cards, as far as they can be opened.
pub fn open_all() -> Vec<CardClock> {
    let found = fs::read_dir("/sys/class/ptp").into_iter().flatten();
    let mut names: Vec<String> = found
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .take(CARDS_MAX)
        .collect();
    names.sort_unstable();
    names.iter().filter_map(|name| open(name)).collect()
}

fn open(number: &str) -> Option<CardClock> {
    let folder = Path::new("/sys/class/ptp").join(number);
    let name = fs::read_to_string(folder.join("clock_name"));
    let interfaces = fs::read_dir(folder.join("device/net"))
        .into_iter()
        .flatten();
    let device = format!("/dev/{number}");
    Some(CardClock {
        name: name.unwrap_or_default().trim().to_owned(),
        interfaces: interfaces
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .collect(),
        clock: File::open(&device).ok()?,
        device,
    })
}

impl CardClock {
    /// What it shows; `None`: it went.
    pub fn now_ns(&self) -> Option<u64> {
        let clock = DynamicClockId::Dynamic(self.clock.as_fd());
        clock_gettime_dynamic(clock).ok().map(nanoseconds)
    }

    /// What it shows beside the kernel's clocks, by the quickest of some reads.
    pub fn read(&self) -> Option<Reading> {
        let read = |_| {
            let real_before = nanoseconds(clock_gettime(ClockId::Realtime));
            let before = nanoseconds(clock_gettime(ClockId::MonotonicRaw));
            let card_ns = self.now_ns()?;
            let after = nanoseconds(clock_gettime(ClockId::MonotonicRaw));
            let within_ns = after.saturating_sub(before);
            Some(Reading {
                card_ns,
                real_ns: real_before + within_ns / 2,
                raw_ns: before + within_ns / 2,
                within_ns,
            })
        };
        let readings = (0..TRIES).map_while(read);
        readings.min_by_key(|reading| reading.within_ns)
    }
}

/// Nanoseconds of a time after 1970.
pub fn nanoseconds(time: Timespec) -> u64 {
    let part = |number: i64| u64::try_from(number).unwrap_or(0);
    part(time.tv_sec).saturating_mul(1_000_000_000) + part(time.tv_nsec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_clock_shows_nothing() {
        let clock = CardClock {
            device: "/dev/null".to_owned(),
            name: String::new(),
            interfaces: Vec::new(),
            clock: File::open("/dev/null").unwrap(),
        };
        assert_eq!(clock.now_ns(), None);
        assert!(clock.read().is_none());
        assert!(open("ptp99999").is_none());
    }

    #[test]
    fn every_clock_that_is_found_goes_forward() {
        let cards = open_all();
        if cards.is_empty() {
            note!(
                "skipped: every_clock_that_is_found_goes_forward: no network card here has a clock"
            );
        }
        for card in cards {
            let (Some(first), Some(second)) = (card.read(), card.read()) else {
                continue;
            };
            assert!(
                second.raw_ns > first.raw_ns && second.card_ns >= first.card_ns,
                "{card:?}"
            );
        }
    }
}
