//! Stamps of a network card, where it has a clock: when a frame left for the wire, and when one came from it, in place of the
//! moments at which the kernel's driver had it. Read first: `Documentation/networking/timestamping.rst` of the kernel.

use std::{
    fs, io,
    net::{IpAddr, SocketAddr},
    os::fd::BorrowedFd,
    path::Path,
};

use hostif::stages::{Mark, STAGES_VARIABLE, mark_at};
use netlink::ethtool::{self, CardClock, Stamping};

use crate::{
    card_clocks::{self, Reading},
    environment, sys,
};

/// Stamps of one connection that are kept; there are two for each message.
const NOTED_MAX: usize = 1 << 17;
/// Of so many frames the card must have told the time, for its stamps to take the place of the kernel's.
const PRESENT: f64 = 0.9;
/// What a connection says of its card's stamps, beside its marks.
const SAID: &str = "card-stamps";

/// A card that stamps frames for as long as this lives.
#[derive(Debug)]
pub struct SwitchedOn {
    interface: String,
    before: Stamping,
}

impl Drop for SwitchedOn {
    fn drop(&mut self) {
        // The card is gone, perhaps, and its setting with it.
        let _ = ethtool::set_stamping(&self.interface, self.before);
    }
}

/// The card by which packets go to a host, and what is to be had of it.
#[derive(Debug)]
pub struct Card {
    _switched_on: Option<SwitchedOn>,
    /// Why nothing is; or of which card it is.
    said: Result<String, String>,
}

impl Card {
    /// Has the card stamp frames, where it can and nobody has set that.
    pub fn towards(host: SocketAddr) -> Self {
        let Some(interface) = environment::Interface::towards(host) else {
            return Self::without("absent, the interface is not known".to_owned());
        };
        let name = interface.name;
        let Some(clock) = ethtool::clock(&name) else {
            return Self::without(format!("absent, {name} has no clock"));
        };
        let clock_name = format!("/dev/ptp{} of {name}", clock.number);
        match switch_on(&name, clock) {
            Ok(switched_on) => Self {
                _switched_on: switched_on,
                said: Ok(clock_name),
            },
            Err(error) => Self::without(format!(
                "{clock_name} could stamp {}, but the card is not set to that: {error}",
                stampable(clock)
            )),
        }
    }

    fn without(why: String) -> Self {
        Self {
            _switched_on: None,
            said: Err(why),
        }
    }

    /// What was to be had, with what the last connection said that noted into this folder.
    pub fn line(&self, folder: &Path) -> String {
        let said = match &self.said {
            Err(why) => why.clone(),
            Ok(clock) => match fs::read_to_string(folder.join(SAID)) {
                Ok(said) => format!("{clock}: {said}"),
                Err(_) => format!("{clock} was not read: this user may not open it"),
            },
        };
        format!("hardware stamps: {said}")
    }
}

/// What a card could stamp.
fn stampable(clock: CardClock) -> &'static str {
    match (clock.stamps_sent, clock.stamps_received) {
        (true, true) => "frames that leave and that arrive",
        (true, false) => "frames that leave",
        (false, true) => "frames that arrive",
        (false, false) => "those of PTP at most",
    }
}

fn switch_on(interface: &str, clock: CardClock) -> io::Result<Option<SwitchedOn>> {
    let before = ethtool::stamping(interface)?;
    let wanted = Stamping::of_all(clock);
    // Who has set it needs what he has set.
    if before.is_on() || !wanted.is_on() {
        return Ok(None);
    }
    ethtool::set_stamping(interface, wanted)?;
    Ok(Some(SwitchedOn {
        interface: interface.to_owned(),
        before,
    }))
}

/// When the kernel's software and the card had a frame.
#[derive(Debug, Clone, Copy)]
struct Noted {
    mark: Mark,
    real_ns: Option<u64>,
    card_ns: Option<u64>,
}

/// The card's stamps of one connection. Its clock is read when it begins and when it ends, and a stamp in between belongs to
/// the moment in proportion: marks are made at the end.
#[derive(Debug)]
pub struct CardStamps {
    clock: card_clocks::CardClock,
    begun: Reading,
    noted: Vec<Noted>,
}

impl CardStamps {
    /// Of this connection; `None`: its card stamps nothing, or its clock cannot be opened.
    pub fn of(socket: BorrowedFd<'_>) -> Option<Self> {
        let own: IpAddr = sys::local_address(socket).ok()?.ip().to_canonical();
        let interface = environment::interface_with(own)?;
        if !ethtool::stamping(&interface).is_ok_and(Stamping::is_on) {
            return None;
        }
        let clock = card_clocks::open(&format!("ptp{}", ethtool::clock(&interface)?.number))?;
        Some(Self {
            begun: clock.read()?,
            clock,
            noted: Vec::new(),
        })
    }

    /// Keeps the two times of a frame.
    pub fn note(&mut self, mark: Mark, real_ns: Option<u64>, card_ns: Option<u64>) {
        if self.noted.len() < NOTED_MAX {
            self.noted.push(Noted {
                mark,
                real_ns,
                card_ns,
            });
        }
    }
}

impl Drop for CardStamps {
    fn drop(&mut self) {
        let Some(ended) = self.clock.read() else {
            // The card is gone: what the kernel has noted stays.
            for one in &self.noted {
                mark_at(one.mark, one.real_ns);
            }
            return;
        };
        let mut said = Vec::new();
        for (mark, what) in [(Mark::Left, "left"), (Mark::Arrived, "came")] {
            let times = times(&self.noted, mark, [self.begun, ended]);
            for at in &times.real_ns {
                mark_at(mark, Some(*at));
            }
            said.push(format!(
                "it stamped {} of {} frames that {what}{}",
                times.by_card,
                times.all,
                if times.are_the_cards {
                    ""
                } else {
                    " (told by the kernel's stamps)"
                }
            ));
        }
        let within_ns = self.begun.within_ns.max(ended.within_ns);
        said.push(format!(
            "read beside the kernel's clock within {within_ns} ns"
        ));
        if let Some(folder) = std::env::var_os(STAGES_VARIABLE) {
            // What is missing there the report names.
            let _ = fs::write(Path::new(&folder).join(SAID), said.join(", "));
        }
    }
}

/// Times of CLOCK_REALTIME at which frames left or came.
#[derive(Debug, PartialEq, Eq)]
struct Times {
    real_ns: Vec<u64>,
    all: usize,
    by_card: usize,
    are_the_cards: bool,
}

/// By the card, where it has stamped nearly all: the two are no times of the same moment. Else by the kernel.
fn times(noted: &[Noted], mark: Mark, readings: [Reading; 2]) -> Times {
    let of = || noted.iter().filter(|one| one.mark == mark);
    let (all, by_card) = (of().count(), of().filter_map(|one| one.card_ns).count());
    let are_the_cards = all > 0 && by_card as f64 >= PRESENT * all as f64;
    let time = |one: &Noted| {
        if are_the_cards {
            Some(real_ns(one.card_ns?, readings))
        } else {
            one.real_ns
        }
    };
    Times {
        real_ns: of().filter_map(time).collect(),
        all,
        by_card,
        are_the_cards,
    }
}

/// The moment of a card's stamp, by the readings before and after it.
fn real_ns(card_ns: u64, [begun, ended]: [Reading; 2]) -> u64 {
    let since = |from: u64, to: u64| to.wrapping_sub(from).cast_signed() as f64;
    let passed = since(begun.card_ns, ended.card_ns);
    let rate = if passed > 0.0 {
        since(begun.real_ns, ended.real_ns) / passed
    } else {
        1.0
    };
    let after = (since(begun.card_ns, card_ns) * rate).round() as i64;
    begun.real_ns.saturating_add_signed(after)
}

#[cfg(test)]
mod tests {
    use super::*;

    const REAL: u64 = 1_800_000_000_000_000_000;

    /// A card's clock that runs 100 ppm too fast, from 5 s on.
    fn readings() -> [Reading; 2] {
        let reading = |card_ns, real_ns| Reading {
            card_ns,
            real_ns,
            raw_ns: 0,
            within_ns: 900,
        };
        [
            reading(5_000_000_000, REAL),
            reading(7_000_200_000, REAL + 2_000_000_000),
        ]
    }

    fn noted(mark: Mark, real_ns: u64, card_ns: Option<u64>) -> Noted {
        Noted {
            mark,
            real_ns: Some(real_ns),
            card_ns,
        }
    }

    #[test]
    fn a_stamp_belongs_to_the_moment_between_the_readings() {
        assert_eq!(real_ns(5_000_000_000, readings()), REAL);
        assert_eq!(real_ns(6_000_100_000, readings()), REAL + 1_000_000_000);
        assert_eq!(real_ns(4_999_999_000, readings()), REAL - 1000);
        let [still, _] = readings();
        assert_eq!(real_ns(5_000_000_700, [still, still]), REAL + 700);
    }

    #[test]
    fn the_cards_stamps_count_where_it_has_stamped_nearly_all_and_never_beside_the_kernels() {
        let mut all: Vec<Noted> = (0..10)
            .map(|number| {
                noted(
                    Mark::Left,
                    REAL + number,
                    Some(5_000_000_000 + 1000 * number),
                )
            })
            .collect();
        all.push(noted(Mark::Arrived, REAL + 77, None));
        all[3].card_ns = None;
        let left = times(&all, Mark::Left, readings());
        assert_eq!((left.all, left.by_card, left.are_the_cards), (10, 9, true));
        assert_eq!(left.real_ns.len(), 9);
        assert_eq!(left.real_ns[1], REAL + 1000);
        let came = times(&all, Mark::Arrived, readings());
        assert_eq!((came.by_card, came.are_the_cards), (0, false));
        assert_eq!(came.real_ns, [REAL + 77]);
        all[4].card_ns = None;
        let left = times(&all, Mark::Left, readings());
        assert!(!left.are_the_cards);
        assert_eq!(left.real_ns[9], REAL + 9);
    }

    #[test]
    fn a_way_without_a_card_is_told_as_that() {
        let card = Card::towards(SocketAddr::from(([127, 0, 0, 1], 7007)));
        let line = card.line(Path::new("/nonexistent"));
        assert_eq!(line, "hardware stamps: absent, lo has no clock");
    }
}
