//! How many seeds a row of the table gets: as many as were asked for, and as many again, up to a bound, for each
//! ratio that cannot be told from the threshold by them.
//!
//! Whether a transfer waits for a timeout doubles its time, so ten seeds leave some ratios uncertain by a tenth, and
//! which of them fall below the threshold is luck. The rule must not turn luck into success either: it asks how far a ratio
//! is from the threshold and not on which side, so one that looks good is measured on as one that looks bad, and all
//! transfers count in the end, none is taken back.

use super::{
    grid::{Combination, Job},
    report::{Row, Side},
};

/// The transfers with which to go on after all of `row` are made: of kernel to kernel and of each combination whose
/// ratio is undecided, until there are twice as many seeds, `most` at most.
pub fn further(row: &Row, most: u64) -> Vec<Job> {
    let [base, ours @ ..] = Combination::ALL;
    let made = |combination| row.side(combination).map_or(0, Side::transfers);
    let to_come = |combination: &Combination| {
        let is_open = row.is_judged() && row.side(*combination).is_some_and(Side::is_undecided);
        let made = made(*combination);
        let until = if is_open { (2 * made).min(most) } else { made };
        made..until
    };
    let open: Vec<_> = ours.iter().map(|own| (*own, to_come(own))).collect();
    let last = open.iter().map(|(_, seeds)| seeds.end).max().unwrap_or(0);
    let mut jobs = Vec::new();
    for seed in 0..last {
        let job = |combination| Job {
            cell: row.cell,
            congestion: row.congestion.clone(),
            combination,
            seed,
        };
        // The same cable for both of a pair: see `Ratio::paired`.
        jobs.extend((seed >= made(base)).then(|| job(base)));
        let ours = open.iter().filter(|(_, seeds)| seeds.contains(&seed));
        jobs.extend(ours.map(|(own, _)| job(*own)));
    }
    jobs
}

#[cfg(test)]
mod tests;
