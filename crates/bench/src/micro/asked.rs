//! A server that computes a little for each request, and clients that wait for each answer: what several commands set up.

use std::time::Duration;

use load::requests::Seen;
use serde::de::DeserializeOwned;

use super::testbed::{LOAD, On, Server, Stack, Testbed};

const PORT: u16 = 11114;
/// Bytes of a request and of its answer.
const BYTES: &str = "--request-bytes=64";
const ANSWER_BYTES: &str = "--response-bytes=64";

/// A server on host a that is asked from the kernel of host b.
pub struct Asked<'t> {
    testbed: &'t Testbed,
    server: Server,
    address: String,
}

impl<'t> Asked<'t> {
    /// Starts the server.
    pub fn start(testbed: &'t Testbed, stack: Stack, compute_us: u32) -> anyhow::Result<Self> {
        let placement = testbed.placement(On::A, stack)?;
        let address = format!("--address={}", placement.at(PORT));
        let compute = format!("--compute-ns={}", u64::from(compute_us) * 1000);
        let line = [LOAD, "serve", &address, BYTES, ANSWER_BYTES, &compute];
        let server = testbed.serve_answering(placement, PORT, &line)?;
        Ok(Self {
            testbed,
            server,
            address,
        })
    }

    /// Lets so many clients ask, each one request at a time.
    pub fn by(&mut self, clients: u32) -> anyhow::Result<Seen> {
        let time = Duration::from_secs_f64(self.testbed.scale().seconds);
        let connections = format!("--connections={clients}");
        let time = format!("--milliseconds={}", time.as_millis());
        let line = [
            LOAD,
            "ask",
            &self.address,
            BYTES,
            ANSWER_BYTES,
            &connections,
            &time,
        ];
        let seen = self.client(&line)?;
        self.server.check_alive()?;
        Ok(seen)
    }

    /// Sends so many requests each second for the time of a measurement; how long that took.
    pub fn paced(&mut self, per_ms: u32) -> anyhow::Result<f64> {
        let seconds = self.testbed.scale().seconds;
        let (per_ms, time) = (
            format!("--per-ms={per_ms}"),
            format!("--milliseconds={:.0}", seconds * 1e3),
        );
        let line = [LOAD, "pace", &self.address, BYTES, &per_ms, &time];
        let took_s = self.client(&line)?;
        self.server.check_alive()?;
        Ok(took_s)
    }

    fn client<T: DeserializeOwned>(&self, line: &[&str]) -> anyhow::Result<T> {
        let client = self.testbed.placement(On::B, Stack::Kernel)?;
        self.testbed.ask(client, line)
    }
}
