//! Which direction of a quantity is good, and its digits.

use serde::Serialize;

/// Which direction is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    Higher,
    Lower,
}

/// Three or more significant digits.
pub fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 1000.0 => format!("{value:.0}"),
        size if size >= 100.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// A ratio with two digits behind the point, and a small one with two that are no zeros.
pub fn ratio_figure(ratio: f64) -> String {
    let digits = match ratio {
        size if size >= 0.1 || size <= 0.0 => 2,
        size if size >= 0.01 => 3,
        size if size >= 0.001 => 4,
        _ => 5,
    };
    format!("{ratio:.digits$}")
}
