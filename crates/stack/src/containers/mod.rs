//! What the layers keep their state in: hash tables by the ends of a flow, lists and queues through a table's rows,
//! timers.

pub(crate) mod demux;
pub(crate) mod intrusive;
pub(crate) mod keyed;
pub(crate) mod prediction;
pub(crate) mod templates;
pub(crate) mod timers;
pub(crate) mod wheel;
