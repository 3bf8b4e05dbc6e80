//! `shunt bench matrix`: what each feature of a device is worth, each off and all on, on both stacks.

use lab::INTERFACE;

use super::{
    asked::Asked,
    bulk, notify,
    samples::Values,
    setup::{Plan, Setup},
    testbed::{On, Testbed},
};

pub fn plan() -> Plan {
    let mut setups = Setup::all(STREAMS, stream);
    setups
        .iter_mut()
        .for_each(|setup| setup.tools = &["iperf3", "ethtool"]);
    setups.extend(Setup::all(REQUESTS, notify::measure));
    setups.extend(Setup::all(ROUND_TRIPS, round_trip));
    Plan::of(
        ROWS,
        setups,
        &[
            "rates: one stream, both ends of Shunt inline, both ends of the kernel's on the kernel; a feature is off at both ends, there by ethtool, here by a flag of the engine",
            "round trips: a client on the kernel alone with a server on each stack; no busy polling: --spin-us 0 inline, and the kernel's epoll_wait sleeps in both rows",
            "zero-copy: iperf3 -Z sends by sendfile; that of AF_XDP needs a card whose driver has it (shunt doctor IFACE), which no virtual interface has",
            "moderation: 32 clients on the kernel ask a server beside an engine, told of each event or by --notify every=8,us=100; the kernel of a virtual interface has none, so both rows stand beside its one",
        ],
    )
}

const ROWS: &str = "
one stream, every feature on       | Gbit/s ↑     | on        | on-inline        | rate
one stream, TSO off                | Gbit/s ↑     | tso       | tso-inline       | rate
one stream, GRO off                | Gbit/s ↑     | gro       | gro-inline       | rate
one stream, checksums and TSO off  | Gbit/s ↑     | checksum  | checksum-inline  | rate
one stream, zero-copy (sendfile)   | Gbit/s ↑     | zero-copy | zero-copy-inline | rate
round trip, busy polling on        | µs ↓         | trip      | trip-spins       | p50
round trip, busy polling off       | µs ↓         | trip      | trip-sleeps      | p50
requests, moderation off           | requests/s ↑ | asked     | each             | rate
requests, moderation on            | requests/s ↑ | asked     | every            | rate
";

/// With the features that ethtool switches off, or the flags of iperf3.
const STREAMS: &str = "
on               | kernel                |           | kernel
on-inline        | inline                |           | inline
tso              | kernel, TSO off       | tso       | kernel
tso-inline       | inline, TSO off       |           | inline --no-tso
gro              | kernel, GRO off       | gro       | kernel
gro-inline       | inline, GRO off       |           | inline --no-gro
checksum         | kernel, checksums off | tx rx tso | kernel
checksum-inline  | inline, checksums off |           | inline --no-checksum-offload
zero-copy        | kernel, sendfile      | -Z        | kernel
zero-copy-inline | inline, sendfile      | -Z        | inline
";
const REQUESTS: &str = "
asked | requests, kernel             | | kernel
each  | requests, told of each event | | engine --notify each
every | requests, moderated          | | engine --notify every=8,us=100
";
const ROUND_TRIPS: &str = "
trip        | round trip, kernel          | | kernel
trip-spins  | round trip, inline          | | inline
trip-sleeps | round trip, inline, no spin | | inline --spin-us 0
";

fn round_trip(testbed: &Testbed, setup: &Setup) -> anyhow::Result<Values> {
    let seen = Asked::start(testbed, setup, 0)?.by(1)?;
    Ok(vec![("p50", seen.p50_us)])
}

fn stream(testbed: &Testbed, setup: &Setup) -> anyhow::Result<Values> {
    let words = setup.what.split_ascii_whitespace();
    let (flags, features): (Vec<&str>, _) = words.partition(|word| word.starts_with('-'));
    let _off = Off::switch(testbed, features)?;
    bulk::over_veth(testbed, setup.ends(), &flags)
}

/// Features of both interfaces that are off until this is dropped.
struct Off<'t> {
    testbed: &'t Testbed,
    features: Vec<&'static str>,
}

impl<'t> Off<'t> {
    fn switch(testbed: &'t Testbed, features: Vec<&'static str>) -> anyhow::Result<Self> {
        let off = Self { testbed, features };
        off.set("off")?;
        Ok(off)
    }

    fn set(&self, to: &str) -> anyhow::Result<()> {
        if self.features.is_empty() {
            return Ok(());
        }
        let mut words = vec!["-K", INTERFACE];
        words.extend(self.features.iter().flat_map(|feature| [*feature, to]));
        self.testbed.administer(On::A, "ethtool", &words)?;
        self.testbed.administer(On::B, "ethtool", &words)
    }
}

impl Drop for Off<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.set("on") {
            self.testbed.say(&format!("features stay off: {error:#}"));
        }
    }
}
