//! What is told of measured values: never a lone mean.
//!
//! Summaries of a handful of samples, distributions of any number of times in constant memory, straight lines through
//! points with their errors, and intervals of ratios. Nothing here reads a clock or calls the system.

#![forbid(unsafe_code)]

mod bootstrap;
mod distribution;
mod line;
mod summary;
mod times;

pub use bootstrap::{Interval, median_ratio, median_ratio_of_runs};
pub use distribution::{Distribution, PERCENTS, Percentile, Recorder};
pub use line::{Line, Point};
pub use summary::Summary;
pub use times::Times;
