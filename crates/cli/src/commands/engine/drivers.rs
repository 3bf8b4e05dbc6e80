//! Opens the device of an engine, a queue for each of its cores.

use std::net::{IpAddr, Ipv6Addr};
use std::path::PathBuf;

use anyhow::Context;
use hostif::{Steering, steering};
use nic::Driver;
use nic::af_packet::{self, AfPacket};
use nic::pcap::Recorder;
use nic::tap::{self, Tap};

use super::{Arguments, DriverName};

/// The queues in the order of the cores.
pub fn open(arguments: &Arguments, steering: Steering) -> anyhow::Result<Vec<Box<dyn Driver>>> {
    let drivers: Vec<Box<dyn Driver>> = match arguments.driver {
        DriverName::AfPacket => open_af_packet(arguments, steering)?,
        DriverName::Tap => vec![open_tap(arguments)?],
    };
    let Some(path) = &arguments.capture else {
        return Ok(drivers);
    };
    (0..)
        .zip(drivers)
        .map(|(core, driver)| record(driver, capture_of(path, core), &arguments.nic))
        .collect()
}

fn open_af_packet(
    arguments: &Arguments,
    steering: Steering,
) -> anyhow::Result<Vec<Box<dyn Driver>>> {
    let mut addresses: Vec<IpAddr> = arguments.address.iter().map(|own| own.address).collect();
    if arguments.autoconfigure {
        addresses.push(Ipv6Addr::UNSPECIFIED.into());
    }
    let config = af_packet::Config {
        addresses: Some(addresses),
        ..af_packet::Config::new(&arguments.nic)
    };
    let opened = if steering.cores == 1 {
        AfPacket::open(&config).map(|one| vec![one])
    } else {
        let mix = af_packet::steering::Mix {
            key: steering.key,
            multipliers: steering::MULTIPLIERS,
            shifts: steering::SHIFTS,
        };
        let program = af_packet::steering::program(&mix);
        AfPacket::open_queues(&config, steering.cores, &program)
    };
    let opened = opened.map_err(|error| {
        let is_privilege = matches!(error, af_packet::OpenError::NoPrivilege);
        offer_the_lab(error.into(), is_privilege)
    });
    let boxed = |one| Box::new(one) as Box<dyn Driver>;
    let queues = opened.with_context(|| named(arguments))?;
    Ok(queues.into_iter().map(boxed).collect())
}

fn open_tap(arguments: &Arguments) -> anyhow::Result<Box<dyn Driver>> {
    let config = tap::Config {
        name: Some(arguments.nic.clone()),
        up: true,
        ..tap::Config::default()
    };
    let opened = Tap::create(&config).map_err(|error| {
        let is_privilege = matches!(error, tap::OpenError::NoPrivilege);
        offer_the_lab(error.into(), is_privilege)
    });
    Ok(Box::new(opened.with_context(|| named(arguments))?))
}

fn named(arguments: &Arguments) -> String {
    let (nic, driver) = (&arguments.nic, arguments.driver.name());
    format!("--nic {nic} with --driver {driver}")
}

fn record(driver: Box<dyn Driver>, path: PathBuf, nic: &str) -> anyhow::Result<Box<dyn Driver>> {
    let recorder = Recorder::create(driver, &path, nic)
        .with_context(|| format!("creating the file of --capture, {}", path.display()))?;
    Ok(Box::new(recorder))
}

/// Each core writes a file of its own; mergecap(1) makes one of them.
fn capture_of(path: &std::path::Path, core: u16) -> PathBuf {
    if core == 0 {
        return path.to_owned();
    }
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{core}"));
    PathBuf::from(name)
}

/// Where a privilege is missing, there is a place that needs none.
fn offer_the_lab(error: anyhow::Error, is_privilege: bool) -> anyhow::Error {
    if !is_privilege {
        return error;
    }
    // In a lab only a program that is not its root lacks the privilege.
    let way_out = if std::env::var_os(lab::NIC_VARIABLE).is_some() {
        "in a lab, start the engine without --as-user: `shunt lab exec HOST -- shunt engine --background`"
    } else {
        "`shunt lab up` makes two hosts where no privilege is needed"
    };
    anyhow::anyhow!("{error}; {way_out}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_core_captures_into_a_file_of_its_own() {
        let path = std::path::Path::new("engine.pcapng");
        assert_eq!(capture_of(path, 0), path);
        assert_eq!(capture_of(path, 3), PathBuf::from("engine.pcapng.3"));
    }
}
