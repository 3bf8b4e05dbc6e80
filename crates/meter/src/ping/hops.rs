//! `--hops`: the routers on the way and their round trips, by hop limits that they use up (RFC 792, time exceeded).

use std::{
    collections::BTreeMap,
    net::IpAddr,
    process::ExitCode,
    sync::atomic::{AtomicBool, Ordering},
};

use anyhow::Context;
use output::Table;
use serde::Serialize;
use statistics::Distribution;

use super::{Arguments, single, status};
use crate::{
    probe::Answer,
    report::VERSION,
    session::{Counts, Progress, Session},
};

/// Probes for each hop where --count does not say.
const DEFAULT_COUNT: u64 = 5;
/// Hop limits that are tried where --ttl does not say.
const DEFAULT_HOPS: u8 = 30;
/// After so many silent hops there is nobody on the way any more.
const SILENT_MAX: u8 = 5;

#[derive(Debug, Serialize)]
struct Path {
    version: u32,
    target: String,
    address: Option<IpAddr>,
    hops: Vec<Hop>,
    /// The target answered.
    reached: bool,
}

#[derive(Debug, Serialize)]
struct Hop {
    hops: u8,
    counts: Counts,
    round_trip: Option<Distribution>,
}

/// Asks hop by hop.
pub fn execute(arguments: &Arguments, stop: &AtomicBool) -> anyhow::Result<ExitCode> {
    let mut request = single::request(arguments)?;
    request.plan.count = arguments.count.unwrap_or(DEFAULT_COUNT);
    request.plan.warm_up = 0;
    let clock = single::prepare(arguments)?;
    let subject = request.subject();
    let mut path = Path {
        version: VERSION,
        target: subject.target,
        address: subject.address,
        hops: Vec::new(),
        reached: false,
    };
    let mut silent = 0;
    for hops in 1..=arguments.ttl.unwrap_or(DEFAULT_HOPS) {
        // A socket for each hop: nothing that comes late from one is taken for the next one's.
        let mut probe = request.open()?;
        probe
            .set_hop_limit(hops)
            .with_context(|| format!("--hops: setting the hop limit {hops}"))?;
        let outcome = Session::new(request.plan, &clock, &Progress::default(), false)
            .run(probe.as_mut(), stop);
        path.reached = outcome
            .counts
            .answers
            .keys()
            .any(|answer| *answer != Answer::TimeExceeded);
        silent = if outcome.counts.received == 0 {
            silent + 1
        } else {
            0
        };
        let hop = Hop {
            hops,
            round_trip: outcome.round_trips.distribution(),
            counts: outcome.counts,
        };
        if !arguments.json {
            note!(
                "hop {hops}: {} of {} answered",
                hop.counts.received,
                hop.counts.sent
            );
        }
        path.hops.push(hop);
        if path.reached || silent == SILENT_MAX || stop.load(Ordering::Relaxed) {
            break;
        }
    }
    output::print_result(arguments.json, &path, || path.text())?;
    Ok(status(!path.reached))
}

impl Path {
    fn text(&self) -> String {
        let mut table =
            Table::new("hop | who | sent | received | min µs | mean µs | p50 µs | max µs");
        for hop in &self.hops {
            let found = hop.round_trip.as_ref();
            let us = |us: Option<f64>| us.map_or("-".to_owned(), |us| format!("{us:.1}"));
            table.row([
                hop.hops.to_string(),
                self.who(&hop.counts),
                hop.counts.sent.to_string(),
                hop.counts.received.to_string(),
                us(found.map(|found| found.min_us)),
                us(found.map(|found| found.mean_us)),
                us(found.and_then(Distribution::median_us)),
                us(found.map(|found| found.max_us)),
            ]);
        }
        let mut text = format!("the way to {}\n\n{}", self.target, table.render());
        if !self.reached {
            text += "failed: the target did not answer; more hops with --ttl, another kind with --udp or --icmp\n";
        }
        if self.reached && self.hops.iter().any(|hop| hop.counts.lost > 0) {
            text += "what routers did not answer need not be lost: most limit how often they say that a hop limit was used up\n";
        }
        for (reason, count) in self.hops.iter().flat_map(|hop| &hop.counts.errors) {
            text += &format!("error, {count} times: {reason}\n");
        }
        text
    }

    fn who(&self, counts: &Counts) -> String {
        let mut names: BTreeMap<String, u64> = BTreeMap::new();
        for (router, count) in &counts.routers {
            names.insert(router.to_string(), *count);
        }
        if names.is_empty() && counts.received > 0 {
            let target = self
                .address
                .map_or(self.target.clone(), |address| address.to_string());
            names.insert(target, counts.received);
        }
        if names.is_empty() {
            return "nobody answered".to_owned();
        }
        names.into_keys().collect::<Vec<String>>().join(" ")
    }
}
