//! What this machine allows whatever a stack does: measured once, before everything else.

use std::{hint::black_box, process::Command, time::Instant};

use anyhow::Context;
use load::{interrupt::Interrupt, trial::Say};
use serde::Serialize;

use super::part::Part;
use crate::cores::CoreDistance;
use crate::micro::driver::Ping;

/// A limit beside a row.
#[derive(Debug, Clone, Serialize)]
pub struct Limit {
    pub what: String,
    pub value: f64,
    pub unit: &'static str,
}

/// Limits of this machine.
#[derive(Debug)]
pub struct Limits {
    /// A word to another processor and back.
    cache_line_us: Option<f64>,
    /// A frame to the other host of a lab and back, by packet sockets that are asked again and again.
    frames_us: Option<f64>,
    /// One copy of bytes that lie in a cache.
    copy_gbit_per_s: f64,
    /// A system call that does nothing.
    call_ns: f64,
}

/// Bytes that are copied at once: a piece of what a stack moves, which caches hold.
const COPIED_BYTES: usize = 256 << 10;
/// Copies of which the best counts: others were disturbed.
const COPIES: usize = 2000;
const CALLS: u32 = 200_000;

impl Limits {
    /// Measures them; takes some seconds.
    ///
    /// # Errors
    /// Somebody asked this process to end.
    pub fn measure(interrupt: &Interrupt, say: &Say) -> anyhow::Result<Self> {
        say.say("limits of this machine");
        let frames_us = match frames_us() {
            Ok(us) => Some(us),
            Err(error) => {
                interrupt.check()?;
                say.say(&format!("limit of frames: not measured: {error:#}"));
                None
            }
        };
        interrupt.check()?;
        Ok(Self {
            cache_line_us: CoreDistance::measure().map(|far| far.nearest_ns / 1e3),
            frames_us,
            copy_gbit_per_s: copy_gbit_per_s(),
            call_ns: call_ns(),
        })
    }

    /// The one that a row cannot pass.
    pub fn of(&self, part: Part, row: &str) -> Option<Limit> {
        let limit = |what: &str, value: f64, unit: &'static str| Limit {
            what: what.to_owned(),
            value,
            unit,
        };
        let is_on_one_host = row.contains("same host");
        match part {
            Part::Latency if is_on_one_host => {
                let us = self.cache_line_us?;
                Some(limit(
                    "a cache line to another processor and back",
                    us,
                    "µs",
                ))
            }
            Part::Latency => {
                let us = self.frames_us?;
                Some(limit("frames by packet sockets, spinning", us, "µs"))
            }
            Part::Bulk => {
                let rate = self.copy_gbit_per_s;
                Some(limit("one copy within the cache", rate, "Gbit/s"))
            }
            Part::Calls | Part::Cpu if row.contains("send(2)") || row.contains("recv(2)") => {
                Some(limit("an empty system call", self.call_ns, "ns"))
            }
            _ => None,
        }
    }
}

fn frames_us() -> anyhow::Result<f64> {
    let own = lab::own_binary();
    let words = "ping --raw --spin --count 20000 --warm-up 1000 --json";
    let ended = Command::new(own)
        .args(words.split(' '))
        .output()
        .context("starting shunt ping --raw")?;
    let said = || String::from_utf8_lossy(&ended.stderr).trim().to_owned();
    let ping: Ping = serde_json::from_slice(&ended.stdout).with_context(said)?;
    ping.median_us()
}

fn copy_gbit_per_s() -> f64 {
    let from = vec![1_u8; COPIED_BYTES];
    let mut to = vec![0_u8; COPIED_BYTES];
    let copies = (0..COPIES).map(|_| {
        let began = Instant::now();
        to.copy_from_slice(black_box(&from));
        black_box(&mut to);
        began.elapsed().as_secs_f64()
    });
    let best_s = copies.fold(f64::INFINITY, f64::min);
    COPIED_BYTES as f64 * 8.0 / best_s / 1e9
}

fn call_ns() -> f64 {
    let began = Instant::now();
    for _ in 0..CALLS {
        black_box(rustix::process::getppid());
    }
    began.elapsed().as_secs_f64() * 1e9 / f64::from(CALLS)
}
