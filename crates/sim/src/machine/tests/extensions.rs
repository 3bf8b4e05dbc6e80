//! What goes beyond the paper's machine: each extension does what it says and nothing when it is off.

use super::super::*;
use crate::scenario::{
    Arrivals, BottomHalf, Dispatch, Distribution, Kind, Mode, Placement, Profile, Repeat, Transfer,
};

fn of(kind: Kind) -> Scenario {
    let mut s = Scenario::default();
    s.stack.kind = kind;
    s.network.jitter = 0.0;
    s
}

/// One request, nothing else to do: its response time in nanoseconds.
fn alone(mut s: Scenario) -> Ns {
    s.host.background = 0;
    s.workload.requests_per_client = 1;
    let outcome = Machine::run(&s, 1, 0);
    outcome.responses().next().unwrap()
}

#[test]
fn dma_takes_the_bus_and_adds_the_latency_of_a_read() {
    let mut s = of(Kind::Nic);
    s.bus.transfer = Transfer::Dma;
    s.bus.completion_us = s.cost.ex_phy_us;
    let without = alone(s.clone());
    assert_eq!(without, alone(of(Kind::Nic)));
    s.bus.rate_gbps = 1.0;
    s.bus.read_latency_ns = 170.0;
    s.bus.transaction_ns = 10.0;
    // 256 bytes up in one transaction, 1024 down in four, and the device's read.
    assert_eq!(alone(s) - without, 2048 + 10 + 8192 + 40 + 170);
}

#[test]
fn doorbells_and_descriptors_cost_the_host() {
    let mut s = of(Kind::Kernel);
    s.bus.transfer = Transfer::Dma;
    let without = alone(s.clone());
    s.bus.doorbell_us = 1.0;
    s.bus.descriptor_us = 2.0;
    s.workload.response_bytes = 1024.0;
    // One page, at 500 MHz: (1 + 2) × 450 / 500.
    assert_eq!(alone(s) - without, 2_700);
}

#[test]
fn zero_copy_leaves_the_library_call_and_what_is_not_aligned() {
    let mut s = of(Kind::Nic);
    let copied = Work::new(&s).serve;
    s.bus.zero_copy = true;
    let free = Work::new(&s).serve;
    assert_eq!(
        copied - free,
        crate::time::from_us((102.2 + 128.5 - 81.7) * 0.9)
    );
    s.bus.unaligned_bytes = 63.0;
    s.bus.copy_us_per_byte = 0.01;
    s.bus.registered = false;
    s.bus.pin_us_per_page = 2.0;
    assert_eq!(
        Work::new(&s).serve - free,
        crate::time::from_us((0.63 + 2.0) * 0.9)
    );
}

#[test]
fn a_nic_repeats_a_lost_exchange_without_the_host() {
    let host = |bit_error_rate, kind| {
        let mut s = of(kind);
        s.host.background = 0;
        s.loss.bit_error_rate = bit_error_rate;
        s.workload.requests_per_client = 2000;
        let outcome = Machine::run(&s, 1, 0);
        assert_eq!(outcome.answered, 2000);
        (outcome.busy.host(), outcome.busy.nic)
    };
    let (host_ideal, nic_ideal) = host(0.0, Kind::Nic);
    let (host_lossy, nic_lossy) = host(1e-5, Kind::Nic);
    assert_eq!(host_ideal, host_lossy);
    assert!(nic_lossy > nic_ideal);
    assert!(host(1e-5, Kind::Kernel).0 > host(0.0, Kind::Kernel).0);
}

#[test]
fn a_lost_packet_waits_for_its_time_out_and_is_repeated_by_its_owner() {
    for kind in [Kind::Kernel, Kind::User, Kind::Nic] {
        let mut s = of(kind);
        s.host.background = 0;
        s.loss.repeat = Repeat::Packet;
        s.loss.bit_error_rate = 1e-5;
        s.loss.timeout_ms = 200.0;
        s.workload.requests_per_client = 1000;
        let outcome = Machine::run(&s, 2, 0);
        assert_eq!(outcome.answered, 1000, "{kind:?}");
        let slow = outcome.responses().filter(|ns| *ns > 200_000_000).count();
        assert!(slow > 50, "{kind:?}: {slow}");
        // Requests and responses are lost alike: about two in thirteen of the exchanges.
        assert!(
            (130..230).contains(&outcome.losses),
            "{kind:?}: {}",
            outcome.losses
        );
    }
}

#[test]
fn napi_ends_the_livelock_of_immediate_bottom_halves() {
    let late = |bottom_half, ring_frames| {
        let mut s = of(Kind::Kernel);
        s.stack.bottom_half = bottom_half;
        s.interrupts.ring_frames = ring_frames;
        s.workload.clients = 12;
        s.workload.requests_per_client = 300;
        Machine::run(&s, 1, 0).late_share()
    };
    assert!(late(BottomHalf::Immediate, 0) < 0.05);
    let polled = late(BottomHalf::Napi, 256);
    assert!(polled > 0.2, "{polled}");
}

#[test]
fn napi_interrupts_once_for_what_it_can_poll() {
    let mut s = of(Kind::Kernel);
    s.host.background = 0;
    s.workload.clients = 10;
    s.workload.phase = crate::scenario::Phase::Together;
    s.stack.bottom_half = BottomHalf::Napi;
    let outcome = Machine::run(&s, 1, 0);
    assert_eq!(outcome.answered, 600);
    assert!(outcome.causes.interrupts() < 300, "{:?}", outcome.causes);
}

#[test]
fn a_full_ring_interrupts_and_drops_what_is_beyond() {
    let mut s = of(Kind::User);
    s.interrupts.frames = 0;
    s.interrupts.after_us = 1e6;
    s.interrupts.ring_frames = 4;
    s.workload.clients = 9;
    let outcome = Machine::run(&s, 1, 0);
    assert!(outcome.causes.ring_full > 0 && outcome.dropped > 0);
    assert_eq!(outcome.answered + outcome.dropped, outcome.requests());
}

#[test]
fn busy_polling_has_no_interrupts_and_no_idle_processor() {
    let mut s = of(Kind::User);
    s.host.background = 0;
    s.stack.busy_poll = true;
    let outcome = Machine::run(&s, 1, 0);
    assert_eq!((outcome.answered, outcome.busy.interrupt), (60, 0));
    assert_eq!(outcome.busy.spin + outcome.busy.server, outcome.ended);
    let mut shared = s.clone();
    shared.host.background = 1;
    let outcome = Machine::run(&shared, 1, 0);
    assert!(outcome.busy.background > 0 && outcome.answered == 60);
}

#[test]
fn one_connection_uses_one_queue_and_many_use_all() {
    let frames = |clients| {
        let mut s = of(Kind::Kernel);
        s.host.cores = 4;
        s.interrupts.queues = 4;
        s.workload.clients = clients;
        let outcome = Machine::run(&s, 1, 0);
        assert_eq!(outcome.answered, outcome.requests());
        outcome.queue_frames
    };
    assert_eq!(frames(1).iter().filter(|n| **n > 0).count(), 1);
    assert!(frames(64).iter().all(|n| *n > 0));
}

#[test]
fn a_hand_over_between_processors_costs_and_affinity_avoids_it() {
    let response = |placement, handover_us| {
        let mut s = of(Kind::Kernel);
        s.host.cores = 4;
        s.host.background = 0;
        s.host.placement = placement;
        s.host.handover_us = handover_us;
        s.interrupts.queues = 4;
        s.workload.clients = 16;
        s.workload.phase = crate::scenario::Phase::Spread;
        Machine::run(&s, 1, 0).mean_us().unwrap()
    };
    assert!(response(Placement::Spread, 50.0) > response(Placement::Spread, 0.0) + 20.0);
    let (free, paid) = (
        response(Placement::Affine, 0.0),
        response(Placement::Affine, 50.0),
    );
    assert!((free - paid).abs() < 1e-9);
}

#[test]
fn more_nic_processors_serve_more_in_every_dispatch() {
    let mean = |dispatch, cores| {
        let mut s = of(Kind::Nic);
        s.host.background = 0;
        s.nic.clock_mhz = 200.0;
        s.nic.dispatch = dispatch;
        s.nic.cores = cores;
        s.workload.clients = 9;
        let outcome = Machine::run(&s, 1, 0);
        assert_eq!(outcome.answered, 540);
        outcome.mean_us().unwrap()
    };
    let one = mean(Dispatch::Shared, 1);
    for dispatch in [Dispatch::Shared, Dispatch::Flow, Dispatch::Pipeline] {
        assert!((mean(dispatch, 1) - one).abs() < 1e-9, "{dispatch:?}");
        assert!(mean(dispatch, 3) < one / 3.0, "{dispatch:?}");
    }
}

#[test]
fn nic_memory_drops_when_full_and_the_urgent_mode_prevents_it() {
    let outcome = |mode| {
        let mut s = of(Kind::Nic);
        s.nic.mode = mode;
        s.nic.memory_kib = 4.0;
        s.workload.clients = 6;
        Machine::run(&s, 1, 0)
    };
    let (sync, urgent) = (outcome(Mode::Sync), outcome(Mode::Urgent));
    assert!(sync.dropped > 0);
    assert!(sync.nic_memory_peak_bytes <= 4096.0);
    assert_eq!((urgent.dropped, urgent.answered), (0, 360));
    assert!(urgent.causes.urgent > 0);
}

#[test]
fn a_sync_read_interrupts_less_than_pushing() {
    let interrupts = |mode| {
        let mut s = of(Kind::Nic);
        s.nic.mode = mode;
        s.workload.clients = 6;
        Machine::run(&s, 1, 0).causes.interrupts()
    };
    assert!(interrupts(Mode::Sync) < interrupts(Mode::Push) / 2);
}

#[test]
fn a_command_costs_its_way_over_the_bus_and_its_check() {
    let mut s = of(Kind::Nic);
    let without = alone(s.clone());
    s.bus.command_us = 1.0;
    s.nic.check_us = 2.0;
    // The host waits there and back and for the check; the NIC checks before it transmits.
    assert_eq!(alone(s) - without, 2_000 + 900 + 900);
}

#[test]
fn responses_queue_for_the_link_and_beyond_its_buffer_are_dropped() {
    let outcome = |link_buffer_kib| {
        let mut s = of(Kind::User);
        s.host.background = 0;
        s.network.rates_mbps = vec![1.0];
        s.network.link_queue = true;
        s.network.link_buffer_kib = link_buffer_kib;
        s.workload.clients = 2;
        Machine::run(&s, 1, 0)
    };
    // 1 KB takes 8.2 ms at 1 Mbit/s, and two come every 10 ms.
    let endless = outcome(0.0);
    assert_eq!(endless.answered, 120);
    assert!(endless.resources["link"].wait_mean_us > 100_000.0);
    let bounded = outcome(8.0);
    assert!(bounded.dropped > 0 && bounded.resources["link"].wait_mean_us < 70_000.0);
}

#[test]
fn profiles_charge_what_they_say() {
    for (profile, packets) in [(Profile::A, 1), (Profile::A2, 2), (Profile::B, 2)] {
        let mut s = of(Kind::Kernel);
        s.stack.profile = profile;
        let outcome = Machine::run(&s, 1, 0);
        assert_eq!(outcome.causes.interrupts(), 60 * packets, "{profile:?}");
        s.stack.kind = Kind::Nic;
        let outcome = Machine::run(&s, 1, 0);
        assert_eq!(
            outcome.causes.interrupts(),
            60,
            "{profile:?}: one per segment"
        );
    }
}

#[test]
fn what_is_off_changes_nothing_to_the_last_bit() {
    let times = |s: &Scenario| Machine::run(s, 9, 0).times().collect::<Vec<_>>();
    for kind in [Kind::Kernel, Kind::User, Kind::Nic] {
        let mut plain = Scenario::default();
        plain.stack.kind = kind;
        plain.workload.clients = 4;
        let mut off = plain.clone();
        // One packet per interrupt pays the same however the cost is split; values of what is off.
        off.interrupts.fixed_share = 0.37;
        off.interrupts.after_us = 50.0;
        off.bus.rate_gbps = 1.0;
        off.bus.completion_us = 7.0;
        off.nic.memory_high = 0.6;
        off.loss.timeout_ms = 200.0;
        off.stack.poll_budget = 3;
        assert_eq!(times(&plain), times(&off), "{kind:?}");
    }
}

#[test]
fn random_work_keeps_its_mean() {
    let mut s = of(Kind::User);
    s.host.background = 0;
    s.workload.compute_us = 500.0;
    s.workload.requests_per_client = 5000;
    let fixed = Machine::run(&s, 1, 0).busy.server as f64;
    s.workload.compute = Distribution::Exponential;
    s.workload.arrivals = Arrivals::Poisson;
    let random = Machine::run(&s, 1, 0).busy.server as f64;
    assert!((random / fixed - 1.0).abs() < 0.03);
}
