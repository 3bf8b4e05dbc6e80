//! The axes of a sweep and the points that they span.

use thiserror::Error;

use super::{FileError, Scenario, with_settings};

/// Most points of one sweep.
const MOST_POINTS: usize = 1_000_000;

/// One key and the values that it takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Axis {
    /// The key, for example `nic.clock_mhz`.
    pub key: String,
    /// Its values as they would stand in a file.
    pub values: Vec<String>,
}

/// Why a text is no axis, or axes span no sweep.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("axis {axis}: {reason}")]
pub struct AxisError {
    axis: String,
    reason: String,
}

impl Axis {
    /// Reads `KEY=VALUES`: `1..9`, `0..1:0.25` (with a step) or `50,100,200`.
    ///
    /// The names of the most common keys may be given without their table.
    pub fn parse(text: &str) -> Result<Self, AxisError> {
        let wrong = |reason: &str| AxisError {
            axis: text.to_owned(),
            reason: reason.to_owned(),
        };
        let (key, values) = text
            .split_once('=')
            .ok_or_else(|| wrong("is not KEY=VALUES"))?;
        let key = match key.trim() {
            "clients" => "workload.clients",
            "stack" => "stack.kind",
            "seed" => "runs.seed",
            other => other,
        };
        let values = match values.split_once("..") {
            Some((first, rest)) => range(first, rest).map_err(|reason| wrong(&reason))?,
            None => values.split(',').map(|v| v.trim().to_owned()).collect(),
        };
        if values.is_empty() || values.iter().any(String::is_empty) {
            return Err(wrong("has an empty value"));
        }
        Ok(Self {
            key: key.to_owned(),
            values,
        })
    }
}

fn range(first: &str, rest: &str) -> Result<Vec<String>, String> {
    let (last, step) = rest.split_once(':').unwrap_or((rest, "1"));
    let number = |text: &str| match text.trim().parse::<f64>() {
        Ok(number) if number.is_finite() => Ok(number),
        _ => Err(format!(
            "\"{text}\" is no number; a range is FROM..TO or FROM..TO:STEP"
        )),
    };
    let (from, to, by) = (number(first)?, number(last)?, number(step)?);
    if by <= 0.0 {
        return Err(format!("a step of {by} never ends"));
    }
    if to < from {
        return Err(format!("{to} is below {from}"));
    }
    if (to - from) / by >= MOST_POINTS as f64 {
        return Err(format!("has more than {MOST_POINTS} values"));
    }
    // A hair more, so that 0..1:0.1 reaches 1.
    Ok(std::iter::successors(Some(0.0_f64), |n| Some(n + 1.0))
        .map(|n| from + n * by)
        .take_while(|value| *value <= to + by * 1e-9)
        .map(|value| format!("{}", (value * 1e9).round() / 1e9))
        .collect())
}

/// Every combination of the axes' values, the last axis changing fastest: the settings and the
/// scenario that they make.
pub fn points(base: &Scenario, axes: &[Axis]) -> Result<Vec<(Vec<String>, Scenario)>, PointsError> {
    let total = axes
        .iter()
        .try_fold(1_usize, |n, axis| n.checked_mul(axis.values.len()))
        .filter(|n| *n <= MOST_POINTS);
    let Some(total) = total else {
        return Err(PointsError::TooMany);
    };
    let mut base = base.clone();
    base.sweep.clear();
    (0..total)
        .map(|index| {
            let mut rest = index;
            let mut settings: Vec<String> = axes
                .iter()
                .rev()
                .map(|axis| {
                    let value = &axis.values[rest % axis.values.len()];
                    rest /= axis.values.len();
                    format!("{}={value}", axis.key)
                })
                .collect();
            settings.reverse();
            let scenario = with_settings(&base, settings.iter().map(String::as_str))?;
            Ok((settings, scenario))
        })
        .collect()
}

/// Why axes span no sweep.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PointsError {
    /// More points than anyone can wait for.
    #[error("the axes span more than {MOST_POINTS} points")]
    TooMany,
    /// A point that cannot be.
    #[error(transparent)]
    Scenario(#[from] FileError),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(text: &str) -> Vec<String> {
        Axis::parse(text).unwrap().values
    }

    #[test]
    fn ranges_steps_and_lists() {
        assert_eq!(values("clients=1..3"), ["1", "2", "3"]);
        assert_eq!(values("x=0..1:0.25"), ["0", "0.25", "0.5", "0.75", "1"]);
        assert_eq!(values("x=0..0.3:0.1"), ["0", "0.1", "0.2", "0.3"]);
        assert_eq!(values("stack=kernel, nic"), ["kernel", "nic"]);
        assert_eq!(Axis::parse("clients=1..3").unwrap().key, "workload.clients");
    }

    #[test]
    fn what_is_no_axis_is_refused() {
        for text in ["clients", "x=", "x=1,,2", "x=3..1", "x=1..9:0", "x=a..b"] {
            assert!(Axis::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn points_are_all_combinations_in_order() {
        let axes = [
            Axis::parse("clients=1..2").unwrap(),
            Axis::parse("stack=kernel,nic").unwrap(),
        ];
        let points = points(&Scenario::default(), &axes).unwrap();
        let last: Vec<&str> = points.iter().map(|(s, _)| s[1].as_str()).collect();
        assert_eq!(
            last,
            [
                "stack.kind=kernel",
                "stack.kind=nic",
                "stack.kind=kernel",
                "stack.kind=nic"
            ]
        );
        assert_eq!(points[2].1.workload.clients, 2);
    }

    #[test]
    fn too_many_points_are_refused_before_they_are_made() {
        let axis = Axis::parse("seed=1..1000").unwrap();
        let axes = vec![axis; 10];
        assert_eq!(
            points(&Scenario::default(), &axes),
            Err(PointsError::TooMany)
        );
    }
}
