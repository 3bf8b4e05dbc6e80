//! `shunt bench matrix`: what each feature of a device is worth, each off and all on, on both stacks.

use lab::{INTERFACE, Program};

use super::{
    asked::Asked,
    bulk, notify,
    row::{Row, from},
    samples::Values,
    setup::{Plan, Setup},
    testbed::{On, Stack, Testbed},
};
use crate::{apps::case::Better, tools};

/// What is measured.
pub fn plan() -> Plan {
    let row = |unit, better, quantity| {
        move |[what, kernel, shunt]: [&'static str; 3]| Row {
            what,
            unit,
            better,
            kernel: Some(from(kernel, quantity)),
            shunt: from(shunt, quantity),
        }
    };
    let rates = RATES.map(row("Gbit/s", Better::Higher, "rate"));
    let round_trips = ROUND_TRIPS.map(row("µs", Better::Lower, "p50"));
    let requests = REQUESTS.map(row("requests/s", Better::Higher, "rate"));
    Plan {
        setups: SETUPS.to_vec(),
        rows: rates
            .into_iter()
            .chain(round_trips)
            .chain(requests)
            .collect(),
        notes: vec![
            "rates: one stream, both ends of Shunt inline, both ends of the kernel's on the kernel; a feature is off at both ends, there by ethtool, here by a flag of the engine",
            "round trips: a client on the kernel alone with a server on each stack; no busy polling: --spin-us 0 inline, and the kernel's epoll_wait sleeps in both rows",
            "zero-copy: iperf3 -Z sends by sendfile; that of AF_XDP needs a card whose driver has it (shunt doctor IFACE), which no virtual interface has",
            "moderation: 32 clients on the kernel ask a server beside an engine, told of each event or by --notify every=8,us=100; the kernel of a virtual interface has none, so both rows stand beside its one",
        ],
    }
}

const RATES: [[&str; 3]; 5] = [
    ["one stream, every feature on", "on", "on-inline"],
    ["one stream, TSO off", "tso", "tso-inline"],
    ["one stream, GRO off", "gro", "gro-inline"],
    [
        "one stream, checksums and TSO off",
        "checksum",
        "checksum-inline",
    ],
    [
        "one stream, zero-copy (sendfile)",
        "zero-copy",
        "zero-copy-inline",
    ],
];
const ROUND_TRIPS: [[&str; 3]; 2] = [
    ["round trip, busy polling on", "trip", "trip-spins"],
    ["round trip, busy polling off", "trip", "trip-sleeps"],
];

const REQUESTS: [[&str; 3]; 2] = [
    ["requests, moderation off", "asked", "each"],
    ["requests, moderation on", "asked", "every"],
];

const SETUPS: [Setup; 16] = [
    rate("on", "kernel", |testbed| kernel(testbed, &[])),
    rate("on-inline", "inline", |testbed| inline(testbed, &[])),
    rate("tso", "kernel, TSO off", |testbed| {
        kernel(testbed, &["tso"])
    }),
    rate("tso-inline", "inline, TSO off", |testbed| {
        inline(testbed, &["--no-tso"])
    }),
    rate("gro", "kernel, GRO off", |testbed| {
        kernel(testbed, &["gro"])
    }),
    rate("gro-inline", "inline, GRO off", |testbed| {
        inline(testbed, &["--no-gro"])
    }),
    rate("checksum", "kernel, checksums off", |testbed| {
        kernel(testbed, &["tx", "rx", "tso"])
    }),
    rate("checksum-inline", "inline, checksums off", |testbed| {
        inline(testbed, &["--no-checksum-offload"])
    }),
    rate("zero-copy", "kernel, sendfile", |testbed| {
        sendfile(testbed, Stack::Kernel)
    }),
    rate("zero-copy-inline", "inline, sendfile", |testbed| {
        sendfile(testbed, Stack::InlineWith(&[]))
    }),
    Setup::new("asked", "requests, kernel", |testbed| {
        notify::measure(testbed, Stack::Kernel)
    }),
    Setup::new("each", "requests, told of each event", |testbed| {
        notify::engine(testbed, "each")
    }),
    Setup::new("every", "requests, moderated", |testbed| {
        notify::engine(testbed, "every=8,us=100")
    }),
    Setup::new("trip", "round trip, kernel", |testbed| {
        round_trip(testbed, Stack::Kernel)
    }),
    Setup::new("trip-spins", "round trip, inline", |testbed| {
        round_trip(testbed, Stack::Inline("af_packet"))
    }),
    Setup::new("trip-sleeps", "round trip, inline, no spin", |testbed| {
        round_trip(testbed, Stack::InlineWith(&["--spin-us", "0"]))
    }),
];

const fn rate(
    key: &'static str,
    title: &'static str,
    measure: fn(&Testbed) -> anyhow::Result<Values>,
) -> Setup {
    Setup {
        tools: &["iperf3", "ethtool"],
        ..Setup::new(key, title, measure)
    }
}

fn round_trip(testbed: &Testbed, stack: Stack) -> anyhow::Result<Values> {
    let seen = Asked::start(testbed, stack, 0)?.by(1)?;
    Ok(vec![("p50", seen.p50_us)])
}

fn inline(testbed: &Testbed, flags: &'static [&'static str]) -> anyhow::Result<Values> {
    bulk::over_veth(testbed, Stack::InlineWith(flags), Stack::InlineWith(flags))
}

fn sendfile(testbed: &Testbed, stack: Stack) -> anyhow::Result<Values> {
    bulk::over_veth_with(testbed, (stack, stack), &["-Z"])
}

fn kernel(testbed: &Testbed, features: &[&'static str]) -> anyhow::Result<Values> {
    let _off = Off::switch(testbed, features)?;
    bulk::over_veth(testbed, Stack::Kernel, Stack::Kernel)
}

/// Features of both interfaces that are off until this is dropped.
struct Off<'t> {
    testbed: &'t Testbed,
    features: Vec<&'static str>,
}

impl<'t> Off<'t> {
    fn switch(testbed: &'t Testbed, features: &[&'static str]) -> anyhow::Result<Self> {
        let off = Self {
            testbed,
            features: features.to_vec(),
        };
        off.set("off")?;
        Ok(off)
    }

    fn set(&self, to: &str) -> anyhow::Result<()> {
        if self.features.is_empty() {
            return Ok(());
        }
        for on in [On::A, On::B] {
            let mut command = self.testbed.host(on)?.command(tools::find("ethtool")?)?;
            command.args(["-K", INTERFACE]);
            for feature in &self.features {
                command.args([feature, to]);
            }
            let interrupt = self.testbed.interrupt().clone();
            Program::start("ethtool", command)?
                .finish(std::time::Duration::from_secs(5), move || interrupt.came())?
                .success()?;
        }
        Ok(())
    }
}

impl Drop for Off<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.set("on") {
            self.testbed.say(&format!("features stay off: {error:#}"));
        }
    }
}
