//! How far the processors were from each other in each run. The host of a virtual machine moves them at any time, and what goes through their
//! caches takes several times as long where they share none: runs that met near processors tell nothing of those that met far ones.

use output::Table;
use serde::Serialize;
use statistics::Summary;

use crate::{
    cores::CoreDistance,
    unit::{number, ratio_figure},
};

/// Runs whose processors were more than so many times as far from each other are told apart.
const MOVED: f64 = 2.0;

/// One value, and the round trip of a cache line between two processors while it was measured.
pub type Run = (f64, Option<f64>);

/// Makes a run, with what it was meanwhile. `None`: the processors were moved, or there are so many that nobody knows where a program runs.
pub fn beside<T>(run: impl FnOnce() -> T) -> (T, Option<f64>) {
    let before_ns = CoreDistance::of_few();
    let found = run();
    (found, during(before_ns, CoreDistance::of_few()))
}

fn during(before_ns: Option<f64>, after_ns: Option<f64>) -> Option<f64> {
    let range = Range::of([before_ns?, after_ns?])?;
    let is_one = range.limit_ns().is_none();
    is_one.then(|| f64::midpoint(range.from_ns, range.to_ns))
}

/// The least and the most of some distances, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Range {
    pub from_ns: f64,
    pub to_ns: f64,
}

impl Range {
    /// `None`: no distance was measured.
    pub fn of(distances_ns: impl IntoIterator<Item = f64>) -> Option<Self> {
        distances_ns
            .into_iter()
            .fold(None, |range: Option<Self>, ns| {
                Some(Self {
                    from_ns: range.map_or(ns, |range| range.from_ns.min(ns)),
                    to_ns: range.map_or(ns, |range| range.to_ns.max(ns)),
                })
            })
    }

    /// As it is now, between the nearest processors and the farthest.
    pub fn now() -> Option<Self> {
        let far = CoreDistance::measure()?;
        Range::of([far.nearest_ns, far.farthest_ns])
    }

    /// Between near and far, where the processors were moved.
    pub fn limit_ns(self) -> Option<f64> {
        (self.to_ns > MOVED * self.from_ns).then(|| (self.from_ns * self.to_ns).sqrt())
    }

    /// For a sentence.
    pub fn text(self) -> String {
        let [from, to] = [self.from_ns, self.to_ns].map(|ns| format!("{ns:.0}"));
        match from == to {
            true => from,
            false => format!("{from} to {to}"),
        }
    }
}

/// What a row is where the processors are near each other, or far.
#[derive(Debug, Serialize)]
pub struct ByDistance {
    distance: Range,
    kernel: Option<Summary>,
    shunt: Option<Summary>,
    /// Median of Shunt over median of the kernel.
    ratio: Option<f64>,
}

/// The runs of both sides below the limit and beyond it.
pub fn split(kernel: &[Run], shunt: &[Run], limit_ns: f64) -> Vec<ByDistance> {
    let of = |is_near: bool| {
        let those = |runs: &[Run]| -> Vec<(f64, f64)> {
            let known = runs.iter().filter_map(|(value, ns)| Some((*value, (*ns)?)));
            known
                .filter(|(_, ns)| (*ns < limit_ns) == is_near)
                .collect()
        };
        let (kernel, shunt) = (those(kernel), those(shunt));
        let distance = Range::of(kernel.iter().chain(&shunt).map(|(_, ns)| *ns))?;
        let summary = |runs: Vec<(f64, f64)>| {
            let values: Vec<f64> = runs.into_iter().map(|(value, _)| value).collect();
            Summary::of(&values)
        };
        let (kernel, shunt) = (summary(kernel), summary(shunt));
        let medians = kernel.as_ref().zip(shunt.as_ref());
        let ratio = medians.map(|(kernel, shunt)| shunt.median / kernel.median);
        Some(ByDistance {
            distance,
            kernel,
            shunt,
            ratio,
        })
    };
    [true, false].into_iter().filter_map(of).collect()
}

impl ByDistance {
    fn cells(&self, row: &str) -> [String; 7] {
        let side = |of: &Option<Summary>| {
            of.as_ref().map_or(["-".to_owned(), "0".to_owned()], |of| {
                [number(of.median), of.samples.len().to_string()]
            })
        };
        let ([kernel, kernel_runs], [shunt, shunt_runs]) = (side(&self.kernel), side(&self.shunt));
        [
            row.to_owned(),
            self.distance.text(),
            kernel,
            kernel_runs,
            shunt,
            shunt_runs,
            self.ratio.map_or("-".to_owned(), ratio_figure),
        ]
    }
}

/// What rows are near and far, by their names: those of which both sides met the one or the other. Nothing where the processors were not moved.
pub fn text<'r>(rows: impl Iterator<Item = (String, &'r [ByDistance])>) -> String {
    let mut table = Table::new(
        "row | a cache line there and back, ns | kernel | runs | Shunt | runs | Shunt/kernel",
    );
    let mut is_empty = true;
    for (name, parts) in rows {
        for part in parts.iter().filter(|part| part.ratio.is_some()) {
            is_empty = false;
            table.row(part.cells(&name));
        }
    }
    if is_empty {
        return String::new();
    }
    format!(
        "\nThe processors were moved between runs, as the host of a virtual machine does. Near each other and far from each other the rows are:\n\n{}",
        table.render()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_have_moved_where_they_were_twice_as_far_in_some_run() {
        let range = |ns: &[f64]| Range::of(ns.iter().copied()).unwrap();
        assert_eq!(range(&[60.0, 82.0, 55.0]).limit_ns(), None);
        assert_eq!(range(&[64.0, 400.0, 100.0]).limit_ns(), Some(160.0));
        assert_eq!(range(&[64.4, 400.0]).text(), "64 to 400");
        assert_eq!(range(&[64.4, 64.3]).text(), "64");
        assert_eq!(Range::of([]), None);
        assert_eq!(during(Some(60.0), Some(70.0)), Some(65.0));
        assert_eq!(during(Some(60.0), Some(390.0)), None);
        assert_eq!(during(None, Some(60.0)), None);
    }

    #[test]
    fn near_runs_are_held_against_near_ones_and_far_against_far() {
        let kernel = [(30.0, Some(60.0)), (32.0, Some(380.0)), (34.0, Some(70.0))];
        let shunt = [(12.0, Some(350.0)), (24.0, Some(55.0)), (99.0, None)];
        let [near, far] = &split(&kernel, &shunt, 160.0)[..] else {
            panic!("near and far")
        };
        assert_eq!(near.distance.text(), "55 to 70");
        assert_eq!((near.ratio, far.ratio), (Some(0.75), Some(0.375)));
        assert_eq!(near.kernel.as_ref().unwrap().samples, [30.0, 34.0]);
        let alone = split(&kernel[..1], &[], 160.0);
        assert!(alone.len() == 1 && alone[0].ratio.is_none());
    }
}
