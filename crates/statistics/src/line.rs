//! A straight line through points whose errors are known: weighted least squares (Press et al., "Numerical Recipes",
//! section 15.2).

use serde::{Deserialize, Serialize};

/// A point.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// Where: for a sweep of sizes, bytes.
    pub x: f64,
    /// What was measured there.
    pub y: f64,
    /// Standard error of `y`; above zero.
    pub error: f64,
}

/// `y = intercept + slope · x`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// `y` at `x = 0`.
    pub intercept: f64,
    /// Standard error of the intercept.
    pub intercept_error: f64,
    /// What one more of `x` adds.
    pub slope: f64,
    /// Standard error of the slope.
    pub slope_error: f64,
    /// The part of the variation of `y` that the line explains (coefficient of determination).
    pub explained: f64,
}

impl Line {
    /// `None` with fewer than three points, where all are at one `x`, or where an error is not above zero. Where the
    /// points lie farther from the line than their errors say, the errors of the line grow by as much.
    pub fn through(points: &[Point]) -> Option<Self> {
        if points.len() < 3
            || points
                .iter()
                .any(|point| point.error <= 0.0 || !point.error.is_finite())
        {
            return None;
        }
        let weight = |point: &Point| 1.0 / (point.error * point.error);
        let sum = |of: &dyn Fn(&Point) -> f64| points.iter().map(of).sum::<f64>();
        let weights = sum(&weight);
        let mean_x = sum(&|point| weight(point) * point.x) / weights;
        let mean_y = sum(&|point| weight(point) * point.y) / weights;
        let spread = sum(&|point| weight(point) * (point.x - mean_x).powi(2));
        if spread <= 0.0 {
            return None;
        }
        let slope = sum(&|point| weight(point) * (point.x - mean_x) * (point.y - mean_y)) / spread;
        let intercept = mean_y - slope * mean_x;
        let left = sum(&|point| weight(point) * (point.y - intercept - slope * point.x).powi(2));
        let all = sum(&|point| weight(point) * (point.y - mean_y).powi(2));
        let freedom = points.len() as f64 - 2.0;
        let scale = (left / freedom).max(1.0).sqrt();
        Some(Self {
            intercept,
            intercept_error: scale * (1.0 / weights + mean_x * mean_x / spread).sqrt(),
            slope,
            slope_error: scale / spread.sqrt(),
            explained: if all > 0.0 { 1.0 - left / all } else { 1.0 },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(of: impl Fn(f64) -> f64) -> Vec<Point> {
        let sizes = [64.0, 128.0, 256.0, 512.0, 1024.0];
        sizes
            .map(|x| Point {
                x,
                y: of(x),
                error: 2.0,
            })
            .to_vec()
    }

    #[test]
    fn a_line_is_found_again_with_its_errors() {
        let line = Line::through(&points(|x| 3500.0 + x)).unwrap();
        assert!((line.intercept - 3500.0).abs() < 1e-6 && (line.slope - 1.0).abs() < 1e-9);
        assert!(line.explained > 0.999_999);
        // Numerical Recipes, equation 15.2.9, for equal errors: σ / √Σ(x − mean)².
        let mean: f64 = (64.0 + 128.0 + 256.0 + 512.0 + 1024.0) / 5.0;
        let spread: f64 = points(|x| x)
            .iter()
            .map(|point| (point.x - mean).powi(2))
            .sum();
        assert!((line.slope_error - 2.0 / spread.sqrt()).abs() < 1e-12);
    }

    #[test]
    fn points_off_the_line_make_its_errors_larger() {
        let straight = Line::through(&points(|x| 10.0 + x)).unwrap();
        let bent = Line::through(&points(|x| 10.0 + x * x / 100.0)).unwrap();
        assert!(bent.slope_error > 10.0 * straight.slope_error);
        assert!(bent.explained < straight.explained);
    }

    #[test]
    fn two_points_or_one_size_have_no_line() {
        assert_eq!(Line::through(&points(|x| x)[..2]), None);
        let same = [Point {
            x: 1.0,
            y: 2.0,
            error: 1.0,
        }; 4];
        assert_eq!(Line::through(&same), None);
        let sure = [1.0, 2.0, 3.0].map(|x| Point {
            x,
            y: x,
            error: 0.0,
        });
        assert_eq!(Line::through(&sure), None);
    }
}
