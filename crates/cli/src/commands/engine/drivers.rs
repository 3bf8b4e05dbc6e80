//! Opens the device of an engine, a queue for each of its cores.

use std::net::{IpAddr, Ipv6Addr};
use std::path::PathBuf;

use anyhow::Context;
use bpf::classic::Instruction;
use hostif::{Steering, steering};
use netem::pcap::Recorder;
use nic::Driver;
use nic::af_packet::steering::{Hash, Mix, program};
use nic::af_packet::{self, AfPacket, Handover, Numbers};
use nic::af_xdp::{self, fallback};
use nic::tap::{self, Tap};
use wire::ethernet;

use super::share::Shared;
use super::{
    arguments::{Arguments, DriverName},
    dpdk,
};

/// The queues of an engine that has a keeper, and what the next engine needs to go on with them. Goes on with what the engine
/// before has `left` itself, where that can be.
pub fn open_kept(
    arguments: &Arguments,
    steering: Steering,
    sharing: Option<&Shared>,
    left: Vec<Handover>,
) -> anyhow::Result<(fallback::Opened, Vec<Numbers>)> {
    if arguments.driver() == DriverName::Tap {
        let tap = open_tap(arguments, Some(steering), left)?;
        let numbers = vec![tap.handover()];
        let opened = fallback::Opened {
            queues: vec![arguments.offloads.overrides().apply_to(Box::new(tap))],
            instead: None,
        };
        return Ok((opened, numbers));
    }
    let config = af_packet_config(arguments, steering.cores, sharing);
    let taken = take_up(&config, steering, left);
    let queues = match taken {
        Some(queues) => queues,
        None => open_af_packet(arguments, steering, sharing)?,
    };
    let numbers: Option<Vec<Numbers>> = queues.iter().map(AfPacket::handover).collect();
    let overrides = arguments.offloads.overrides();
    let opened = fallback::Opened {
        queues: boxed(queues)
            .map(|queue| overrides.apply_to(queue))
            .collect(),
        instead: None,
    };
    Ok((opened, numbers.unwrap_or_default()))
}

fn take_up(
    config: &af_packet::Config,
    steering: Steering,
    mut left: Vec<Handover>,
) -> Option<Vec<AfPacket>> {
    if steering.cores == 1 {
        return AfPacket::take_up(config, left.pop()?).map(|one| vec![one]);
    }
    AfPacket::take_up_queues(config, left, &spread(steering).1)
}

fn boxed(queues: Vec<AfPacket>) -> impl Iterator<Item = Box<dyn Driver>> {
    queues
        .into_iter()
        .map(|one| Box::new(one) as Box<dyn Driver>)
}

/// The queues in the order of the cores.
pub fn open(
    arguments: &Arguments,
    steering: Steering,
    sharing: Option<&Shared>,
) -> anyhow::Result<fallback::Opened> {
    let plain = |queues| fallback::Opened {
        queues,
        instead: None,
    };
    let mut opened = match arguments.driver() {
        DriverName::AfPacket => {
            plain(boxed(open_af_packet(arguments, steering, sharing)?).collect())
        }
        DriverName::AfXdp => open_af_xdp(arguments, steering, sharing)?,
        DriverName::Tap => plain(vec![Box::new(open_tap(arguments, None, Vec::new())?)]),
        DriverName::Dpdk => {
            plain(dpdk::open(arguments, steering).with_context(|| named(arguments))?)
        }
    };
    let overrides = arguments.offloads.overrides();
    opened.queues = opened
        .queues
        .into_iter()
        .map(|one| overrides.apply_to(one))
        .collect();
    if let Some(path) = &arguments.capture {
        let recorded = (0..)
            .zip(opened.queues)
            .map(|(core, driver)| record(driver, capture_of(path, core), &arguments.nic));
        opened.queues = recorded.collect::<anyhow::Result<_>>()?;
    }
    Ok(opened)
}

/// What the device is to let in.
fn addresses(arguments: &Arguments) -> Vec<IpAddr> {
    let own = arguments.own_addresses().iter();
    let mut addresses: Vec<IpAddr> = own.map(|own| own.address).collect();
    if arguments.autoconfigure {
        addresses.push(Ipv6Addr::UNSPECIFIED.into());
    }
    addresses
}

/// How frames are spread over cores: the hash, and the program for packet sockets.
fn spread(steering: Steering) -> (Hash, Vec<Instruction>) {
    let hash = match steering.card_key() {
        Some(card) => Hash::OfCard(card.rotations),
        None => Hash::Mixed(Mix {
            key: steering.key,
            multipliers: steering::MULTIPLIERS,
            shifts: steering::SHIFTS,
        }),
    };
    (hash, program(&hash))
}

fn open_af_xdp(
    arguments: &Arguments,
    steering: Steering,
    sharing: Option<&Shared>,
) -> anyhow::Result<fallback::Opened> {
    let claims = sharing.and_then(Shared::for_driver);
    if sharing.is_some() && claims.is_none() {
        // What says why was logged when sharing began.
        return Ok(fallback::Opened {
            queues: boxed(open_af_packet(arguments, steering, sharing)?).collect(),
            instead: Some(
                "af_packet serves instead of af_xdp: sharing by AF_XDP needs BPF".to_owned(),
            ),
        });
    }
    let config = af_xdp::Config {
        addresses: Some(addresses(arguments)).filter(|_| sharing.is_none()),
        sharing: claims,
        mode: arguments.xdp_mode,
        stamps: hostif::stages::is_on(),
        ..af_xdp::Config::new(&arguments.nic)
    };
    let (hash, program) = spread(steering);
    let cores = steering.cores;
    let spread = (cores > 1).then_some(fallback::Spread {
        cores,
        hash,
        program: &program,
    });
    let opened = fallback::open(&config, spread).map_err(|error| {
        let is_privilege = error.is_privilege();
        offer_the_lab(error.into(), is_privilege)
    });
    opened.with_context(|| named(arguments))
}

fn open_af_packet(
    arguments: &Arguments,
    steering: Steering,
    sharing: Option<&Shared>,
) -> anyhow::Result<Vec<AfPacket>> {
    let config = af_packet_config(arguments, steering.cores, sharing);
    let opened = if steering.cores == 1 {
        AfPacket::open(&config).map(|one| vec![one])
    } else {
        let (_, program) = spread(steering);
        AfPacket::open_queues(&config, steering.cores, &program)
    };
    opened.map_err(|error| explained(error, arguments))
}

fn af_packet_config(
    arguments: &Arguments,
    cores: u16,
    sharing: Option<&Shared>,
) -> af_packet::Config {
    af_packet::Config {
        addresses: Some(addresses(arguments)).filter(|_| sharing.is_none()),
        alone: true,
        sharing: sharing.and_then(Shared::for_driver),
        ring_bytes: af_packet::large_ring_bytes(cores),
        ..af_packet::Config::new(&arguments.nic)
    }
}

fn explained(error: af_packet::OpenError, arguments: &Arguments) -> anyhow::Error {
    let is_privilege = matches!(error, af_packet::OpenError::NoPrivilege);
    offer_the_lab(error.into(), is_privilege).context(named(arguments))
}

/// `steering` of an engine that has a keeper: the next one draws no other, and so has the same hardware address.
fn open_tap(
    arguments: &Arguments,
    steering: Option<Steering>,
    mut left: Vec<Handover>,
) -> anyhow::Result<Tap> {
    let hardware_address = steering.map(|steering| {
        let [a, b, c, d] = steering.key.to_be_bytes();
        // Locally administered (IEEE 802, §8.4).
        ethernet::Address([0x02, 0, a, b, c, d])
    });
    let config = tap::Config {
        name: Some(arguments.nic.clone()),
        hardware_address,
        up: true,
        ..tap::Config::default()
    };
    let taken = left.pop().and_then(|left| Tap::take_up(&config, left));
    if let Some(taken) = taken {
        return Ok(taken);
    }
    let opened = Tap::create(&config).map_err(|error| {
        let is_privilege = matches!(error, tap::OpenError::NoPrivilege);
        offer_the_lab(error.into(), is_privilege)
    });
    opened.with_context(|| named(arguments))
}

fn named(arguments: &Arguments) -> String {
    let (nic, driver) = (&arguments.nic, arguments.driver().name());
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
pub fn offer_the_lab(error: anyhow::Error, is_privilege: bool) -> anyhow::Error {
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
