//! `shunt send` and `shunt recv` between two hosts of a lab: on their kernels' sockets, and on those of Shunt, with an engine
//! on each host. The processor time is that of the engines too.

use std::net::IpAddr;

use super::{
    case::{Case, Group, Ran, quiet_as},
    pair::{Pair, free_port},
    site::Site,
};
use crate::micro::testbed::{On, Scale, Stack, Testbed};

/// Names of the cases.
pub const KERNEL: &str = "lab-kernel";
pub const SHUNT: &str = "lab-shunt";

/// Both.
pub fn cases() -> Vec<Case> {
    let case = |key: &str, title: &str, stack| Case {
        key: key.to_owned(),
        title: title.to_owned(),
        group: Group::Own,
        tools: &[],
        stores: true,
        run: Box::new(move |site| transfer(site, stack)),
    };
    vec![
        case(
            KERNEL,
            "two hosts, the kernel's sockets, XXH3",
            Stack::Kernel,
        ),
        case(SHUNT, "two hosts, Shunt's sockets, XXH3", Stack::Engine("")),
    ]
}

fn transfer(site: &Site, stack: Stack) -> anyhow::Result<Ran> {
    let scale = Scale { seconds: 0.0 };
    let testbed = Testbed::create(scale, lab::ORDINARY_SEGMENT_BYTES, site.interrupt.clone())?;
    let engines = testbed.engines([(On::A, stack), (On::B, stack)])?;
    let shunt = lab::own_binary();
    let token = mover::Token::random()?.to_string();
    let command = |on| {
        let mut command = quiet_as(testbed.host(on)?.command(&shunt)?);
        command.env("SHUNT_TOKEN", &token);
        if !engines.is_empty() {
            command.args(["run", "--policy", "engine-only", "--"]);
            command.arg(&shunt);
        }
        anyhow::Ok(command)
    };
    let port = free_port()?;
    let address = IpAddr::from(testbed.placement(On::A, stack)?.address);
    let address = format!("{address}:{port}");
    let mut server = command(On::A)?;
    server
        .args(["recv", "--listen", &address, "--dir"])
        .arg(site.target());
    let mut client = command(On::B)?;
    client
        .arg("send")
        .arg(site.source())
        .args(["--to", &address, "--hash", "xxh3"]);
    let took = Pair {
        beside: engines.iter().map(lab::Program::pid).collect(),
        ..Pair::once(server, port, client)
    }
    .run(site)?;
    Ok(Ran::of(site.bytes, took.seconds, Some(took.cpu_s)))
}
