//! Stamps that a network card makes of frames that leave, as moments of the kernel's clock. Which frames are stamped is a setting of
//! the whole card: a measurement has it set meanwhile, its ends use what they find.

use std::net::{IpAddr, SocketAddr};

use netlink::ethtool;
use netlink::stamping::{SentStamps, is_sent_stamped};

use crate::card_clocks::{self, CardClock, Reading};
use crate::environment;

/// The card by which a connection leaves.
#[derive(Debug)]
pub struct Card {
    clock: CardClock,
    last: Reading,
}

impl Card {
    /// `None`: it stamps nothing that leaves, this user may not read its clock, or no card is on the way.
    pub fn between(own: IpAddr, peer: IpAddr) -> Option<Self> {
        let interface = environment::leaves_by(own, peer)?;
        let clock = is_sent_stamped(&interface)?
            .then(|| card_clocks::of(&interface))
            .flatten()?;
        let last = clock.read()?;
        Some(Self { clock, last })
    }

    /// Reads its clock beside the kernel's: what is stamped next counts from there.
    pub fn look(&mut self) {
        if let Some(reading) = self.clock.glance() {
            self.last = reading;
        }
    }

    /// When a stamp was made, by CLOCK_REALTIME.
    pub fn real_ns(&self, card_ns: u64) -> Option<u64> {
        self.last.real_ns(card_ns)
    }
}

/// The card on the way to a host, which stamps what leaves until this is dropped.
#[derive(Debug)]
pub struct OnTheWay {
    name: String,
    /// Why it does not stamp.
    stamps: Result<(SentStamps, Reading), String>,
}

impl OnTheWay {
    /// `None`: none is, or it has no clock.
    pub fn to(host: SocketAddr) -> Option<Self> {
        let interface = environment::leaves_by(environment::own_address(host)?, host.ip())?;
        let clock = ethtool::clock(&interface)?;
        let name = format!("/dev/ptp{} of {interface}", clock.number);
        let stamps = if clock.stamps_sent {
            begin(&interface)
        } else {
            Err("it stamps nothing that leaves".to_owned())
        };
        Some(Self { name, stamps })
    }

    /// What came of it: of so many messages so many have its stamp.
    pub fn line(&self, stamped: usize, messages: usize) -> String {
        let name = &self.name;
        match &self.stamps {
            Ok((set, reading)) => {
                let setting = match set.is_set() {
                    true => "the card was set for that, and is given back",
                    false => "the card was set so before",
                };
                format!(
                    "hardware stamps: {name} says of {stamped} of {messages} messages when they left this host, known within {:.1} µs; {setting}",
                    reading.within_ns as f64 / 1e3
                )
            }
            Err(why) => format!("hardware stamps: {name} is not used: {why}"),
        }
    }
}

fn begin(interface: &str) -> Result<(SentStamps, Reading), String> {
    let clock = card_clocks::of(interface).ok_or("this user may not read it")?;
    let reading = clock.read().ok_or("it shows nothing")?;
    let set = SentStamps::begin(interface).map_err(|error| {
        format!("the card is not set to stamp what leaves, and cannot be (CAP_NET_ADMIN): {error}")
    })?;
    Ok((set, reading))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stays_on_this_host_leaves_by_no_card() {
        let own = IpAddr::from([127, 0, 0, 1]);
        assert!(Card::between(own, own).is_none());
        assert!(OnTheWay::to(SocketAddr::new(own, 7)).is_none());
    }

    #[test]
    fn a_card_that_does_not_stamp_is_said_with_the_reason() {
        let card = OnTheWay {
            name: "/dev/ptp0 of eth0".to_owned(),
            stamps: Err("this user may not read it".to_owned()),
        };
        assert_eq!(
            card.line(0, 9),
            "hardware stamps: /dev/ptp0 of eth0 is not used: this user may not read it"
        );
    }
}
