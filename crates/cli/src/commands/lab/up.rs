//! `shunt lab up`: builds a lab.

use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use lab::{Cable, Cidr, HostSpec, Lab, LabSpec};

use super::{Description, Name, cable, impairments::Impairments};

/// Build two hosts joined by a cable.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  shunt lab up
  shunt lab up --name wan --hosts client,server --mtu 9000
  shunt lab up --cable tap --impair loss=1%,delay=10ms,rate=100mbit,queue=256kib --seed 7
  shunt lab up --address a=192.0.2.1/24 --address b=192.0.2.2/24 --congestion reno")]
pub struct Arguments {
    #[command(flatten)]
    name: Name,
    /// Names of the two hosts.
    #[arg(long, value_delimiter = ',', default_value = "a,b")]
    hosts: Vec<String>,
    /// Address of a host's kernel on the cable; repeatable.
    #[arg(long = "address", value_name = "HOST=ADDRESS/PREFIX")]
    addresses: Vec<String>,
    /// Address on the cable to leave for an engine of a host; repeatable.
    #[arg(long = "engine-address", value_name = "HOST=ADDRESS/PREFIX")]
    engine_addresses: Vec<String>,
    /// What joins the hosts.
    #[arg(long, value_enum, default_value = "veth")]
    cable: CableKind,
    /// Largest IP packet on the cable, bytes.
    #[arg(long, default_value_t = 1500)]
    mtu: u32,
    #[command(flatten)]
    impairments: Impairments,
    /// Largest packet that crosses the cable uncut, KiB; above 64 it is what Linux calls BIG TCP.
    #[arg(long, value_name = "KIB", default_value_t = 64, value_parser = clap::value_parser!(u32).range(64..=512))]
    segment_kib: u32,
    /// Congestion controls to try for both kernels; the first that is allowed is set.
    #[arg(long, value_delimiter = ',', default_value = "cubic,reno")]
    congestion: Vec<String>,
    /// Print the lab as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum CableKind {
    /// A pair of virtual Ethernet interfaces.
    Veth,
    /// TAP interfaces joined by a process of ours, which can lose, delay and limit; see --impair.
    Tap,
}

pub fn execute(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let settings = arguments.impairments.settings()?;
    let mut lab = Lab::up(&arguments.name.name, &arguments.spec()?)?;
    if let Some(taps) = lab.take_taps()
        && let Err(error) = cable::start(&mut lab, taps, settings)
    {
        Lab::down(lab.name())?;
        return Err(error);
    }
    let description = Description::of(&lab);
    if arguments.json {
        output::print_json(&description)?;
        return Ok(ExitCode::SUCCESS);
    }
    let option = if lab.name() == "lab" {
        String::new()
    } else {
        format!(" --name {}", lab.name())
    };
    let next = match lab.hosts().first() {
        Some(host) => format!("next: shunt lab exec{option} {} -- CMD\n", host.spec().name),
        None => String::new(),
    };
    output::print(&(description.text() + &next))?;
    Ok(ExitCode::SUCCESS)
}

impl Arguments {
    fn spec(&self) -> anyhow::Result<LabSpec> {
        let mut hosts: Vec<HostSpec> = (0_u8..)
            .zip(&self.hosts)
            .take(32)
            .map(|(index, name)| HostSpec::numbered(name, index))
            .collect();
        for text in &self.addresses {
            let (host, address) = assignment("--address", text, &mut hosts)?;
            host.address = address;
        }
        for text in &self.engine_addresses {
            let (host, address) = assignment("--engine-address", text, &mut hosts)?;
            host.engine_address = address;
        }
        let cable = match self.cable {
            CableKind::Veth if self.impairments.given() => {
                bail!("--impair and --seed need the cable that can do it: add --cable tap")
            }
            CableKind::Veth => Cable::Veth,
            CableKind::Tap if self.segment_kib != 64 => {
                bail!("--segment-kib needs --cable veth: the other passes frames of the MTU only")
            }
            CableKind::Tap => Cable::Tap,
        };
        Ok(LabSpec {
            hosts,
            cable,
            mtu: self.mtu,
            segment_bytes: self.segment_kib * 1024,
            congestion: self.congestion.clone(),
        })
    }
}

/// Splits `HOST=ADDRESS/PREFIX` and finds the host.
fn assignment<'h>(
    flag: &str,
    text: &str,
    hosts: &'h mut [HostSpec],
) -> anyhow::Result<(&'h mut HostSpec, Cidr)> {
    let Some((name, address)) = text.split_once('=') else {
        bail!("{flag} {text}: write HOST=ADDRESS/PREFIX, for example {flag} a=10.77.0.1/24");
    };
    let address = address.parse().with_context(|| format!("{flag} {text}"))?;
    let known: Vec<String> = hosts.iter().map(|host| host.name.clone()).collect();
    match hosts.iter_mut().find(|host| host.name == name) {
        Some(host) => Ok((host, address)),
        None => bail!(
            "{flag} {text}: no host {name:?}; --hosts names {}",
            known.join(", ")
        ),
    }
}
