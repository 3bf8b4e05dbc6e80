//! What is measured at a resource: how busy it was, how long work waited for it, and Little's law
//! as a check of the bookkeeping itself.

use serde::Serialize;

use crate::{
    statistics::histogram::Histogram,
    time::{Ns, as_us},
};

/// Counts the work of one resource.
#[derive(Debug, Default)]
pub struct Meter {
    waits: Histogram,
    busy: Ns,
    done: u64,
    /// Work that is waiting or being done, since `changed`.
    inside: u64,
    changed: Ns,
    /// Integral of `inside` over time.
    work_time: u128,
    /// Sum of the times from arrival to departure of the work that left.
    stay_time: u128,
}

impl Meter {
    fn advance(&mut self, now: Ns) {
        self.work_time += u128::from(self.inside) * u128::from(now - self.changed);
        self.changed = now;
    }

    /// Work arrived.
    pub fn arrived(&mut self, now: Ns) {
        self.advance(now);
        self.inside += 1;
    }

    /// The resource began with work that had waited this long.
    pub fn began(&mut self, waited: Ns) {
        self.waits.add(waited);
    }

    /// The resource was busy for a while.
    pub fn busy(&mut self, length: Ns) {
        self.busy += length;
    }

    /// Work left that had arrived at `since`.
    pub fn left(&mut self, now: Ns, since: Ns) {
        self.advance(now);
        self.inside -= 1;
        self.done += 1;
        self.stay_time += u128::from(now - since);
    }

    /// The figures after a run that ended at `now`, of a resource with this many servers.
    pub fn report(&mut self, now: Ns, servers: usize) -> ResourceReport {
        self.advance(now);
        let span = now.max(1) as f64;
        // L = λW holds for what came and went; what is still inside has stayed without leaving.
        let law = self.stay_time as f64 / self.work_time.max(1) as f64;
        ResourceReport {
            utilisation: self.busy as f64 / span / servers.max(1) as f64,
            jobs: self.done,
            left_inside: self.inside,
            wait_mean_us: self.waits.mean() / 1e3,
            wait_p50_us: as_us(self.waits.quantile(0.5)),
            wait_p99_us: as_us(self.waits.quantile(0.99)),
            wait_p999_us: as_us(self.waits.quantile(0.999)),
            little_ratio: (self.inside == 0 && self.work_time > 0).then_some(law),
        }
    }
}

/// What a resource did in a run.
#[derive(Debug, Clone, Serialize)]
pub struct ResourceReport {
    /// Share of the run in which it was busy, per server.
    pub utilisation: f64,
    /// Pieces of work done.
    pub jobs: u64,
    /// Pieces of work not done when the run ended.
    pub left_inside: u64,
    /// Mean time before work began.
    pub wait_mean_us: f64,
    /// Middle of the times before work began.
    pub wait_p50_us: f64,
    /// 99th percentile of the times before work began.
    pub wait_p99_us: f64,
    /// 99.9th percentile of the times before work began.
    pub wait_p999_us: f64,
    /// λW / L, which Little's law puts at 1; none where work was left inside.
    pub little_ratio: Option<f64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_jobs_that_overlap_obey_littles_law() {
        let mut meter = Meter::default();
        meter.arrived(0);
        meter.began(0);
        meter.arrived(2_000);
        meter.busy(5_000);
        meter.left(5_000, 0);
        meter.began(3_000);
        meter.busy(1_000);
        meter.left(6_000, 2_000);
        let report = meter.report(10_000, 1);
        assert!((report.utilisation - 0.6).abs() < 1e-9);
        assert!((report.wait_mean_us - 1.5).abs() < 1e-9);
        assert_eq!(report.little_ratio, Some(1.0));
    }

    #[test]
    fn work_left_inside_withholds_the_law() {
        let mut meter = Meter::default();
        meter.arrived(0);
        let report = meter.report(10, 1);
        assert_eq!((report.left_inside, report.little_ratio), (1, None));
    }
}
