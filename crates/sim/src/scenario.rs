//! What a simulation is about: one TOML file per scenario, with a default for every key and the
//! unit at the end of every name. docs/simulator.md explains the keys to users.
//!
//! The defaults are the `nic-net` paper's machine: every extension is off.

mod axis;
mod check;
mod parse;

use serde::{Deserialize, Serialize};

pub use axis::{Axis, AxisError, PointsError, points};
pub use parse::{ScenarioError, parse, with_settings};

/// A scenario.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Scenario {
    /// What the reader of a report should know of it.
    pub title: String,
    /// The machine that runs the application.
    pub host: Host,
    /// Where the protocol stack runs, and how.
    pub stack: Stack,
    /// The NIC's own processor; used by `stack.kind = "nic"`.
    pub nic: Nic,
    /// When the host is told.
    pub interrupts: Interrupts,
    /// How bytes come over the bus.
    pub bus: Bus,
    /// Links between client and server.
    pub network: Network,
    /// What is lost, and who repeats it.
    pub loss: Loss,
    /// What clients ask.
    pub workload: Workload,
    /// What each step costs.
    pub cost: Cost,
    /// How often the scenario is run, and what is reported.
    pub runs: Runs,
    /// Axes of a sweep, for `shunt sim sweep` without `--axis`.
    pub sweep: Vec<SweepAxis>,
}

/// One axis of a sweep.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SweepAxis {
    /// The key that changes, for example `workload.clients`.
    pub key: String,
    /// Its values: `1..9`, `0..1:0.25` or `50,100,200`.
    pub values: String,
}

/// The host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Host {
    /// Clock of its processors.
    pub clock_mhz: f64,
    /// Processors; each has a server process of its own.
    pub cores: usize,
    /// Time slice of the round robin.
    pub quantum_ms: f64,
    /// Endless computations on each processor, which compete with the server.
    pub background: usize,
    /// How much of the first background slice is over at the start; without it the runs divide the
    /// slice evenly among them.
    pub background_phase_ms: Option<f64>,
    /// What happens to a process that is woken.
    pub wake: Wake,
    /// Which processor serves a connection.
    pub placement: Placement,
    /// Cost of interrupting another processor, where a packet's queue and its server differ.
    pub handover_us: f64,
}

impl Default for Host {
    fn default() -> Self {
        Self {
            clock_mhz: 500.0,
            cores: 1,
            quantum_ms: 200.0,
            background: 1,
            background_phase_ms: None,
            wake: Wake::Tail,
            placement: Placement::Spread,
            handover_us: 0.0,
        }
    }
}

/// What happens to a process that is woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wake {
    /// It joins the end of the run queue.
    Tail,
    /// It runs as soon as the running process can be interrupted.
    Preempt,
}

/// Which processor serves a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Placement {
    /// Connections go round the processors.
    Spread,
    /// The one that its receive queue interrupts.
    Affine,
}

/// Where the protocol stack runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// In the kernel: interrupt, bottom half, system calls.
    Kernel,
    /// In a library of the server process.
    User,
    /// On the NIC's processor, or on an engine's core.
    Nic,
}

/// Which cost is charged where; see docs/simulator.md.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Profile {
    /// One packet per request; the host keeps the interrupt and the socket copies.
    A,
    /// As A with two packets per request.
    A2,
    /// Two packets per request, driver cost on transmit, socket layer on the NIC.
    B,
}

/// When the kernel's bottom halves run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BottomHalf {
    /// At scheduling points.
    Sched,
    /// At scheduling points and when the server leaves a system call.
    Sysret,
    /// Every `stack.tick_ms`.
    Tick,
    /// At once, before any process.
    Immediate,
    /// Polling with a budget while interrupts are off, then by a thread that competes with processes.
    Napi,
}

/// Where a user-level stack receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Receive {
    /// In the server process, before it serves anything.
    Process,
    /// In the interrupt.
    Interrupt,
}

/// The protocol stack.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Stack {
    /// Where it runs.
    pub kind: Kind,
    /// Which cost is charged where.
    pub profile: Profile,
    /// When the kernel's bottom halves run.
    pub bottom_half: BottomHalf,
    /// Bottom halves run before the scheduler chooses, as in Linux 2.2.
    pub bottom_half_first: bool,
    /// Period of `bottom_half = "tick"`.
    pub tick_ms: f64,
    /// Packets that may wait for the bottom half; 0 is no limit.
    pub backlog_packets: usize,
    /// Packets polled before the rest is left to a thread (`bottom_half = "napi"`).
    pub poll_budget: usize,
    /// Where a user-level stack receives.
    pub receive: Receive,
    /// A user-level server never sleeps: no interrupts, and its processor is always busy.
    pub busy_poll: bool,
}

impl Default for Stack {
    fn default() -> Self {
        Self {
            kind: Kind::Kernel,
            profile: Profile::A,
            bottom_half: BottomHalf::Sched,
            bottom_half_first: false,
            tick_ms: 10.0,
            backlog_packets: 0,
            poll_budget: 64,
            receive: Receive::Process,
            busy_poll: false,
        }
    }
}

/// How the NIC hands segments to the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Every completed segment interrupts.
    Push,
    /// Only a waiting read is interrupted; other segments stay in the NIC's memory.
    Sync,
    /// As `sync`, but above `nic.memory_high` stored segments are pushed until `nic.memory_low`.
    Urgent,
}

/// How work is given to the NIC's processors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dispatch {
    /// One queue for all.
    Shared,
    /// A queue each; a connection always goes to the same one.
    Flow,
    /// Each does one layer: link, network, transport in turn.
    Pipeline,
}

/// A length that is fixed or random.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Distribution {
    /// Always the same.
    Fixed,
    /// Exponential with that mean.
    Exponential,
}

/// The NIC.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Nic {
    /// Clock of its processors.
    pub clock_mhz: f64,
    /// Processors.
    pub cores: usize,
    /// How work is given to them.
    pub dispatch: Dispatch,
    /// Whether the length of their work is fixed or random.
    pub service: Distribution,
    /// How segments are handed to the host.
    pub mode: Mode,
    /// Received packets go before responses.
    pub receive_first: bool,
    /// Memory for packets and segments; 0 is no limit, and packets beyond it are dropped.
    pub memory_kib: f64,
    /// Share of the memory from which `mode = "urgent"` pushes.
    pub memory_high: f64,
    /// Share of the memory down to which it does.
    pub memory_low: f64,
    /// Checking a command before accepting it, at the reference clock.
    pub check_us: f64,
}

impl Default for Nic {
    fn default() -> Self {
        Self {
            clock_mhz: 1000.0,
            cores: 1,
            dispatch: Dispatch::Shared,
            service: Distribution::Fixed,
            mode: Mode::Push,
            receive_first: false,
            memory_kib: 0.0,
            memory_high: 0.75,
            memory_low: 0.5,
            check_us: 0.0,
        }
    }
}

/// Receive queues and when they interrupt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Interrupts {
    /// Interrupt when this many frames wait; 1 is at once, 0 leaves it to the timer.
    pub frames: usize,
    /// Interrupt this long after the first frame; 0 is no timer.
    pub after_us: f64,
    /// Frames a queue holds; those beyond are dropped. 0 is no limit.
    pub ring_frames: usize,
    /// Receive queues; a connection's is chosen by a Toeplitz hash of its addresses and ports.
    pub queues: usize,
    /// Share of the driver's cost that an interrupt costs once, however many frames it announces;
    /// the rest is paid per frame.
    pub fixed_share: f64,
}

impl Default for Interrupts {
    fn default() -> Self {
        Self {
            frames: 1,
            after_us: 0.0,
            ring_frames: 0,
            queues: 1,
            fixed_share: 1.0,
        }
    }
}

/// Who moves bytes over the bus.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transfer {
    /// The host's processor, inside the driver's cost.
    Pio,
    /// The device; the host pays for doorbells, descriptors and completions.
    Dma,
}

/// The bus between host and NIC.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Bus {
    /// Who moves bytes.
    pub transfer: Transfer,
    /// One crossing of a command or its answer.
    pub command_us: f64,
    /// Host: announcing a descriptor (a posted write).
    pub doorbell_us: f64,
    /// Host: filling a descriptor; one per page touched.
    pub descriptor_us: f64,
    /// Host: taking a completion, per packet received.
    pub completion_us: f64,
    /// Host: the interrupt itself.
    pub interrupt_us: f64,
    /// Rate of the bus; 0 takes no time.
    pub rate_gbps: f64,
    /// Cost of each 256-byte transaction on the bus.
    pub transaction_ns: f64,
    /// Latency of the device's read of host memory.
    pub read_latency_ns: f64,
    /// Socket copies are replaced by the library call alone (`stack.kind = "nic"`).
    pub zero_copy: bool,
    /// Host: pinning a page of a buffer that is not registered.
    pub pin_us_per_page: f64,
    /// Buffers are registered once, before the run: nothing is pinned.
    pub registered: bool,
    /// Bytes at a buffer's head that are copied because they are not aligned.
    pub unaligned_bytes: f64,
    /// Host: copying one byte.
    pub copy_us_per_byte: f64,
}

impl Default for Bus {
    fn default() -> Self {
        Self {
            transfer: Transfer::Pio,
            command_us: 0.0,
            doorbell_us: 0.0,
            descriptor_us: 0.0,
            completion_us: 0.0,
            interrupt_us: 0.0,
            rate_gbps: 0.0,
            transaction_ns: 0.0,
            read_latency_ns: 0.0,
            zero_copy: false,
            pin_us_per_page: 0.0,
            registered: true,
            unaligned_bytes: 0.0,
            copy_us_per_byte: 0.0,
        }
    }
}

/// How transmission over several links adds up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transmission {
    /// As the paper's equation (2) prints it: length over the mean rate.
    Paper,
    /// Each hop receives the whole packet before it sends it on.
    StoreAndForward,
}

/// The way between client and server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Network {
    /// Rates of the links on the way.
    pub rates_mbps: Vec<f64>,
    /// Whole length of the way.
    pub distance_m: f64,
    /// Speed of the signal.
    pub speed_m_per_s: f64,
    /// How transmission over several links adds up.
    pub transmission: Transmission,
    /// Delays are multiplied by a random number between 1 and 1 + this.
    pub jitter: f64,
    /// Responses queue for the server's link.
    pub link_queue: bool,
    /// Bytes that may wait for the server's link; 0 is no limit.
    pub link_buffer_kib: f64,
}

impl Default for Network {
    fn default() -> Self {
        Self {
            rates_mbps: vec![100.0],
            distance_m: 100.0,
            speed_m_per_s: 2e8,
            transmission: Transmission::Paper,
            jitter: 0.1,
            link_queue: false,
            link_buffer_kib: 0.0,
        }
    }
}

/// What a loss makes do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Repeat {
    /// The whole exchange is done again, as equation (5) has it; a NIC does it without the host.
    Exchange,
    /// Lost requests come again from the client, lost responses from whoever owns the stack.
    Packet,
}

/// Loss.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Loss {
    /// Probability that a bit is wrong.
    pub bit_error_rate: f64,
    /// Bytes of a packet for the packet error rate.
    pub packet_bytes: f64,
    /// What a loss makes do.
    pub repeat: Repeat,
    /// Smallest retransmission time-out; doubles with every repetition. 0 repeats at once.
    pub timeout_ms: f64,
}

impl Default for Loss {
    fn default() -> Self {
        Self {
            bit_error_rate: 0.0,
            packet_bytes: 1024.0,
            repeat: Repeat::Exchange,
            timeout_ms: 0.0,
        }
    }
}

/// When requests arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Arrivals {
    /// Each client sends one per period.
    Periodic,
    /// Independent of each other, with the same rate.
    Poisson,
    /// Each client sends `batch` at once, as rarely as keeps the rate.
    Batch,
    /// Poisson at twice the rate for half of each second.
    OnOff,
}

/// How the clients' periods lie to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// At random.
    Random,
    /// Evenly spread.
    Spread,
    /// All at once.
    Together,
}

/// What clients ask.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Workload {
    /// Clients, each with a connection.
    pub clients: usize,
    /// Time between two requests of one client.
    pub period_ms: f64,
    /// Requests of each client.
    pub requests_per_client: usize,
    /// Requests of all clients together, in place of `requests_per_client`; 0 leaves it to that.
    pub requests_total: usize,
    /// When they arrive.
    pub arrivals: Arrivals,
    /// Requests at once, with `arrivals = "batch"`.
    pub batch: usize,
    /// How the clients' periods lie to each other.
    pub phase: Phase,
    /// Size of a request.
    pub request_bytes: f64,
    /// Packets as which a request arrives; 0 takes the profile's 1 or 2.
    pub request_packets: usize,
    /// Size of a response.
    pub response_bytes: f64,
    /// The application's work per request, at the reference clock.
    pub compute_us: f64,
    /// Whether that is fixed or random.
    pub compute: Distribution,
    /// Connections set up at the start.
    pub connections: usize,
    /// The run is cut here, and says so.
    pub horizon_s: f64,
}

impl Default for Workload {
    fn default() -> Self {
        Self {
            clients: 1,
            period_ms: 10.0,
            requests_per_client: 60,
            requests_total: 0,
            arrivals: Arrivals::Periodic,
            batch: 1,
            phase: Phase::Random,
            request_bytes: 256.0,
            request_packets: 0,
            response_bytes: 1024.0,
            compute_us: 0.0,
            compute: Distribution::Fixed,
            connections: 0,
            horizon_s: 60.0,
        }
    }
}

/// What each step costs: by default Table 1 of the paper.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Cost {
    /// The clock at which the costs were measured.
    pub reference_mhz: f64,
    /// The driver's cost becomes shorter with the clock as the others do.
    pub scale_physical: bool,
    /// Sending: socket.
    pub tx_sock_us: f64,
    /// Sending: transport.
    pub tx_tr_us: f64,
    /// Sending: network.
    pub tx_net_us: f64,
    /// Sending: link.
    pub tx_link_us: f64,
    /// Receiving: socket.
    pub rx_sock_us: f64,
    /// Receiving: transport.
    pub rx_tr_us: f64,
    /// Receiving: network.
    pub rx_net_us: f64,
    /// Receiving: link.
    pub rx_link_us: f64,
    /// Executing: the socket interface.
    pub ex_sock_us: f64,
    /// Executing: a system call.
    pub ex_sys_us: f64,
    /// Executing: the physical layer, that is the driver.
    pub ex_phy_us: f64,
}

impl Default for Cost {
    fn default() -> Self {
        Self {
            reference_mhz: 450.0,
            scale_physical: true,
            tx_sock_us: 128.5,
            tx_tr_us: 302.1,
            tx_net_us: 222.8,
            tx_link_us: 148.0,
            rx_sock_us: 102.2,
            rx_tr_us: 346.9,
            rx_net_us: 155.8,
            rx_link_us: 126.6,
            ex_sock_us: 81.7,
            ex_sys_us: 91.6,
            ex_phy_us: 424.5,
        }
    }
}

/// Repetition.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Runs {
    /// Seed of the first run; the others follow.
    pub seed: u64,
    /// Runs, each with another seed and background phase.
    pub replications: usize,
    /// More runs are made until the 95 % confidence interval of the mean response is this part of
    /// it on either side; 0 makes `replications` runs.
    pub until_percent: f64,
    /// No more runs than this.
    pub most: usize,
}

impl Default for Runs {
    fn default() -> Self {
        Self {
            seed: 1,
            replications: 8,
            until_percent: 0.0,
            most: 200,
        }
    }
}
