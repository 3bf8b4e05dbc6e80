//! Questions and settings of ethtool(8) for one interface. Read first: linux/ethtool.h.

use crate::interface::control_socket;
use crate::message::text;
use crate::sys;
use std::io;

/// An offload that is on or off.
#[derive(Debug, Clone, Copy)]
pub enum Offload {
    /// The device verifies checksums.
    ReceiveChecksum,
    /// The device fills checksums.
    TransmitChecksum,
    /// The device cuts large segments (TSO).
    Segmentation,
    /// Received segments are merged (GRO).
    ReceiveMerge,
}

impl Offload {
    /// `ETHTOOL_G…` and `ETHTOOL_S…`.
    const fn commands(self) -> (u32, u32) {
        match self {
            Self::ReceiveChecksum => (0x14, 0x15),
            Self::TransmitChecksum => (0x16, 0x17),
            Self::Segmentation => (0x1e, 0x1f),
            Self::ReceiveMerge => (0x2b, 0x2c),
        }
    }
}

/// Whether an offload is on; `None` where the interface does not say.
#[must_use]
pub fn offload(interface: &str, offload: Offload) -> Option<bool> {
    let socket = control_socket().ok()?;
    let (question, _) = offload.commands();
    let on = sys::ethtool_value(&socket, interface, question, 0).ok()?;
    Some(on != 0)
}

/// Switches an offload on or off.
///
/// # Errors
/// The interface does not have it, or needs it.
pub fn set_offload(interface: &str, offload: Offload, on: bool) -> io::Result<()> {
    let (_, setting) = offload.commands();
    sys::ethtool_value(&control_socket()?, interface, setting, on.into()).map(drop)
}

/// Who drives an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DriverInfo {
    /// The driver's name.
    pub name: String,
    /// The device's firmware, as its driver says it; empty where it has none.
    pub firmware: String,
    /// Where the device is, for a card its PCI address; empty where it is nowhere.
    pub bus: String,
}

/// Who drives the interface; `None` where it does not say.
#[must_use]
pub fn driver_info(interface: &str) -> Option<DriverInfo> {
    let [name, _, firmware, bus] = sys::driver_info(&control_socket().ok()?, interface).ok()?;
    let said = |bytes: &[u8]| match text(bytes).trim() {
        "N/A" => String::new(),
        said => said.to_owned(),
    };
    Some(DriverInfo {
        name: said(&name),
        firmware: said(&firmware),
        bus: said(&bus),
    })
}

/// Name of the interface's driver.
#[must_use]
pub fn driver(interface: &str) -> Option<String> {
    driver_info(interface).map(|info| info.name)
}

/// How long frames may wait for an interrupt, in microseconds: received ones, and sent ones; `None` where the driver does
/// not say.
#[must_use]
pub fn coalescing_us(interface: &str) -> Option<[u32; 2]> {
    sys::coalescing(&control_socket().ok()?, interface).ok()
}

/// What a card itself notes of time, see `Documentation/networking/timestamping.rst` of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CardClock {
    /// The number of its clock: `/dev/ptpN`.
    pub number: u32,
    /// It stamps frames that leave.
    pub stamps_sent: bool,
    /// It stamps every frame that arrives; otherwise those of the precision time protocol at most.
    pub stamps_received: bool,
}

/// The card's clock; `None` where it has none.
#[must_use]
pub fn clock(interface: &str) -> Option<CardClock> {
    let info = sys::time_stamping(&control_socket().ok()?, interface).ok()?;
    parse_clock(&info)
}

fn parse_clock(info: &[u32; 11]) -> Option<CardClock> {
    // SOF_TIMESTAMPING_TX_HARDWARE, SOF_TIMESTAMPING_RX_HARDWARE, HWTSTAMP_FILTER_ALL.
    const SENT: u32 = 1;
    const RECEIVED: u32 = 4;
    const ALL: u32 = 1 << 1;
    let [_, kinds, number, _, _, _, _, filters, ..] = *info;
    // Without a clock it is -1.
    let number = u32::try_from(number.cast_signed()).ok()?;
    (kinds & (SENT | RECEIVED) != 0).then_some(CardClock {
        number,
        stamps_sent: kinds & SENT != 0,
        stamps_received: kinds & RECEIVED != 0 && filters & ALL != 0,
    })
}

/// In how many queues frames of the interface arrive.
///
/// # Errors
/// No socket can be made.
pub fn receive_queues(interface: &str) -> io::Result<u32> {
    Ok(sys::rx_queues(&control_socket()?, interface))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_that_is_not_there_says_nothing() {
        assert_eq!(offload("no such", Offload::Segmentation), None);
        assert_eq!(driver("no such"), None);
        assert_eq!(coalescing_us("no such"), None);
        assert!(set_offload("no such", Offload::Segmentation, true).is_err());
        assert_eq!(receive_queues("no such").unwrap(), 1);
    }

    #[test]
    fn a_clock_is_one_that_stamps_frames() {
        let info = |kinds, number: i32, filters| {
            parse_clock(&[
                0x41,
                kinds,
                number.cast_unsigned(),
                0,
                0,
                0,
                0,
                filters,
                0,
                0,
                0,
            ])
        };
        assert_eq!(info(0x1a, -1, 0), None, "of the kernel alone");
        assert_eq!(info(0x1a, 0, 0), None);
        let all = info(0x5f, 3, 3).unwrap();
        assert_eq!(
            (all.number, all.stamps_sent, all.stamps_received),
            (3, true, true)
        );
        let of_protocol = info(0x5f, 0, 1 << 12).unwrap();
        assert!(of_protocol.stamps_sent && !of_protocol.stamps_received);
        assert_eq!(clock("lo"), None);
    }

    #[test]
    fn loopback_merges_or_says_not() {
        assert!(offload("lo", Offload::Segmentation).is_some());
    }
}
