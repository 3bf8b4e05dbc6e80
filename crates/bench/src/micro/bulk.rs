//! `shunt bench bulk`: one stream of iperf3 as fast as it goes.

use anyhow::Context as _;
use lab::INTERFACE;
use serde_json::Value;

use super::{
    samples::Values,
    setup::{Plan, Setup},
    testbed::{On, Placement, Stack, Testbed, Unavailable},
};
use crate::tools;

const PORT: u16 = 5201;
/// The TAP interface, and the addresses of the kernel and of the engine on it.
const TAP: &str = "shunt0";
const TAP_KERNEL: [u8; 4] = [10, 9, 0, 1];
const TAP_ENGINE: &str = "10.9.0.2";

pub fn plan() -> Plan {
    let mut setups = Setup::all(SETUPS, measure);
    setups
        .iter_mut()
        .for_each(|setup| setup.tools = &["iperf3"]);
    Plan::of(
        ROWS,
        setups,
        &[
            "what iperf3's receiver counted; inline unless an engine is named",
            "an engine with a process of its own is the third on two processors",
        ],
    )
}

const ROWS: &str = "
Shunt to kernel over veth                | Gbit/s ↑ | kernel   | out           | rate
Shunt to kernel over TAP (engine)        | Gbit/s ↑ | kernel   | tap           | rate
kernel to Shunt                          | Gbit/s ↑ | kernel   | in            | rate
Shunt to Shunt over veth                 | Gbit/s ↑ | kernel   | both          | rate
same host, both inline, against loopback | Gbit/s ↑ | loopback | same          | rate
same host, both inline, against veth     | Gbit/s ↑ | kernel   | same          | rate
same host, one engine, against loopback  | Gbit/s ↑ | loopback | same-engine   | rate
same host, one engine, against veth      | Gbit/s ↑ | kernel   | same-engine   | rate
same host, --loopback, against loopback  | Gbit/s ↑ | loopback | same-loopback | rate
Shunt (engine) to kernel over veth       | Gbit/s ↑ | kernel   | engine-out    | rate
kernel to Shunt (engine)                 | Gbit/s ↑ | kernel   | engine-in     | rate
";

const SETUPS: &str = "
kernel        | kernel to kernel over veth | veth      | kernel
out           | inline to kernel           | veth      | inline | kernel
in            | kernel to inline           | veth      | kernel | inline
both          | inline to inline           | veth      | inline
tap           | engine to kernel over TAP  | tap       | engine | kernel
engine-out    | engine to kernel           | veth      | engine | kernel
engine-in     | kernel to engine           | veth      | kernel | engine
loopback      | kernel loopback            | same host | kernel
same-engine   | same host, one engine      | same host | engine
same-loopback | loopback on an engine      | same host | loopback
same          | same host, both inline     | same host | inline
";

fn measure(testbed: &Testbed, setup: &Setup) -> anyhow::Result<Values> {
    let [sender, receiver] = setup.ends();
    match setup.what {
        "tap" => over_tap(testbed, sender),
        "same host" => stream(testbed, [(On::A, sender), (On::A, receiver)], &[]),
        _ => over_veth(testbed, [sender, receiver], &[]),
    }
}

/// From host a to host b, with more flags for the iperf3 that sends.
pub(super) fn over_veth(
    testbed: &Testbed,
    [sender, receiver]: [Stack; 2],
    flags: &[&str],
) -> anyhow::Result<Values> {
    stream(testbed, [(On::A, sender), (On::B, receiver)], flags)
}

fn stream(testbed: &Testbed, ends: [(On, Stack); 2], flags: &[&str]) -> anyhow::Result<Values> {
    let _engines = testbed.engines(ends)?;
    let [sender, receiver] = ends.map(|(on, stack)| testbed.placement(on, stack));
    stream_between(testbed, sender?, receiver?, flags)
}

/// From an engine to the kernel of the same host, over a TAP interface between them.
fn over_tap(testbed: &Testbed, engine: Stack) -> anyhow::Result<Values> {
    if !tools::missing(&["ip"]).is_empty() {
        return Err(Unavailable("ip (iproute2) is not installed".to_owned()).into());
    }
    let address = format!("{TAP_ENGINE}/24");
    let flags = ["--driver", "tap", "--nic", TAP, "--address", &address];
    let _engine = testbed.start_engine(On::A, &flags)?;
    let kernel = std::net::Ipv4Addr::from(TAP_KERNEL);
    let words = ["address", "add", &format!("{kernel}/24"), "dev", TAP];
    testbed.administer(On::A, "ip", &words)?;
    let receiver = testbed.placement(On::A, Stack::Kernel)?.reached_at(kernel);
    let sender = testbed.placement(On::A, engine)?;
    // The destination is an address of the very host: only its own address takes a socket to the engine.
    stream_between(testbed, sender, receiver, &["-B", TAP_ENGINE])
}

fn stream_between(
    testbed: &Testbed,
    sender: Placement,
    receiver: Placement,
    extra: &[&str],
) -> anyhow::Result<Values> {
    let (address, port) = (receiver.address.to_string(), PORT.to_string());
    let line = ["iperf3", "-s", "-B", &address, "-p", &port, "--forceflush"];
    let mut server = testbed.serve(receiver, "Server listening", &line)?;
    // It counts whole seconds, and 0 is for ever.
    let seconds = testbed.scale.seconds.ceil().to_string();
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
