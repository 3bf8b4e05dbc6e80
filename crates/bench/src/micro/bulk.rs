//! `shunt bench bulk`: one stream of iperf3 as fast as it goes.

use anyhow::Context as _;
use lab::{INTERFACE, Program};
use serde_json::Value;

use super::{
    row::{Row, from},
    samples::Values,
    setup::{Plan, Setup, Unavailable},
    testbed::{On, Placement, Stack, Testbed},
};
use crate::{apps::case::Better, tools};

const PORT: u16 = 5201;
const INLINE: Stack = Stack::Inline("af_packet");
/// The TAP interface, and the addresses of the kernel and of the engine on it.
const TAP: &str = "shunt0";
const TAP_KERNEL: &str = "10.9.0.1/24";
const TAP_ENGINE: &str = "10.9.0.2/24";

/// What is measured.
pub fn plan() -> Plan {
    Plan {
        setups: SETUPS.to_vec(),
        rows: ROWS
            .iter()
            .map(|&[what, kernel, shunt]| Row {
                what,
                unit: "Gbit/s",
                better: Better::Higher,
                kernel: Some(from(kernel, "rate")),
                shunt: from(shunt, "rate"),
            })
            .collect(),
        notes: vec![
            "what iperf3's receiver counted; inline unless an engine is named",
            "an engine with a process of its own is the third on two processors",
        ],
    }
}

const ROWS: [[&str; 3]; 11] = [
    ["Shunt to kernel over veth", "kernel", "out"],
    ["Shunt to kernel over TAP (engine)", "kernel", "tap"],
    ["kernel to Shunt", "kernel", "in"],
    ["Shunt to Shunt over veth", "kernel", "both"],
    [
        "same host, both inline, against loopback",
        "loopback",
        "same",
    ],
    ["same host, both inline, against veth", "kernel", "same"],
    [
        "same host, one engine, against loopback",
        "loopback",
        "same-engine",
    ],
    [
        "same host, one engine, against veth",
        "kernel",
        "same-engine",
    ],
    [
        "same host, --loopback, against loopback",
        "loopback",
        "same-loopback",
    ],
    ["Shunt (engine) to kernel over veth", "kernel", "engine-out"],
    ["kernel to Shunt (engine)", "kernel", "engine-in"],
];

const SETUPS: [Setup; 11] = [
    setup("kernel", "kernel to kernel over veth", |testbed| {
        over_veth(testbed, Stack::Kernel, Stack::Kernel)
    }),
    setup("out", "inline to kernel", |testbed| {
        over_veth(testbed, INLINE, Stack::Kernel)
    }),
    setup("in", "kernel to inline", |testbed| {
        over_veth(testbed, Stack::Kernel, INLINE)
    }),
    setup("both", "inline to inline", |testbed| {
        over_veth(testbed, INLINE, INLINE)
    }),
    setup("tap", "engine to kernel over TAP", over_tap),
    setup("engine-out", "engine to kernel", |testbed| {
        let _engine = testbed.start_engine(On::A, &[])?;
        over_veth(testbed, Stack::Engine, Stack::Kernel)
    }),
    setup("engine-in", "kernel to engine", |testbed| {
        let _engine = testbed.start_engine(On::B, &[])?;
        over_veth(testbed, Stack::Kernel, Stack::Engine)
    }),
    setup("loopback", "kernel loopback", |testbed| {
        on_one_host(testbed, Stack::Kernel)
    }),
    setup("same-engine", "same host, one engine", |testbed| {
        let _engine = testbed.start_engine(On::A, &[])?;
        on_one_host(testbed, Stack::Engine)
    }),
    setup("same-loopback", "loopback on an engine", |testbed| {
        let _engine = testbed.start_engine(On::A, &[])?;
        on_one_host(testbed, Stack::Loopback)
    }),
    setup("same", "same host, both inline", |testbed| {
        on_one_host(testbed, INLINE)
    }),
];

const fn setup(
    key: &'static str,
    title: &'static str,
    measure: fn(&Testbed) -> anyhow::Result<Values>,
) -> Setup {
    Setup {
        tools: &["iperf3"],
        ..Setup::new(key, title, measure)
    }
}

/// From host a to host b.
pub(super) fn over_veth(
    testbed: &Testbed,
    sender: Stack,
    receiver: Stack,
) -> anyhow::Result<Values> {
    over_veth_with(testbed, (sender, receiver), &[])
}

/// As `over_veth`, with more flags for the iperf3 that sends.
pub(super) fn over_veth_with(
    testbed: &Testbed,
    (sender, receiver): (Stack, Stack),
    flags: &[&str],
) -> anyhow::Result<Values> {
    let sender = testbed.placement(On::A, sender)?;
    stream_with(testbed, sender, testbed.placement(On::B, receiver)?, flags)
}

/// Both ends on host a.
fn on_one_host(testbed: &Testbed, stack: Stack) -> anyhow::Result<Values> {
    let sender = testbed.placement(On::A, stack)?;
    stream_with(testbed, sender, testbed.placement(On::A, stack)?, &[])
}

/// From an engine to the kernel of the same host, over a TAP interface between them.
fn over_tap(testbed: &Testbed) -> anyhow::Result<Values> {
    if !tools::missing(&["ip"]).is_empty() {
        return Err(Unavailable("ip (iproute2) is not installed".to_owned()).into());
    }
    let flags = ["--driver", "tap", "--nic", TAP, "--address", TAP_ENGINE];
    let _engine = testbed.start_engine(On::A, &flags)?;
    let mut command = testbed.host(On::A)?.command(tools::find("ip")?)?;
    command.args(["address", "add", TAP_KERNEL, "dev", TAP]);
    let interrupt = testbed.interrupt().clone();
    Program::start("ip", command)?
        .finish(std::time::Duration::from_secs(5), move || interrupt.came())?
        .success()?;
    let (address, _) = TAP_KERNEL
        .split_once('/')
        .context("invariant: an address with its prefix length")?;
    let receiver = testbed
        .placement(On::A, Stack::Kernel)?
        .reached_at(address.parse()?);
    let (engine, _) = TAP_ENGINE
        .split_once('/')
        .context("invariant: an address with its prefix length")?;
    // The destination is an address of the very host: only its own address takes a socket to the engine.
    stream_with(
        testbed,
        testbed.placement(On::A, Stack::Engine)?,
        receiver,
        &["-B", engine],
    )
}

fn stream_with(
    testbed: &Testbed,
    sender: Placement,
    receiver: Placement,
    extra: &[&str],
) -> anyhow::Result<Values> {
    let (address, port) = (receiver.address.to_string(), PORT.to_string());
    let line = ["iperf3", "-s", "-B", &address, "-p", &port, "--forceflush"];
    let mut server = testbed.serve(receiver, "Server listening", &line)?;
    // It counts whole seconds, and 0 is for ever.
    let seconds = testbed.scale().seconds.ceil().to_string();
    let line = ["iperf3", "-c", &address, "-p", &port, "-t", &seconds, "-J"];
    let finished = testbed.run(sender, &[&line[..], extra].concat())?;
    server.check_alive()?;
    let report: Value = serde_json::from_str(&finished.stdout).context("reading iperf3's JSON")?;
    let rate = report["end"]["sum_received"]["bits_per_second"].as_f64();
    let rate = rate.with_context(|| match report["error"].as_str() {
        Some(error) => format!("iperf3 over {INTERFACE}: {error}"),
        None => "iperf3 counted nothing".to_owned(),
    })?;
    Ok(vec![("rate", rate / 1e9)])
}
