//! `--driver dpdk`: the device and DPDK's options as the flags name them; in a shunt without the cargo feature,
//! how to build one with it.

use anyhow::bail;
use hostif::Steering;
#[cfg(feature = "dpdk")]
use hostif::steering;
use nic::Driver;

use super::arguments::{Arguments, DriverName};
use super::pci::{self, Card};

/// Refuses the driver where it is not built in, and its flag with another driver.
pub fn check(arguments: &Arguments) -> anyhow::Result<()> {
    if arguments.driver() != DriverName::Dpdk {
        if arguments.dpdk_args.is_some() {
            bail!("--dpdk-args needs --driver {}", DriverName::Dpdk.name());
        }
        return Ok(());
    }
    if !cfg!(feature = "dpdk") {
        bail!(
            "--driver dpdk: this shunt was built without DPDK. Install libdpdk (Debian: apt-get install libdpdk-dev pkg-config), then `cargo build --release --package cli --features dpdk`"
        );
    }
    let nic = &arguments.nic;
    if netlink::interface::hardware_address(nic).is_ok() {
        let card = Card::behind(netlink::ethtool::driver_info(nic));
        bail!("{}", pci::refusal(nic, card.as_ref()));
    }
    Ok(())
}

/// A queue for each core.
#[cfg(feature = "dpdk")]
pub fn open(arguments: &Arguments, steering: Steering) -> anyhow::Result<Vec<Box<dyn Driver>>> {
    use nic::dpdk::{Config, CoreOfFrame, Dpdk, Spread};

    /// Bytes of key, more than any card takes.
    const KEY_BYTES: usize = 64;

    let options = arguments.dpdk_args.as_deref().unwrap_or_default();
    let table = engine::card::table(
        steering,
        steering::CARD_ENTRIES.into(),
        steering.cores.into(),
    );
    let table = table.map(|table| table.into_iter().filter_map(|queue| queue.try_into().ok()));
    let key = steering.card_key().map(|key| key.bytes(KEY_BYTES));
    let spread = key.zip(table.map(Iterator::collect));
    let config = Config {
        options: options.split_whitespace().map(str::to_owned).collect(),
        spread: spread.map(|(key, table)| Spread { key, table }),
        ..Config::new(&arguments.nic)
    };
    let core_of_frame: CoreOfFrame =
        std::sync::Arc::new(move |frame| engine::core_of_frame(steering, frame));
    let queues = Dpdk::open_queues(&config, steering.cores, &core_of_frame)?;
    let boxed = |one| Box::new(one) as Box<dyn Driver>;
    Ok(queues.into_iter().map(boxed).collect())
}

/// Not built in.
#[cfg(not(feature = "dpdk"))]
pub fn open(arguments: &Arguments, _: Steering) -> anyhow::Result<Vec<Box<dyn Driver>>> {
    check(arguments)?;
    Ok(Vec::new())
}
