//! What makes figures doubtful, each with the next step.

use super::Report;
use crate::{environment::times, probe::Answer};

/// A thread that was off its processor for more than this part of the time measured the machine and not the network.
const WAITED_PART: f64 = 0.01;
/// Processor time that a hypervisor took, as a part of the time.
const STOLEN_PART: f64 = 0.01;
/// The sender's lateness, as a part of the time between probes.
const LATE_PART: f64 = 0.1;
/// A counter that is off by more is no clock.
const DRIFT_PPM: f64 = 100.0;

/// The warnings of several reports by what they say first, with the number of those that have it.
pub fn by_kind<'r>(
    reports: impl Iterator<Item = &'r Report> + Clone,
    measured: &str,
) -> Vec<String> {
    let mut kinds: Vec<(&str, usize)> = Vec::new();
    for warning in reports.clone().flat_map(|report| &report.warnings) {
        let kind = warning.split([':', '(']).next().unwrap_or(warning).trim();
        match kinds.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, count)) => *count += 1,
            None => kinds.push((kind, 1)),
        }
    }
    let total = reports.count();
    let told = kinds
        .iter()
        .map(|(kind, count)| format!("in {count} of {total} {measured} {kind} (--json has each)"));
    told.collect()
}

/// The warnings of a report.
pub fn of(report: &Report) -> Vec<String> {
    let mut warnings = Vec::new();
    let contention = &report.contention;
    let time_us = report.seconds * 1e6;
    let waited_us = contention.waited_us.unwrap_or(0.0);
    if waited_us > WAITED_PART * time_us {
        warnings.push(format!(
            "the machine was busy: this thread waited {waited_us:.0} µs of {time_us:.0} for a processor, and was taken off its own {}; \
             give it one with --rt, or --cpu N and nothing else there",
            times(contention.preemptions)
        ));
    }
    if let Some(stolen_s) = contention.stolen_s
        && stolen_s > STOLEN_PART * report.seconds
    {
        warnings.push(format!(
            "a hypervisor gave {stolen_s:.2} s of this machine's processors to others: the tail is theirs; repeat when it is quiet"
        ));
    }
    if let Some(found) = &report.round_trip
        && found
            .deviation_us
            .is_some_and(|deviation| deviation > found.mean_us)
    {
        warnings.push(
            "the deviation is larger than the mean: the mean says little; look at the percentiles, and take more with --count"
                .to_owned(),
        );
    }
    if let (Some(late), Some(per_s)) = (&report.lateness, report.sending.rate_per_s) {
        let interval_us = 1e6 / per_s;
        let (name, us) = match late.percentile_us(99.0) {
            Some(us) => ("p99", us),
            None => ("max", late.max_us),
        };
        if us > LATE_PART * interval_us {
            warnings.push(format!(
                "the sender was late ({name} {us:.1} µs, a probe was due every {interval_us:.1} µs): its lateness is in the \
                 round trips; use --spin, --rt or a lower --rate"
            ));
        }
    }
    if report.counts.lost > 0 && report.counts.answers.contains_key(&Answer::PortUnreachable) {
        warnings.push(
            "hosts limit how many ICMP errors they send (Linux: net.ipv4.icmp_ratelimit, one a second for each peer after a few): \
             what is lost here may be that; a larger --interval shows it, and `shunt echo` there answers all"
                .to_owned(),
        );
    }
    if let Some(ppm) = report.environment.clock.drift_ppm
        && ppm.abs() > DRIFT_PPM
    {
        warnings.push(format!("the time-stamp counter was off by {ppm:+.0} ppm over this run: take the figures as that exact"));
    }
    warnings
}
