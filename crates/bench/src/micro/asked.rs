//! A server that computes a little for each request, and clients that wait for each answer: what several commands set up.

use std::time::Duration;

use lab::Program;
use load::requests::Seen;

use super::{
    setup::Setup,
    testbed::{LOAD, On, Placement, Server, Stack, Testbed},
};

const PORT: u16 = 11114;
/// Bytes of a request and of its answer.
const BYTES: &str = "--request-bytes=64";
const ANSWER_BYTES: &str = "--response-bytes=64";

/// A server on host a that is asked from the kernel of host b.
pub struct Asked<'t> {
    testbed: &'t Testbed,
    /// Ended before its engine.
    server: Server,
    _engines: Vec<Program>,
    address: String,
}

impl<'t> Asked<'t> {
    /// Starts the server on the first stack of a setup.
    pub fn start(testbed: &'t Testbed, setup: &Setup, compute_us: u32) -> anyhow::Result<Self> {
        let [stack, _] = setup.ends();
        let engines = testbed.engines([(On::A, stack)])?;
        let started = Self::start_at(testbed, testbed.placement(On::A, stack)?, compute_us)?;
        Ok(Self {
            _engines: engines,
            ..started
        })
    }

    /// As `start`, at a place whose engine runs.
    pub fn start_at(
        testbed: &'t Testbed,
        placement: Placement,
        compute_us: u32,
    ) -> anyhow::Result<Self> {
        let address = format!("--address={}", placement.at(PORT));
        let compute = format!("--compute-ns={}", u64::from(compute_us) * 1000);
        let line = [LOAD, "serve", &address, BYTES, ANSWER_BYTES, &compute];
        let server = testbed.serve_answering(placement, PORT, &line)?;
        Ok(Self {
            testbed,
            server,
            _engines: Vec::new(),
            address,
        })
    }

    /// Lets so many clients ask, each one request at a time.
    pub fn by(&mut self, clients: u32) -> anyhow::Result<Seen> {
        let from = self.testbed.placement(On::B, Stack::Kernel)?;
        let [seen] = Self::together(self.testbed, from, clients, [self])?;
        Ok(seen)
    }

    /// Lets so many clients ask each of these servers at the same time.
    pub fn together<const N: usize>(
        testbed: &Testbed,
        from: Placement,
        clients: u32,
        servers: [&mut Self; N],
    ) -> anyhow::Result<[Seen; N]> {
        let time = Duration::from_secs_f64(testbed.scale.seconds);
        let connections = format!("--connections={clients}");
        let time = format!("--milliseconds={}", time.as_millis());
        let line = |server: &Self| {
            let words = [LOAD, "ask", &server.address, BYTES, ANSWER_BYTES];
            let words = words.into_iter().chain([&*connections, &*time]);
            words.map(str::to_owned).collect::<Vec<_>>()
        };
        let lines: Vec<Vec<String>> = servers.iter().map(|server| line(server)).collect();
        let seen: Vec<Seen> = testbed.ask_together(from, &lines)?;
        for server in servers {
            server.server.check_alive()?;
        }
        let seen = <[Seen; N]>::try_from(seen);
        seen.map_err(|_| anyhow::anyhow!("invariant: each client has said what it saw"))
    }

    /// Sends so many requests each second for the time of a measurement; how long that took.
    pub fn paced(&mut self, per_ms: u32) -> anyhow::Result<f64> {
        let seconds = self.testbed.scale.seconds;
        let (per_ms, time) = (
            format!("--per-ms={per_ms}"),
            format!("--milliseconds={:.0}", seconds * 1e3),
        );
        let line = [LOAD, "pace", &self.address, BYTES, &per_ms, &time];
        let client = self.testbed.placement(On::B, Stack::Kernel)?;
        let took_s = self.testbed.ask(client, &line)?;
        self.server.check_alive()?;
        Ok(took_s)
    }
}
