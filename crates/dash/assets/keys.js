// The controls: every key that the page offers, its unit, its range, and what it is for.
// The other keys of a scenario are reached through its file.

const number = (key, label, unit, min, max, step, hint) => ({ key, label, unit, min, max, step, hint });
const choice = (key, label, options, hint) => ({ key, label, options, hint });
const yes = (key, label, hint) => ({ key, label, yes: true, hint });
const cost = (name, label) => number(`cost.${name}_us`, label, "µs", 0, 1000, 0.1, "");

export const GROUPS = [
  {
    name: "Load", open: true, keys: [
      number("workload.clients", "Clients", "", 1, 20, 1,
        "Each sends a request every period, on a connection of its own. The paper goes from 1 to 9."),
      number("workload.period_ms", "Period of a client", "ms", 1, 100, 1,
        "Nine clients at 10 ms make 900 requests a second."),
      number("workload.requests_per_client", "Requests per client", "", 10, 600, 10,
        "How long load goes on. A queue that grows makes the mean depend on this."),
      number("workload.requests_total", "Requests in all", "", 0, 600, 10,
        "A burst of so many, in place of the line above; 0 leaves it to that."),
      choice("workload.arrivals", "Arrivals", ["periodic", "poisson", "batch", "on_off"],
        "Random and bursty arrivals queue even where the average fits."),
      number("workload.compute_us", "Application's own work", "µs", 0, 5000, 50,
        "Per request. Offload cannot shorten it: the larger it is, the less offload buys."),
      number("workload.request_packets", "Packets per request", "", 0, 8, 1,
        "0 takes the profile's. A host stack is interrupted for each, a NIC-resident one once per segment."),
    ],
  },
  {
    name: "Host", open: true, keys: [
      number("host.clock_mhz", "Processor clock", "MHz", 100, 2000, 50,
        "All costs of the host shrink with it. The paper's host has 500 MHz."),
      number("host.background", "Endless computations", "", 0, 4, 1,
        "They compete with the server for the processor. With none, most waiting disappears for all three stacks."),
      number("host.quantum_ms", "Time slice", "ms", 1, 200, 1,
        "Round robin. Linux 2.2 had 200 ms, and a woken server waits for its turn."),
      choice("host.wake", "A woken process", ["tail", "preempt"],
        "tail: joins the end of the run queue, as in the paper. preempt: runs at once, as today."),
      number("host.cores", "Processors", "", 1, 8, 1, "Each has a server process of its own."),
    ],
  },
  {
    name: "Kernel-resident and user-level stack", keys: [
      choice("stack.bottom_half", "Bottom halves run", ["sched", "sysret", "tick", "immediate", "napi"],
        "sched: when the scheduler is entered, as the paper's kernel; immediate: at once; napi: polling with a budget."),
      yes("stack.bottom_half_first", "Bottom halves before the choice",
        "As in Linux 2.2: the server that they wake can be chosen at once."),
      choice("stack.receive", "User-level library receives", ["process", "interrupt"],
        "process: in the server, before it serves anything. That is the way into livelock."),
      choice("stack.profile", "Cost profile", ["A", "A2", "B"],
        "A: one packet per request. A2: two. B: two, driver cost on sending, socket layer on the NIC."),
      number("stack.backlog_packets", "Backlog limit", "packets", 0, 500, 10, "0 is no limit; what is beyond it is dropped."),
    ],
  },
  {
    name: "NIC", open: true, keys: [
      number("nic.clock_mhz", "Clock of the NIC's processor", "MHz", 25, 1000, 25,
        "The paper advises 50 to 200 MHz. That holds for a burst; a load that goes on needs rate × work."),
      number("nic.cores", "NIC processors", "", 1, 8, 1, "They share one queue unless told otherwise."),
      choice("nic.mode", "Host–NIC mode", ["push", "sync", "urgent"],
        "push: each segment interrupts. sync: only a waiting read is interrupted, the rest stays on the NIC. urgent: as sync until its memory fills."),
      number("nic.memory_kib", "NIC memory", "KiB", 0, 256, 1, "0 is no limit. Beyond it packets are dropped; urgent needs a limit."),
      number("nic.memory_high", "Urgent from", "of memory", 0, 1, 0.05, "Above this share stored segments are pushed to the host."),
      number("nic.memory_low", "Urgent until", "of memory", 0, 1, 0.05, "Down to this share."),
      number("nic.check_us", "Checking a command", "µs", 0, 200, 5, "Work of the NIC before it accepts an asynchronous command."),
    ],
  },
  {
    name: "Interrupts and bus", keys: [
      number("interrupts.frames", "Interrupt every … frames", "", 0, 64, 1, "Moderation: 1 is at once; 0 leaves it to the timer."),
      number("interrupts.after_us", "… or after", "µs", 0, 5000, 50, "After the first frame; 0 is no timer."),
      number("interrupts.fixed_share", "Cost paid once per interrupt", "of the driver's", 0, 1, 0.05,
        "The rest is paid per frame: moderation saves only this part."),
      choice("bus.transfer", "Bytes are moved by", ["pio", "dma"],
        "pio: the processor itself, inside the interrupt, as in the paper. dma: the device."),
      number("bus.rate_gbps", "Bus rate", "Gbit/s", 0, 64, 1, "With dma; 0 takes no time."),
      yes("bus.zero_copy", "No copy at the socket", "Between host and NIC: needs the NIC-resident stack."),
    ],
  },
  {
    name: "Network and loss", keys: [
      yes("network.link_queue", "Responses queue for the link", "Off, a link carries any number at once, as in the paper."),
      number("network.jitter", "Jitter", "of the delay", 0, 1, 0.05, "Equation (1): delays are multiplied by a random number up to 1 + this."),
      number("workload.response_bytes", "Response", "bytes", 64, 65536, 64, ""),
      number("loss.bit_error_rate", "Bit errors", "per bit", 0, 0.0001, 0.0000001,
        "Equation (5): the exchange is processed again, by whoever owns the stack."),
      number("loss.timeout_ms", "Retransmission after", "ms", 0, 1000, 10,
        "The paper leaves it out (0). With it, loss dominates response time, offloaded or not."),
    ],
  },
  {
    name: "Costs of the layers (Table 1)", keys: [
      number("cost.reference_mhz", "Measured at", "MHz", 100, 1000, 50, "A Celeron of 450 MHz in the paper."),
      cost("ex_phy", "Driver, per interrupt"), cost("ex_sys", "System call"), cost("ex_sock", "Socket interface"),
      cost("rx_link", "Receive: link"), cost("rx_net", "Receive: network"), cost("rx_tr", "Receive: transport"),
      cost("rx_sock", "Receive: socket"), cost("tx_sock", "Send: socket"), cost("tx_tr", "Send: transport"),
      cost("tx_net", "Send: network"), cost("tx_link", "Send: link"),
      yes("cost.scale_physical", "The driver's part scales with the clock", "The paper says so; a bus does not."),
    ],
  },
  {
    name: "Runs", keys: [
      number("runs.seed", "Seed", "", 1, 1000, 1, "The same seed gives the same bytes."),
      number("runs.replications", "Runs", "", 1, 40, 1,
        "Each with another seed and another part of the first slice over. The interval of the mean comes from them."),
    ],
  },
];

/** What a curve can be drawn over, with the values that show it. */
export const AXES = [
  ["workload.clients", "clients", "1..9"],
  ["host.clock_mhz", "host clock, MHz", "350,400,450,500,550,600,700,800,900"],
  ["nic.clock_mhz", "NIC clock, MHz", "50,75,100,125,150,175,200,250,300,400,500,700,1000"],
  ["host.background", "endless computations", "0..4"],
  ["host.quantum_ms", "time slice, ms", "5,10,20,50,100,150,200"],
  ["workload.compute_us", "application's work, µs", "0,100,200,500,1000,2000"],
  ["workload.request_packets", "packets per request", "1..8"],
  ["workload.requests_per_client", "requests per client", "20,40,60,80,100,150,200"],
  ["loss.bit_error_rate", "bit error rate", "0,1e-7,1e-6,1e-5"],
  ["nic.memory_kib", "NIC memory, KiB", "4,8,16,32,64"],
  ["interrupts.frames", "frames per interrupt", "1,2,4,8,16"],
];

const host = (s) => ["interrupt", "bottom half", "server", "poll thread", "spinning"]
  .reduce((sum, name) => sum + (s.busy_us_per_request[name] || 0), 0);

/** What a curve can show: how to read it from a summary, and what to say about it. */
export const METRICS = [
  {
    id: "survivors", name: "mean while load arrives, ms", of: (s) => s.during_load_mean_ms,
    explain: "The paper's metric: the mean over what was answered while requests still arrived. It is a survivors' mean: near livelock it flatters a stack that answers only the first few. Hollow marks stand where more is asked than can be done.",
  },
  {
    id: "mean", name: "mean of all, ms", of: (s) => s.response?.mean_ms, spread: (s) => s.response?.mean_plus_minus_ms,
    explain: "The mean over every answer, the late ones too. Bars are the 95 % confidence interval from run to run. Hollow marks: more is asked than can be done, so the mean depends on how long one watches.",
  },
  {
    id: "p99", name: "99th percentile, ms", of: (s) => s.response?.p99_ms,
    explain: "One answer in a hundred takes longer than this.",
  },
  {
    id: "late", name: "answered in the second half, %", of: (s) => 100 * s.late_share,
    explain: "Answers in the second half of the load as a share of what is asked in it. Below 5 % a stack has stopped answering: livelock. Above 100 % it serves a backlog.",
  },
  {
    id: "host", name: "host time per request, µs", of: host,
    explain: "Time of the host's processors per request, at their clock: interrupts, bottom halves and the server.",
  },
  {
    id: "interrupts", name: "interrupts per request", of: (s) => s.interrupts_per_request,
    explain: "A host stack is interrupted once per packet. With the stack on the NIC, once per segment: the NIC has put it together.",
  },
  {
    id: "memory", name: "NIC memory used, KiB", of: (s) => s.nic_memory_peak_bytes / 1024,
    explain: "The most that the NIC's memory held in any run. What does not fit is dropped.",
  },
  {
    id: "dropped", name: "dropped, %", of: (s) => 100 * s.dropped / s.requests,
    explain: "Requests that a full queue or a full memory refused.",
  },
];

export const hostTime = host;
