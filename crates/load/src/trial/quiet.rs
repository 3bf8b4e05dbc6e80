//! Which runs of a measurement count, and how many are made: those beside which nobody else used the processors, until what is
//! wanted of them is known well enough. Whether a run fits a prediction has no part in it.
//!
//! Measurements that are to be set beside each other take turns, so that a machine that gets slower in between does so for
//! all of them.

/// A run beside which others used more than this part of a processor was disturbed.
pub const OTHERS: f64 = 0.1;
/// Runs that others may disturb before the least disturbed ones count, for each that is wanted.
const MOST_DISTURBED: usize = 2;

/// What came of some runs.
#[derive(Debug)]
pub struct QuietRuns<T> {
    /// The least disturbed ones, as many as were wanted.
    pub runs: Vec<T>,
    /// Runs that do not count.
    pub disturbed: usize,
    /// The part of a processor that others used beside those that count, at most.
    pub others: f64,
}

/// How many runs are wanted of one measurement.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<T> {
    /// At least so many that were not disturbed.
    pub least: usize,
    /// No more than so many.
    pub most: usize,
    /// Whether those that were not disturbed tell enough.
    pub is_enough: fn(&[&T]) -> bool,
}

impl<T> Wanted<T> {
    /// Exactly so many.
    pub fn exactly(runs: usize) -> Self {
        Self {
            least: runs,
            most: runs,
            is_enough: |_| true,
        }
    }

    fn is_done(&self, runs: &[(T, f64)]) -> bool {
        let undisturbed: Vec<&T> = undisturbed(runs).map(|(run, _)| run).collect();
        let wanted = undisturbed.len().clamp(self.least, self.most);
        if runs.len() >= wanted * (1 + MOST_DISTURBED) {
            return true;
        }
        undisturbed.len() >= self.most
            || undisturbed.len() >= self.least && (self.is_enough)(&undisturbed)
    }
}

fn undisturbed<T>(runs: &[(T, f64)]) -> impl Iterator<Item = &(T, f64)> {
    runs.iter().filter(|(_, others)| *others <= OTHERS)
}

/// Makes runs of each measurement in turns. Where too many are disturbed the least disturbed ones count. A run, told which
/// measurement it is of, says what part of a processor others used.
pub fn in_turns<T>(
    wanted: &[Wanted<T>],
    mut run: impl FnMut(usize) -> anyhow::Result<(T, f64)>,
) -> anyhow::Result<Vec<QuietRuns<T>>> {
    let mut all: Vec<Vec<(T, f64)>> = wanted.iter().map(|_| Vec::new()).collect();
    loop {
        let mut is_over = true;
        for (index, (runs, wanted)) in all.iter_mut().zip(wanted).enumerate() {
            if !wanted.is_done(runs) {
                runs.push(run(index)?);
                is_over = false;
            }
        }
        if is_over {
            let those = all.into_iter().zip(wanted);
            return Ok(those.map(|(runs, wanted)| kept(runs, wanted)).collect());
        }
    }
}

fn kept<T>(mut runs: Vec<(T, f64)>, wanted: &Wanted<T>) -> QuietRuns<T> {
    let made = runs.len();
    runs.sort_by(|a, b| a.1.total_cmp(&b.1));
    runs.truncate(undisturbed(&runs).count().max(wanted.least));
    let others = runs.last().map_or(0.0, |run| run.1);
    QuietRuns {
        disturbed: made - runs.len(),
        runs: runs.into_iter().map(|run| run.0).collect(),
        others,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alone<T>(
        wanted: Wanted<T>,
        mut run: impl FnMut() -> (T, f64),
    ) -> anyhow::Result<QuietRuns<T>> {
        let mut found = in_turns(&[wanted], |_| Ok(run()))?;
        Ok(found.remove(0))
    }

    #[test]
    fn runs_that_others_disturb_do_not_count() {
        let mut runs = [(1, 0.8), (9, 0.5), (4, 0.0)].into_iter();
        let next = || runs.next().unwrap_or((5, 0.01));
        let found = alone(Wanted::exactly(5), next).unwrap();
        assert_eq!((found.disturbed, found.runs), (2, vec![4, 5, 5, 5, 5]));
        assert!(found.others <= OTHERS);
    }

    #[test]
    fn where_nobody_leaves_the_least_disturbed_runs_count() {
        let mut others = 2.0;
        let found = alone(Wanted::exactly(5), || {
            others -= 0.05;
            (others, others)
        });
        let found = found.unwrap();
        assert_eq!((found.disturbed, found.runs.len()), (10, 5));
        assert!(found.others > OTHERS && found.others < 1.6, "{found:?}");
    }

    #[test]
    fn runs_are_made_until_they_tell_enough_and_no_longer() {
        let wanted = Wanted {
            least: 3,
            most: 20,
            is_enough: |runs: &[&u32]| runs.iter().any(|run| **run == 7),
        };
        let mut next = 0;
        let found = alone(wanted, || {
            next += 1;
            (next, 0.0)
        });
        assert_eq!(found.unwrap().runs.len(), 7);
        let never = alone(wanted, || (0, 0.0)).unwrap();
        assert_eq!((never.runs.len(), never.disturbed), (20, 0));
    }

    #[test]
    fn measurements_take_turns() {
        let mut order = Vec::new();
        let wanted = [Wanted::exactly(2), Wanted::exactly(3)];
        let found = in_turns(&wanted, |index| {
            order.push(index);
            Ok(((), 0.0))
        });
        assert_eq!(found.unwrap().len(), 2);
        assert_eq!(order, [0, 1, 0, 1, 1]);
        assert!(in_turns::<()>(&wanted, |_| anyhow::bail!("broken")).is_err());
    }
}
