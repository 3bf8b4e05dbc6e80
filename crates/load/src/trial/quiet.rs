//! Which runs of a measurement count: those beside which nobody else used the processors. Whether a run fits a
//! prediction has no part in it.

/// A run beside which others used more than this part of a processor was disturbed.
pub const OTHERS: f64 = 0.1;

/// What came of some runs.
#[derive(Debug)]
pub struct QuietRuns<T> {
    /// As many as were wanted, the least disturbed ones.
    pub runs: Vec<T>,
    /// Runs that do not count.
    pub disturbed: usize,
    /// The part of a processor that others used beside those that count, at most.
    pub others: f64,
}

/// Makes runs until so many were not disturbed; where that does not come, `more` runs later the least disturbed ones
/// count. A run says what part of a processor others used.
pub fn quiet<T>(
    wanted: usize,
    more: usize,
    mut run: impl FnMut() -> anyhow::Result<(T, f64)>,
) -> anyhow::Result<QuietRuns<T>> {
    let mut runs: Vec<(T, f64)> = Vec::new();
    let undisturbed = |runs: &[(T, f64)]| runs.iter().filter(|run| run.1 <= OTHERS).count();
    while undisturbed(&runs) < wanted && runs.len() < wanted + more {
        runs.push(run()?);
    }
    let disturbed = runs.len().saturating_sub(wanted);
    runs.sort_by(|a, b| a.1.total_cmp(&b.1));
    runs.truncate(wanted);
    let others = runs.last().map_or(0.0, |run| run.1);
    Ok(QuietRuns {
        runs: runs.into_iter().map(|run| run.0).collect(),
        disturbed,
        others,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_that_others_disturb_do_not_count() {
        let mut runs = [(1, 0.8), (9, 0.5), (4, 0.0)].into_iter();
        let found = quiet(5, 15, || Ok(runs.next().unwrap_or((5, 0.01)))).unwrap();
        assert_eq!((found.disturbed, found.runs), (2, vec![4, 5, 5, 5, 5]));
        assert!(found.others <= OTHERS);
    }

    #[test]
    fn where_nobody_leaves_the_least_disturbed_runs_count() {
        let mut others = 2.0;
        let found = quiet(5, 15, || {
            others -= 0.05;
            Ok((others, others))
        });
        let found = found.unwrap();
        assert_eq!(found.disturbed, 15);
        assert!(found.others > OTHERS && found.others < 1.3, "{found:?}");
        assert!(found.runs.iter().all(|run| *run < 1.3), "{found:?}");
    }
}
