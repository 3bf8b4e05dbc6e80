//! What happens on a machine, and to which request.

/// Index of a request.
pub(super) type Id = u32;

#[derive(Debug, Clone, Copy)]
pub(super) enum Event {
    /// A packet of a request arrives at the machine.
    Packet { request: Id, last: bool },
    /// What a processor runs is done.
    Finish { core: usize, version: u32 },
    /// A time slice ends.
    Slice { core: usize, version: u32 },
    /// A NIC processor is done with its job.
    NicDone { unit: usize },
    /// The bottom half's timer.
    Tick,
    /// The interrupt timer of a queue.
    Coalesce { queue: usize, version: u32 },
    /// A connection is set up.
    SetUp { core: usize },
    /// A packet has crossed the bus to the host.
    Crossed { request: Id, last: bool },
    /// A response has crossed the bus to the NIC.
    Fetched { request: Id },
    /// A lost exchange or packet is repeated.
    Repeat { request: Id },
}
