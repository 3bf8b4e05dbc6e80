//! What was measured: runs by case, and what could not be.

use super::case::{Case, Ran};
use statistics::Summary;

/// Why a case has no values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Missing {
    /// It cannot be measured here.
    Skipped(String),
    /// A run went wrong; what others measured does not count.
    Failed(String),
}

struct Entry {
    case: Case,
    runs: Vec<(u32, Ran)>,
    missing: Option<Missing>,
}

/// Everything of one place and size.
pub struct Results(Vec<Entry>);

impl Results {
    /// Of these cases, none of which was measured.
    pub fn of(cases: Vec<Case>) -> Self {
        let entry = |case| Entry {
            case,
            runs: Vec::new(),
            missing: None,
        };
        Self(cases.into_iter().map(entry).collect())
    }

    /// How many cases there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn case(&self, index: usize) -> &Case {
        &self.0[index].case
    }

    pub fn add(&mut self, index: usize, run: u32, ran: Ran) {
        self.0[index].runs.push((run, ran));
    }

    /// It cannot be measured here.
    pub fn skip(&mut self, index: usize, why: String) {
        self.0[index].missing = Some(Missing::Skipped(why));
    }

    /// A run went wrong.
    pub fn fail(&mut self, index: usize, why: String) {
        self.0[index].missing = Some(Missing::Failed(why));
    }

    /// Whether there is no use in trying (again).
    pub fn is_over(&self, index: usize) -> bool {
        self.0[index].missing.is_some()
    }

    /// All cases in their order.
    pub fn iter(&self) -> impl Iterator<Item = (&Case, Option<&Missing>)> {
        let entries = self.0.iter();
        entries.map(|entry| (&entry.case, entry.missing.as_ref()))
    }

    /// The runs of a case that count.
    pub fn runs(&self, key: &str) -> &[(u32, Ran)] {
        let entry = self.0.iter().find(|entry| entry.case.key == key);
        match entry {
            Some(entry) if entry.missing.is_none() => &entry.runs,
            _ => &[],
        }
    }

    /// Rates of a case in Gbit/s.
    pub fn rate(&self, key: &str) -> Option<Summary> {
        let rates: Vec<f64> = self
            .runs(key)
            .iter()
            .map(|(_, ran)| ran.gbit_per_s)
            .collect();
        Summary::of(&rates)
    }

    /// Its processor time of both ends in seconds for 10^9 bytes.
    pub fn cpu(&self, key: &str) -> Option<Summary> {
        let runs = self.runs(key).iter();
        let times: Vec<f64> = runs.filter_map(|(_, ran)| ran.cpu_s_per_gb).collect();
        Summary::of(&times)
    }

    /// Rates of one case over those of another, within runs.
    pub fn ratio(&self, key: &str, other: &str) -> Option<Summary> {
        let others = self.runs(other);
        let ratio = |(run, ran): &(u32, Ran)| {
            let (_, other) = others.iter().find(|(number, _)| number == run)?;
            Some(ran.gbit_per_s / other.gbit_per_s)
        };
        let ratios: Vec<f64> = self.runs(key).iter().filter_map(ratio).collect();
        Summary::of(&ratios)
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::mover::case::Group;

    /// Cases with these rates in each run, at 0.1 s/GB.
    pub fn results(rates: &[(&str, Group, &[f64])]) -> Results {
        let case = |&(key, group, _): &(&str, Group, &[f64])| Case {
            key: key.to_owned(),
            title: format!("the case {key}"),
            group,
            tools: &[],
            stores: false,
            run: Box::new(|_| unreachable!("not run here")),
        };
        let mut results = Results::of(rates.iter().map(case).collect());
        for (index, (_, _, rates)) in rates.iter().enumerate() {
            for (run, rate) in (0..).zip(*rates) {
                let ran = Ran {
                    gbit_per_s: *rate,
                    cpu_s_per_gb: Some(0.1),
                    ..Ran::of(1, 1.0, None)
                };
                results.add(index, run, ran);
            }
        }
        results
    }

    #[test]
    fn ratios_are_taken_within_runs_and_failed_cases_have_no_values() {
        let rates = [
            ("a", Group::Own, &[10.0, 5.0, 10.0][..]),
            ("b", Group::Limit, &[20.0, 10.0, 10.0]),
        ];
        let mut results = results(&rates);
        let ratio = results.ratio("a", "b").unwrap();
        assert!((ratio.median - 0.5).abs() < 1e-9 && (ratio.max - 1.0).abs() < 1e-9);
        results.fail(0, "no".to_owned());
        assert!(results.rate("a").is_none() && results.ratio("a", "b").is_none());
    }
}
