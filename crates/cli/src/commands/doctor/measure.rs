//! `shunt doctor --measure IFACE`: round trips and bulk over an interface by each way that an engine could reach
//! it, in turns, and which way serves which profile best; remembered for engines to come.
//!
//! The peer takes part without knowing (`probe_traffic.rs`). What the measurement does not take stays the
//! kernel's: it claims one flow, as an engine that shares an address does.

mod probe_traffic;
mod receive;
mod target;

use std::{
    collections::BTreeMap,
    io::{IsTerminal as _, Write as _},
    process::ExitCode,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, bail};
use clap::{Args, ValueEnum as _};
use nic::{
    Driver,
    af_packet::{self, AfPacket},
    af_xdp::{self, AfXdp},
    sharing::{Claim, Claims as _, Sharing, Transport},
};
use serde::Serialize;

use super::measured::{DriverChoice, Found, Record, hardware_of};
use crate::commands::engine::arguments::Profile;
use crate::{
    commands::engine::{checks, drivers::offer_the_lab},
    sys,
};
use probe_traffic::ProbeTraffic;
use target::Target;

/// Each round measures every way for so long, half round trips and half bulk.
const PART: Duration = Duration::from_millis(400);

/// How to measure.
#[derive(Debug, Args)]
pub struct Options {
    /// Measure this interface by each driver and mode, with a peer's help, and remember for engines which
    /// serves latency and which throughput. Takes some seconds.
    #[arg(long, value_name = "IFACE", conflicts_with = "subject")]
    pub measure: Option<String>,
    /// Who answers: any host of the interface's network that refuses connections to --port [default: the
    /// interface's router].
    #[arg(long, value_name = "IPV4", requires = "measure")]
    peer: Option<std::net::Ipv4Addr>,
    /// A port on which the peer does not listen.
    #[arg(long, value_name = "PORT", requires = "measure", default_value_t = 9)]
    port: u16,
    /// Measure although the interface carries traffic or the default route. Native modes disturb that: on
    /// virtual interfaces they make it several times slower, some devices lose their link for a second.
    #[arg(long, requires = "measure")]
    in_use: bool,
    /// Rounds, of about three seconds, on a veth of about eight.
    #[arg(long, value_name = "N", requires = "measure", default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=100))]
    rounds: u8,
}

/// One way in one round.
struct Sample {
    p50_us: f64,
    p99_us: f64,
    round_trips: usize,
    gbit_s: f64,
    received: Result<f64, String>,
}

#[derive(Debug, Serialize)]
struct Report<'a> {
    record: &'a Record,
    choices: BTreeMap<&'static str, Option<String>>,
    remembered_in: String,
}

pub fn execute(interface: &str, options: &Options, json: bool) -> anyhow::Result<ExitCode> {
    if sys::interface_index(interface) == 0 {
        bail!(
            "--measure {interface}: no such interface here: see `ip link` in this network namespace"
        );
    }
    checks::check_is_up(interface).context("--measure")?;
    if !options.in_use {
        target::check_is_idle(interface)?;
    }
    let target = Target::find(interface, options.peer, options.port)?;
    let rounds = usize::from(options.rounds);
    let mut samples: BTreeMap<usize, Vec<Sample>> = BTreeMap::new();
    let mut lacks: BTreeMap<usize, String> = BTreeMap::new();
    let no_sender = receive::lacks(interface);
    for round in 0..rounds {
        for (number, way) in DriverChoice::ALL.into_iter().enumerate() {
            if lacks.contains_key(&number) {
                continue;
            }
            progress(&format!("round {} of {rounds}: {}", round + 1, way.name()));
            let sample = measure(interface, way, &target).map(|sample| Sample {
                received: match &no_sender {
                    Some(reason) => Err(reason.clone()),
                    None => receive::rate(way).map_err(|error| format!("{error:#}")),
                },
                ..sample
            });
            match sample {
                Ok(sample) => samples.entry(number).or_default().push(sample),
                Err(error) if way == DriverChoice::Packet => return Err(error),
                Err(error) => _ = lacks.insert(number, error.to_string()),
            }
        }
    }
    progress("");
    let ways = DriverChoice::ALL
        .into_iter()
        .enumerate()
        .map(|(number, way)| {
            let taken = samples.remove(&number).unwrap_or_default();
            found(way, &taken, lacks.remove(&number))
        });
    let record = Record {
        interface: interface.to_owned(),
        hardware: hardware_of(interface).unwrap_or_default(),
        kernel: super::probes::kernel_release(),
        measured_at_s: SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs(),
        peer: target.ends.peer.to_string(),
        rounds,
        ways: ways.collect(),
    };
    let kept = record.keep()?.display().to_string();
    output::print_result(json, &report(&record, kept.clone()), || {
        text(&record, &kept)
    })?;
    Ok(ExitCode::SUCCESS)
}

fn progress(text: &str) {
    let mut stderr = std::io::stderr();
    if stderr.is_terminal() {
        // Progress that cannot be shown is no reason to stop.
        let _ = write!(stderr, "\r\x1b[K{text}");
    }
}

/// One round of one way.
fn measure(interface: &str, way: DriverChoice, target: &Target) -> anyhow::Result<Sample> {
    let sharing = Sharing::open(target.index).map_err(|error| {
        let is_privilege = error.is_privilege();
        offer_the_lab(error.into(), is_privilege)
    })?;
    let sharing = Arc::new(sharing);
    sharing.take(Claim::Flow {
        transport: Transport::Tcp,
        local: target.ends.own.into(),
        remote: target.ends.peer.into(),
    })?;
    let mut driver = open(interface, way, sharing)?;
    let mut probe_traffic = ProbeTraffic::new(driver.as_mut(), target.ends);
    probe_traffic.first_answer()?;
    let mut taken = probe_traffic.round_trips(PART)?;
    let gbit_s = probe_traffic.bulk(PART)?;
    taken.sort_by(f64::total_cmp);
    let at = |per_mille: usize| taken.get(taken.len() * per_mille / 1000).copied();
    let (Some(p50_us), Some(p99_us)) = (at(500), at(990)) else {
        bail!("no answer came while round trips were measured");
    };
    Ok(Sample {
        p50_us,
        p99_us,
        round_trips: taken.len(),
        gbit_s,
        received: Err(String::new()),
    })
}

fn open(
    interface: &str,
    way: DriverChoice,
    sharing: Arc<Sharing>,
) -> anyhow::Result<Box<dyn Driver>> {
    let sharing = Some(sharing);
    Ok(match way.mode() {
        None => Box::new(AfPacket::open(&af_packet::Config {
            sharing,
            ..af_packet::Config::new(interface)
        })?),
        Some(mode) => Box::new(AfXdp::open(&af_xdp::Config {
            sharing,
            mode,
            ..af_xdp::Config::new(interface)
        })?),
    })
}

fn found(way: DriverChoice, samples: &[Sample], lacks: Option<String>) -> Found {
    let middle = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied()
    };
    let median = |of: fn(&Sample) -> f64| middle(samples.iter().map(of).collect());
    let received = |sample: &Sample| sample.received.clone();
    let received_gbit_s = middle(
        samples
            .iter()
            .filter_map(|one| received(one).ok())
            .collect(),
    );
    let receive_lacks = samples.iter().find_map(|one| received(one).err());
    let p50_us = median(|sample| sample.p50_us);
    let spread = || {
        let values = || samples.iter().map(|sample| sample.p50_us);
        let (least, most) = (
            values().fold(f64::MAX, f64::min),
            values().fold(0.0, f64::max),
        );
        (most - least) / p50_us.unwrap_or(1.0) * 100.0
    };
    Found {
        way,
        p50_us,
        p99_us: median(|sample| sample.p99_us),
        gbit_s: median(|sample| sample.gbit_s),
        spread_percent: (samples.len() > 1).then(spread),
        round_trips: samples.iter().map(|sample| sample.round_trips).sum(),
        lacks,
        receive_lacks: receive_lacks.filter(|_| received_gbit_s.is_none()),
        received_gbit_s,
    }
}

fn report(record: &Record, remembered_in: String) -> Report<'_> {
    let choices = Profile::value_variants().iter().map(|profile| {
        let way = record.choose(*profile).map(DriverChoice::name);
        (profile.name(), way)
    });
    Report {
        choices: choices.collect(),
        record,
        remembered_in,
    }
}

fn text(record: &Record, kept: &str) -> String {
    let mut table = output::Table::new(
        "way | round trip p50, µs | p99, µs | spread | bulk out, Gbit/s | bulk in, Gbit/s",
    );
    let mut lacks = String::new();
    for found in &record.ways {
        if let Some(reason) = &found.lacks {
            lacks += &format!("not measured: {}: {reason}\n", found.way.name());
        }
        let (Some(p50), Some(p99), Some(gbit_s)) = (found.p50_us, found.p99_us, found.gbit_s)
        else {
            continue;
        };
        table.row([
            found.way.name(),
            format!("{p50:.2}"),
            format!("{p99:.2}"),
            found
                .spread_percent
                .map_or_else(|| "-".to_owned(), |spread| format!("{spread:.0} %")),
            format!("{gbit_s:.1}"),
            found
                .received_gbit_s
                .map_or_else(|| "-".to_owned(), |gbit_s| format!("{gbit_s:.1}")),
        ]);
        if let Some(reason) = &found.receive_lacks {
            lacks += &format!("receiving not measured: {}: {reason}\n", found.way.name());
        }
    }
    let chosen = report(record, String::new()).choices;
    let chosen = chosen.iter().map(|(profile, way)| {
        let way = way.as_deref().unwrap_or("nothing");
        format!("  --profile {profile:<10}  {way}\n")
    });
    format!(
        "{} with {}, {} rounds, both sides spinning; 64-byte frames one by one, then the largest the way takes\n\n{}{lacks}\n\
         an engine on {} will choose, unless --driver says otherwise:\n{}\n\
         Receiving is measured over a veth pair made for it, where the interface is of that kind: a stream of the\n\
         other end's kernel into a program with an engine inside.\n\
         remembered in {kept}\n",
        record.interface,
        record.peer,
        record.rounds,
        table.render(),
        record.interface,
        chosen.collect::<String>(),
    )
}
