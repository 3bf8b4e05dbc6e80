//! The `nic-net` paper again: its tables and figures, published values beside ours, and checks.
//!
//! What the figures need is in the scenario files that users run too (`scenarios/`).

mod checks;
mod facts;
mod figures;
mod report;
mod sensitivity;

pub use checks::{Check, Miss};
pub use facts::Facts;
pub use figures::{Compared, CpuRow, Figure, Stack, Study, Table2Row, scenario};
pub use report::SURVIVORS;
pub use sensitivity::{Change, sensitivity};
