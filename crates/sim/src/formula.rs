//! The closed forms: equations (4) and (5) of the paper, the receive livelock, the NIC's clock, and
//! what queueing theory says that a simulation must find.

use crate::{
    machine::Work,
    scenario::{Kind, Profile, Scenario, Transfer},
};

/// Probability that a packet has a wrong bit.
pub fn packet_error_rate(bit_error_rate: f64, bytes: f64) -> f64 {
    1.0 - (1.0 - bit_error_rate).powf(8.0 * bytes)
}

/// Host time per request of the three stacks, in microseconds at the reference clock.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PerRequest {
    /// Kernel-resident stack.
    pub kernel_us: f64,
    /// User-level stack.
    pub user_us: f64,
    /// NIC-resident stack, on the host alone.
    pub nic_us: f64,
}

impl PerRequest {
    /// The costs of a scenario, with this many connections set up per request.
    pub fn new(scenario: &Scenario, connections_per_request: f64) -> Self {
        let host_us = |kind| {
            let mut s = scenario.clone();
            s.stack.kind = kind;
            if kind != Kind::Nic {
                s.bus.zero_copy = false;
            }
            s.host.clock_mhz = s.cost.reference_mhz;
            s.nic.clock_mhz = s.cost.reference_mhz;
            let work = Work::new(&s);
            let packets = work.packets as f64;
            let segment = (work.interrupt + work.announced) as f64;
            let set_up: f64 = match kind {
                Kind::Nic => work.set_up_interrupt as f64,
                _ => work
                    .set_up
                    .iter()
                    .map(|part| (part + work.set_up_interrupt) as f64)
                    .sum(),
            };
            let request = match kind {
                Kind::Nic => segment + work.serve as f64,
                _ => packets * (segment + work.receive as f64) + (work.segment + work.serve) as f64,
            };
            (request + set_up * connections_per_request) / 1e3
        };
        Self {
            kernel_us: host_us(Kind::Kernel),
            user_us: host_us(Kind::User),
            nic_us: host_us(Kind::Nic),
        }
    }

    /// Equation (4), with the processing of retransmissions of equation (5).
    pub fn reduction(&self, packet_error_rate: f64) -> f64 {
        let repeated = 1.0 / (1.0 - packet_error_rate);
        1.0 - 2.0 * self.nic_us / ((self.kernel_us + self.user_us) * repeated)
    }
}

/// Clients from which a user-level stack that receives first never answers.
pub fn livelock_clients(scenario: &Scenario) -> f64 {
    let mut s = scenario.clone();
    s.stack.kind = Kind::User;
    let work = Work::new(&s);
    let packets = work.packets as f64;
    let interrupt_s = packets * (work.interrupt + work.announced) as f64 / 1e9;
    let receive_s = (packets * work.receive as f64 + work.segment as f64) / 1e9;
    let share = 1.0 / (1.0 + s.host.background as f64);
    let per_client = 1e3 / s.workload.period_ms;
    1.0 / (per_client * (interrupt_s + receive_s / share))
}

/// Work of the NIC per request, in microseconds at the reference clock.
pub fn nic_work_us(scenario: &Scenario) -> f64 {
    let mut s = scenario.clone();
    s.stack.kind = Kind::Nic;
    s.nic.clock_mhz = s.cost.reference_mhz;
    let work = Work::new(&s);
    (work.packets as f64 * work.receive as f64 + (work.segment + work.transmit) as f64) / 1e3
}

/// NIC clock in MHz above which a burst of requests hides in one time slice.
pub fn burst_knee_mhz(scenario: &Scenario, requests: f64) -> f64 {
    let slice_us = scenario.host.quantum_ms * 1e3;
    requests * nic_work_us(scenario) * scenario.cost.reference_mhz / slice_us
}

/// NIC clock in MHz that a sustained rate needs.
pub fn sustained_mhz(scenario: &Scenario, requests_per_s: f64) -> f64 {
    requests_per_s * nic_work_us(scenario) / 1e6 * scenario.cost.reference_mhz
}

/// A scenario whose driver cost is paid in this part, as with DMA, for all stacks.
pub fn with_driver_share(scenario: &Scenario, share: f64) -> Scenario {
    let mut s = scenario.clone();
    s.bus.transfer = Transfer::Dma;
    s.bus.completion_us = s.cost.ex_phy_us * share;
    s
}

/// A scenario with a profile.
pub fn with_profile(scenario: &Scenario, profile: Profile) -> Scenario {
    let mut s = scenario.clone();
    s.stack.profile = profile;
    s
}

/// Mean wait of M/G/1 in units of the mean service: load, and the square of the coefficient of
/// variation of the service. Infinite where the load is 1 or more.
pub fn mg1_wait(load: f64, variation: f64) -> f64 {
    if load >= 1.0 {
        return f64::INFINITY;
    }
    load * (1.0 + variation) / (2.0 * (1.0 - load))
}

/// Erlang C: the probability that an arrival waits, with this many servers and this load per server.
pub fn erlang_c(servers: usize, load: f64) -> f64 {
    if load >= 1.0 {
        return 1.0;
    }
    let offered = load * servers as f64;
    // Erlang B by its recursion, which stays in range; then C from B.
    let blocked = (1..=servers).fold(1.0, |b, n| offered * b / (n as f64 + offered * b));
    blocked / (1.0 - load * (1.0 - blocked))
}

/// Mean wait of M/M/c in units of the mean service.
pub fn mmc_wait(servers: usize, load: f64) -> f64 {
    if load >= 1.0 {
        return f64::INFINITY;
    }
    erlang_c(servers, load) / (servers as f64 * (1.0 - load))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paper() -> Scenario {
        Scenario::default()
    }

    #[test]
    fn costs_per_request_are_those_of_the_table_in_the_specification() {
        let costs = PerRequest::new(&paper(), 1.0 / 60.0);
        assert!((costs.kernel_us - 2186.9).abs() < 0.05, "{costs:?}");
        assert!((costs.user_us - 2003.7).abs() < 0.05, "{costs:?}");
        assert!((costs.nic_us - 663.6).abs() < 0.05, "{costs:?}");
        assert!((nic_work_us(&paper()) - 1302.2).abs() < 1e-9);
    }

    #[test]
    fn each_profile_has_its_reduction_and_its_livelock() {
        for (profile, reduction, livelock) in [
            (Profile::A, 0.6833, 6.60),
            (Profile::A2, 0.7632, 4.16),
            (Profile::B, 0.6843, 4.16),
        ] {
            let s = with_profile(&paper(), profile);
            let costs = PerRequest::new(&s, 1.0 / 60.0);
            assert!(
                (costs.reduction(0.0) - reduction).abs() < 5e-5,
                "{profile:?} {costs:?}"
            );
            assert!(
                (livelock_clients(&s) - livelock).abs() < 0.005,
                "{profile:?}"
            );
        }
    }

    #[test]
    fn the_nics_clock_by_formula() {
        assert!((burst_knee_mhz(&paper(), 60.0) - 175.8).abs() < 0.05);
        assert!((sustained_mhz(&paper(), 900.0) - 527.4).abs() < 0.05);
    }

    #[test]
    fn error_rates_of_1024_byte_packets() {
        for (bits, packets) in [(1e-7, 8.19e-4), (1e-6, 8.16e-3), (1e-5, 7.87e-2)] {
            let ours = packet_error_rate(bits, 1024.0);
            assert!((ours / packets - 1.0).abs() < 2e-3, "{ours}");
        }
        assert!(packet_error_rate(0.0, 1024.0).abs() < 1e-12);
    }

    #[test]
    fn more_packets_per_segment_save_more() {
        for (packets, saved) in [(1, 68.0), (2, 76.0), (4, 84.0)] {
            let mut s = paper();
            s.workload.request_packets = packets;
            let ours = 100.0 * PerRequest::new(&s, 1.0 / 60.0).reduction(0.0);
            assert!((ours - saved).abs() < 0.6, "{packets}: {ours}");
        }
    }

    #[test]
    fn dma_and_zero_copy_save_more_as_the_paper_expects() {
        for (share, saved) in [(1.0, 0.68), (0.5, 0.76), (0.2, 0.82), (0.1, 0.84)] {
            let s = with_driver_share(&paper(), share);
            let ours = PerRequest::new(&s, 0.0).reduction(0.0);
            assert!((ours - saved).abs() < 0.006, "{share}: {ours}");
        }
        for (share, saved) in [(0.5, 0.84), (0.2, 0.90), (0.1, 0.93)] {
            let mut s = with_driver_share(&paper(), share);
            s.bus.zero_copy = true;
            let ours = PerRequest::new(&s, 0.0).reduction(0.0);
            assert!((ours - saved).abs() < 0.006, "{share}: {ours}");
        }
    }

    #[test]
    fn queueing_formulas_at_known_points() {
        assert!((mg1_wait(0.5, 1.0) - 1.0).abs() < 1e-12);
        assert!((mg1_wait(0.8, 0.0) - 2.0).abs() < 1e-12);
        assert!((mmc_wait(1, 0.5) - mg1_wait(0.5, 1.0)).abs() < 1e-12);
        // Two servers at half load: C = 2ρ²/(1+ρ) = 1/3.
        assert!((erlang_c(2, 0.5) - 1.0 / 3.0).abs() < 1e-12);
        assert!(mg1_wait(1.0, 1.0).is_infinite() && mmc_wait(4, 1.2).is_infinite());
    }
}
