//! What engines tell of values that vary: how many there were of each size. `status`, its JSON, `metrics` and `top` go by this
//! table. Bounds are `stack::Histogram`'s: two to the octave, so that a value is known within a third.

use std::{iter, sync::LazyLock};

use serde_json::{Map, Value, json};

/// A histogram that an engine keeps.
#[derive(Debug)]
pub struct Figure {
    /// In `histograms` of the report; ends with the unit in which the engine counts.
    pub field: &'static str,
    /// Its name as a metric, without the prefix `shunt_`.
    pub metric: &'static str,
    /// Unit of what is exported, which ends the metric's name.
    pub unit: &'static str,
    /// What it is called beside its values.
    pub title: &'static str,
    /// A sentence.
    pub help: &'static str,
}

/// All of them.
pub static HISTOGRAMS: LazyLock<Vec<Figure>> = LazyLock::new(|| {
    let figure = |[field, metric, unit, title, help]: [&'static str; 5]| Figure {
        field,
        metric,
        unit,
        title,
        help,
    };
    output::columns(TABLE).map(figure).collect()
});

const TABLE: &str = "
tcp_round_trip_us | tcp_round_trip_seconds | seconds | round trips     | Round trips as TCP measures them, from a segment to its acknowledgement, the peer's delay of that with them.
poll_us           | poll_seconds           | seconds | polls           | What polls that did something took an engine process, until the next one began; their sum is how long it was busy.
rx_burst_frames   | driver_rx_burst_frames | frames  | frames together | Frames that a look at the device found, of looks that found some.
";

/// Name of the field of round trips.
pub const ROUND_TRIPS: &str = "tcp_round_trip_us";
/// Name of the field of polls.
pub const POLLS: &str = "poll_us";

/// Values by their size.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Spread {
    /// Of each bucket, the last of which has no bound; empty: nothing is known.
    counts: Vec<u64>,
    sum: u64,
}

impl Spread {
    /// What the cores of an engine tell of this one, together.
    fn of_cores(cores: &[Value], field: &str) -> Self {
        let mut whole = Self::default();
        for told in cores.iter().map(|core| &core["histograms"][field]) {
            let counts = told["counts"].as_array().into_iter().flatten();
            for (at, count) in counts.filter_map(Value::as_u64).enumerate() {
                match whole.counts.get_mut(at) {
                    Some(sum) => *sum += count,
                    None => whole.counts.push(count),
                }
            }
            whole.sum += told["sum"].as_u64().unwrap_or(0);
        }
        whole
    }

    /// Reads what [`merged`] has written; `None`: the engine tells nothing of it.
    pub fn of(status: &Value, field: &str) -> Option<Self> {
        let told = &status["histograms"][field];
        let of_bucket = |bound: Option<u64>| {
            let mut rows = told["buckets"].as_array().into_iter().flatten();
            let row = rows.find(|row| row["at_most"].as_u64() == bound);
            row.and_then(|row| row["count"].as_u64()).unwrap_or(0)
        };
        Some(Self {
            sum: told["sum"].as_u64()?,
            counts: bounds().map(of_bucket).collect(),
        })
    }

    /// Those that came after `before`; all, where an engine of the same name has begun meanwhile.
    pub fn since(&self, before: &Self) -> Self {
        let pairs = self.counts.iter().zip(&before.counts);
        let counts: Option<Vec<u64>> = pairs.map(|(now, then)| now.checked_sub(*then)).collect();
        match counts {
            Some(counts) if counts.len() == self.counts.len() => Self {
                counts,
                sum: self.sum.saturating_sub(before.sum),
            },
            _ => self.clone(),
        }
    }

    /// How many values.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// Each bound with how many values are not above it; of the last bucket without one.
    pub fn cumulative(&self) -> impl Iterator<Item = (Option<u64>, u64)> {
        let sums = self.counts.iter().scan(0, |sum, count| {
            *sum += count;
            Some(*sum)
        });
        bounds().zip(sums)
    }

    /// The bound that so many thousandths of the values are not above. `None`: there is no value, or the last bucket has it.
    pub fn at_most(&self, thousandths: u64) -> Option<u64> {
        let count = self.count();
        let rank = (u128::from(count) * u128::from(thousandths)).div_ceil(1_000);
        let mut buckets = self.cumulative().filter(|_| count > 0);
        buckets.find(|(_, up_to)| u128::from(*up_to) >= rank)?.0
    }

    /// `None` of no values.
    pub fn mean(&self) -> Option<f64> {
        let (sum, count) = (self.sum as f64, self.count() as f64);
        (count > 0.0).then(|| sum / count)
    }

    /// As it stands in JSON; buckets without a value are left out.
    pub fn to_json(&self) -> Value {
        let buckets = bounds().zip(&self.counts).filter(|(_, count)| **count > 0);
        let buckets = buckets.map(|(bound, count)| json!({ "at_most": bound, "count": count }));
        json!({
            "count": self.count(), "sum": self.sum, "mean": self.mean(), "p50_at_most": self.at_most(500),
            "p99_at_most": self.at_most(990), "buckets": buckets.collect::<Vec<_>>(),
        })
    }
}

fn bounds() -> impl Iterator<Item = Option<u64>> {
    stack::Histogram::bounds().map(Some).chain(iter::once(None))
}

/// The histograms of an engine from those of its cores; null where they tell none.
pub fn merged(cores: &[Value]) -> Value {
    let told = HISTOGRAMS.iter().filter_map(|figure| {
        let spread = Spread::of_cores(cores, figure.field);
        let is_known = !spread.counts.is_empty();
        is_known.then(|| (figure.field.to_owned(), spread.to_json()))
    });
    let told: Map<String, Value> = told.collect();
    match told.is_empty() {
        true => Value::Null,
        false => Value::Object(told),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A core that has counted these values.
    fn core(values: &[u32]) -> Value {
        let mut histogram = stack::Histogram::default();
        values.iter().for_each(|value| histogram.add(*value));
        let counts: Vec<u64> = histogram.counts().collect();
        json!({ "histograms": { "poll_us": { "counts": counts, "sum": histogram.sum() } } })
    }

    fn spread(values: &[u32]) -> Spread {
        let status = json!({ "histograms": merged(&[core(values)]) });
        Spread::of(&status, POLLS).unwrap()
    }

    #[test]
    fn cores_add_up_and_what_is_written_is_read_again() {
        let told = merged(&[core(&[1, 5]), core(&[5, 1 << 30])]);
        let buckets = json!([
            { "at_most": 1, "count": 1 }, { "at_most": 6, "count": 2 }, { "at_most": null, "count": 1 }
        ]);
        assert_eq!(told["poll_us"]["buckets"], buckets);
        assert_eq!(told["poll_us"]["sum"], 11 + (1_u64 << 30));
        assert!(told["rx_burst_frames"].is_null());
        let status = json!({ "histograms": told });
        assert_eq!(
            Spread::of(&status, POLLS).unwrap(),
            spread(&[1, 5, 5, 1 << 30])
        );
        assert!(Spread::of(&status, ROUND_TRIPS).is_none());
        assert!(merged(&[json!({})]).is_null());
    }

    #[test]
    fn a_share_of_values_is_at_most_a_bound_and_none_of_no_values() {
        let values: Vec<u32> = (1..=100).collect();
        let spread = spread(&values);
        assert_eq!(
            [500, 990, 1_000].map(|one| spread.at_most(one)),
            [64, 128, 128].map(Some)
        );
        assert_eq!(spread.mean(), Some(50.5));
        let none = spread.since(&spread);
        assert_eq!(
            (none.at_most(500), none.mean(), none.count()),
            (None, None, 0)
        );
    }

    #[test]
    fn what_came_since_is_told_and_all_of_an_engine_that_began_anew() {
        let (first, second) = (spread(&[3, 70]), spread(&[3, 3, 70]));
        assert_eq!(second.since(&first), spread(&[3]));
        assert_eq!(first.since(&second), first);
    }
}
