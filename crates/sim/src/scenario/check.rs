//! Values that cannot be, and bounds that keep a run finite.

use super::{Arrivals, BottomHalf, Distribution, Kind, Mode, Receive, Scenario};

/// Most requests of a run: each takes some 24 bytes.
pub const MOST_REQUESTS: usize = 5_000_000;
/// Most processors, queues and background processes.
const MOST_UNITS: usize = 1024;
/// Most background processes of all processors together.
const MOST_PROCESSES: usize = 4096;
/// Most packets of one request.
const MOST_PACKETS: usize = 10_000;

type Fault = (&'static str, String);

fn above_zero(key: &'static str, value: f64) -> Result<(), Fault> {
    if value.is_finite() && value > 0.0 {
        Ok(())
    } else {
        Err((key, format!("must be above 0, is {value}")))
    }
}

fn not_negative(key: &'static str, value: f64) -> Result<(), Fault> {
    if value.is_finite() && value >= 0.0 {
        Ok(())
    } else {
        Err((key, format!("must be 0 or above, is {value}")))
    }
}

fn share(key: &'static str, value: f64) -> Result<(), Fault> {
    if (0.0..=1.0).contains(&value) {
        Ok(())
    } else {
        Err((key, format!("must be between 0 and 1, is {value}")))
    }
}

fn count(key: &'static str, value: usize, least: usize, most: usize) -> Result<(), Fault> {
    if (least..=most).contains(&value) {
        Ok(())
    } else {
        Err((
            key,
            format!("must be between {least} and {most}, is {value}"),
        ))
    }
}

/// The key at fault and what is wrong with it.
pub fn check(s: &Scenario) -> Result<(), Fault> {
    machine(s)?;
    surroundings(s)?;
    workload(s)?;
    costs(s)?;
    together(s)
}

fn machine(s: &Scenario) -> Result<(), Fault> {
    above_zero("host.clock_mhz", s.host.clock_mhz)?;
    count("host.cores", s.host.cores, 1, MOST_UNITS)?;
    above_zero("host.quantum_ms", s.host.quantum_ms)?;
    count("host.background", s.host.background, 0, MOST_UNITS)?;
    if let Some(phase) = s.host.background_phase_ms {
        not_negative("host.background_phase_ms", phase)?;
    }
    not_negative("host.handover_us", s.host.handover_us)?;
    above_zero("stack.tick_ms", s.stack.tick_ms)?;
    count("stack.poll_budget", s.stack.poll_budget, 1, 1 << 20)?;
    above_zero("nic.clock_mhz", s.nic.clock_mhz)?;
    count("nic.cores", s.nic.cores, 1, MOST_UNITS)?;
    not_negative("nic.memory_kib", s.nic.memory_kib)?;
    share("nic.memory_high", s.nic.memory_high)?;
    share("nic.memory_low", s.nic.memory_low)?;
    not_negative("nic.check_us", s.nic.check_us)?;
    count("interrupts.queues", s.interrupts.queues, 1, MOST_UNITS)?;
    not_negative("interrupts.after_us", s.interrupts.after_us)?;
    share("interrupts.fixed_share", s.interrupts.fixed_share)
}

fn surroundings(s: &Scenario) -> Result<(), Fault> {
    let b = &s.bus;
    for (key, value) in [
        ("bus.command_us", b.command_us),
        ("bus.doorbell_us", b.doorbell_us),
        ("bus.descriptor_us", b.descriptor_us),
        ("bus.completion_us", b.completion_us),
        ("bus.interrupt_us", b.interrupt_us),
        ("bus.rate_gbps", b.rate_gbps),
        ("bus.transaction_ns", b.transaction_ns),
        ("bus.read_latency_ns", b.read_latency_ns),
        ("bus.pin_us_per_page", b.pin_us_per_page),
        ("bus.unaligned_bytes", b.unaligned_bytes),
        ("bus.copy_us_per_byte", b.copy_us_per_byte),
        ("network.distance_m", s.network.distance_m),
        ("network.jitter", s.network.jitter),
        ("network.link_buffer_kib", s.network.link_buffer_kib),
        ("loss.timeout_ms", s.loss.timeout_ms),
    ] {
        not_negative(key, value)?;
    }
    count("network.rates_mbps", s.network.rates_mbps.len(), 1, 64)?;
    for rate in &s.network.rates_mbps {
        above_zero("network.rates_mbps", *rate)?;
    }
    above_zero("network.speed_m_per_s", s.network.speed_m_per_s)?;
    share("loss.bit_error_rate", s.loss.bit_error_rate)?;
    above_zero("loss.packet_bytes", s.loss.packet_bytes)
}

fn workload(s: &Scenario) -> Result<(), Fault> {
    let w = &s.workload;
    count("workload.clients", w.clients, 1, 1_000_000)?;
    above_zero("workload.period_ms", w.period_ms)?;
    count(
        "workload.arrivals_us",
        w.arrivals_us.len(),
        0,
        MOST_REQUESTS,
    )?;
    for time in &w.arrivals_us {
        not_negative("workload.arrivals_us", *time)?;
    }
    count(
        "workload.compute_samples",
        w.compute_samples.len(),
        0,
        MOST_REQUESTS,
    )?;
    for sample in &w.compute_samples {
        above_zero("workload.compute_samples", *sample)?;
    }
    count("workload.batch", w.batch, 1, 1_000_000)?;
    above_zero("workload.request_bytes", w.request_bytes)?;
    above_zero("workload.response_bytes", w.response_bytes)?;
    not_negative("workload.compute_us", w.compute_us)?;
    count("workload.connections", w.connections, 0, MOST_REQUESTS)?;
    above_zero("workload.horizon_s", w.horizon_s)?;
    if w.requests_total == 0 {
        count(
            "workload.requests_per_client",
            w.requests_per_client,
            1,
            MOST_REQUESTS / w.clients,
        )?;
    }
    count(
        "workload.requests_total",
        w.requests_total,
        0,
        MOST_REQUESTS,
    )?;
    let requests = match w.requests_total {
        0 => w.requests_per_client * w.clients,
        total => total,
    };
    count(
        "workload.request_packets",
        w.request_packets,
        0,
        MOST_PACKETS.min(MOST_REQUESTS / requests.max(1)).max(2),
    )?;
    count("runs.replications", s.runs.replications, 1, 100_000)?;
    count("runs.most", s.runs.most, 1, 100_000)?;
    not_negative("runs.until_percent", s.runs.until_percent)
}

fn costs(s: &Scenario) -> Result<(), Fault> {
    let c = &s.cost;
    above_zero("cost.reference_mhz", c.reference_mhz)?;
    for (key, value) in [
        ("cost.tx_sock_us", c.tx_sock_us),
        ("cost.tx_tr_us", c.tx_tr_us),
        ("cost.tx_net_us", c.tx_net_us),
        ("cost.tx_link_us", c.tx_link_us),
        ("cost.rx_sock_us", c.rx_sock_us),
        ("cost.rx_tr_us", c.rx_tr_us),
        ("cost.rx_net_us", c.rx_net_us),
        ("cost.rx_link_us", c.rx_link_us),
        ("cost.ex_sock_us", c.ex_sock_us),
        ("cost.ex_sys_us", c.ex_sys_us),
        ("cost.ex_phy_us", c.ex_phy_us),
    ] {
        not_negative(key, value)?;
    }
    Ok(())
}

/// Keys that contradict each other.
fn together(s: &Scenario) -> Result<(), Fault> {
    let fault = |key, reason: &str| Err((key, reason.to_owned()));
    if s.host.cores * s.host.background > MOST_PROCESSES {
        return fault(
            "host.background",
            "times host.cores is more than 4096 processes",
        );
    }
    if s.nic.mode == Mode::Urgent && s.nic.memory_kib == 0.0 {
        return fault("nic.mode", "\"urgent\" needs a limit: set nic.memory_kib");
    }
    if s.nic.memory_low > s.nic.memory_high {
        return fault("nic.memory_low", "must not be above nic.memory_high");
    }
    if s.interrupts.frames == 0 && s.interrupts.after_us == 0.0 {
        return fault(
            "interrupts.frames",
            "0 would never interrupt: set interrupts.after_us",
        );
    }
    if s.interrupts.frames > 1
        && s.interrupts.after_us == 0.0
        && (s.interrupts.ring_frames > 0 && s.interrupts.ring_frames < s.interrupts.frames)
    {
        return fault("interrupts.frames", "is more than interrupts.ring_frames");
    }
    if s.bus.zero_copy && s.stack.kind != Kind::Nic {
        return fault(
            "bus.zero_copy",
            "is between host and NIC: needs stack.kind = \"nic\"",
        );
    }
    if s.stack.busy_poll && s.stack.kind != Kind::User {
        return fault("stack.busy_poll", "needs stack.kind = \"user\"");
    }
    if s.stack.busy_poll && s.stack.receive == Receive::Interrupt {
        return fault(
            "stack.busy_poll",
            "contradicts stack.receive = \"interrupt\"",
        );
    }
    if s.stack.bottom_half == BottomHalf::Napi && s.interrupts.after_us > 0.0 {
        return fault(
            "interrupts.after_us",
            "stack.bottom_half = \"napi\" masks interrupts itself",
        );
    }
    let w = &s.workload;
    if (w.arrivals == Arrivals::Trace) == w.arrivals_us.is_empty() {
        return fault(
            "workload.arrivals_us",
            "and workload.arrivals = \"trace\" need each other",
        );
    }
    if (w.compute == Distribution::Empirical) == w.compute_samples.is_empty() {
        return fault(
            "workload.compute_samples",
            "and workload.compute = \"empirical\" need each other",
        );
    }
    if s.nic.service == Distribution::Empirical {
        return fault("nic.service", "\"empirical\" is for workload.compute only");
    }
    if s.workload.batch > 1 && s.workload.arrivals != Arrivals::Batch {
        return fault("workload.batch", "needs workload.arrivals = \"batch\"");
    }
    Ok(())
}
