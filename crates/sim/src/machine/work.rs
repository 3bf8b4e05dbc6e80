//! Costs of a scenario, resolved: how long each step takes on its processor, in nanoseconds.
//!
//! Which layer runs where is the subject of the paper's sections 3 and 4; docs/simulator.md has the
//! table.

use crate::{
    scenario::{Kind, Profile, Receive, Scenario, Transfer},
    time::{Ns, from_us},
};

/// How long each step takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Work {
    /// Packets as which a request arrives.
    pub packets: usize,
    /// Host: an interrupt, once.
    pub interrupt: Ns,
    /// Host: each packet or segment that the interrupt announces.
    pub announced: Ns,
    /// Host or NIC: link and network layer of a received packet.
    pub receive: Ns,
    /// Host or NIC: transport layer, with a segment's last packet.
    pub segment: Ns,
    /// Protocol work is done inside the interrupt.
    pub in_interrupt: bool,
    /// Server process: reading and answering, without the application's work.
    pub serve: Ns,
    /// Server process: fetching a segment that waits on the NIC.
    pub fetch: Ns,
    /// Server process: answering only, where the segment was fetched before.
    pub answer: Ns,
    /// Host or NIC: transport, network and link of a response.
    pub transmit: Ns,
    /// NIC: the three layers of a received packet, for a pipeline; transport with the last only.
    pub receive_layers: [Ns; 3],
    /// NIC: the three layers of a response.
    pub transmit_layers: [Ns; 3],
    /// Host: a connection's two received packets, protocol work only; in an interrupt each.
    pub set_up: [Ns; 2],
    /// Host interrupt for each packet of a set-up.
    pub set_up_interrupt: Ns,
    /// The application's work per request.
    pub compute: Ns,
    /// The application's work as samples have it.
    pub samples: Vec<Ns>,
    /// Interrupting another processor.
    pub handover: Ns,
}

/// Bytes of a page.
const PAGE: f64 = 4096.0;

impl Work {
    /// The costs of this scenario.
    pub fn new(s: &Scenario) -> Self {
        let host = |us: f64| from_us(us * s.cost.reference_mhz / s.host.clock_mhz);
        let nic = |us: f64| from_us(us * s.cost.reference_mhz / s.nic.clock_mhz);
        let c = &s.cost;
        let on_nic = s.stack.kind == Kind::Nic;
        let owner = |us: f64| if on_nic { nic(us) } else { host(us) };
        let (interrupt, announced) = driver(s);
        let segment_layer = c.rx_tr_us + if socket_on_nic(s) { c.rx_sock_us } else { 0.0 };
        let transmit_layer =
            c.tx_tr_us + if socket_on_nic(s) { c.tx_sock_us } else { 0.0 } + nic_check(s);
        let (read_us, write_us) = process_us(s);
        let command = from_us(2.0 * s.bus.command_us) + nic(nic_check(s));
        let write = host(write_us) + doorbell(s) + if on_nic { command } else { 0 };
        let read = host(read_us);
        let transmit = transmit_layer + c.tx_net_us + c.tx_link_us;
        let kernel_or_user = host(
            read_us + write_us + c.tx_tr_us + c.tx_net_us + c.tx_link_us + transmit_driver_us(s),
        ) + doorbell(s);
        let received = c.rx_link_us + c.rx_net_us + c.rx_tr_us;
        Self {
            packets: packets(s),
            interrupt,
            announced,
            receive: owner(c.rx_link_us + c.rx_net_us),
            segment: owner(segment_layer),
            in_interrupt: s.stack.kind == Kind::User && s.stack.receive == Receive::Interrupt,
            serve: if on_nic { read + write } else { kernel_or_user },
            fetch: read + interrupt + announced + command,
            answer: write,
            transmit: owner(transmit),
            receive_layers: [nic(c.rx_link_us), nic(c.rx_net_us), nic(segment_layer)],
            transmit_layers: [nic(transmit_layer), nic(c.tx_net_us), nic(c.tx_link_us)],
            set_up: [
                host(received + c.tx_tr_us + c.tx_net_us + c.tx_link_us + transmit_driver_us(s)),
                host(received),
            ],
            set_up_interrupt: interrupt + announced + if on_nic { host(c.ex_sock_us) } else { 0 },
            compute: host(s.workload.compute_us),
            samples: {
                let samples = s.workload.compute_samples.iter();
                let mean = samples.clone().sum::<f64>() / samples.len() as f64;
                let length = |sample: &f64| host(s.workload.compute_us * sample / mean);
                samples.map(length).collect()
            },
            handover: from_us(s.host.handover_us),
        }
    }
}

/// Packets as which a request arrives.
fn packets(s: &Scenario) -> usize {
    match (s.workload.request_packets, s.stack.profile) {
        (0, Profile::A) => 1,
        (0, Profile::A2 | Profile::B) => 2,
        (given, _) => given,
    }
}

fn socket_on_nic(s: &Scenario) -> bool {
    s.stack.kind == Kind::Nic && s.stack.profile == Profile::B
}

fn nic_check(s: &Scenario) -> f64 {
    if s.stack.kind == Kind::Nic {
        s.nic.check_us
    } else {
        0.0
    }
}

/// The driver's cost of a received packet: once per interrupt, and per packet that it announces.
fn driver(s: &Scenario) -> (Ns, Ns) {
    let scale = if s.cost.scale_physical {
        s.cost.reference_mhz / s.host.clock_mhz
    } else {
        1.0
    };
    match s.bus.transfer {
        Transfer::Pio => {
            let whole = from_us(s.cost.ex_phy_us * scale);
            let once = from_us(s.cost.ex_phy_us * scale * s.interrupts.fixed_share).min(whole);
            // The rest is what is left, so that one packet per interrupt costs the same to the bit.
            (once, whole - once)
        }
        Transfer::Dma => (
            from_us(s.bus.interrupt_us * scale),
            from_us(s.bus.completion_us * scale),
        ),
    }
}

/// The driver's cost of a response, where the profile charges it.
fn transmit_driver_us(s: &Scenario) -> f64 {
    if s.stack.profile == Profile::B && s.bus.transfer == Transfer::Pio {
        s.cost.ex_phy_us
    } else {
        0.0
    }
}

/// Announcing a response to a device that fetches it itself.
fn doorbell(s: &Scenario) -> Ns {
    if s.bus.transfer == Transfer::Pio {
        return 0;
    }
    let pages = (s.workload.response_bytes / PAGE).ceil();
    let us = s.bus.doorbell_us + pages * s.bus.descriptor_us;
    from_us(us * s.cost.reference_mhz / s.host.clock_mhz)
}

/// What the server process pays for reading and for writing, without the layers below the socket.
fn process_us(s: &Scenario) -> (f64, f64) {
    let c = &s.cost;
    match (s.stack.kind, s.stack.profile) {
        (Kind::Kernel, _) => (c.ex_sys_us + c.rx_sock_us, c.ex_sys_us + c.tx_sock_us),
        (Kind::User, _) => (c.rx_sock_us, c.tx_sock_us),
        (Kind::Nic, _) if s.bus.zero_copy => (c.ex_sock_us, zero_copy_us(s)),
        (Kind::Nic, Profile::B) => (c.ex_sock_us, c.ex_sock_us + transmit_driver_us(s)),
        (Kind::Nic, _) => (c.rx_sock_us, c.tx_sock_us),
    }
}

/// What is left of a response's copy when the device reads it where it lies.
fn zero_copy_us(s: &Scenario) -> f64 {
    let pages = (s.workload.response_bytes / PAGE).ceil();
    let pinned = if s.bus.registered {
        0.0
    } else {
        pages * s.bus.pin_us_per_page
    };
    pinned + s.bus.unaligned_bytes * s.bus.copy_us_per_byte
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(kind: Kind) -> Work {
        let mut scenario = Scenario::default();
        scenario.stack.kind = kind;
        Work::new(&scenario)
    }

    #[test]
    fn the_unloaded_response_is_the_sum_by_hand() {
        // Section 14 of the specification: 500 MHz host, 1 GHz NIC, without the network's 103.40 µs.
        let kernel = work(Kind::Kernel);
        let sum = kernel.interrupt + kernel.receive + kernel.segment + kernel.serve;
        assert_eq!(sum, 1_926_540);
        let user = work(Kind::User);
        let sum = user.interrupt + user.receive + user.segment + user.serve;
        assert_eq!(sum, 1_761_660);
        let nic = work(Kind::Nic);
        assert_eq!(nic.interrupt + nic.serve, 589_680);
        assert_eq!(nic.receive + nic.segment + nic.transmit, 585_990);
    }

    #[test]
    fn costs_shrink_with_the_clock_and_the_bus_part_only_if_asked() {
        let mut scenario = Scenario::default();
        scenario.host.clock_mhz = 900.0;
        assert_eq!(Work::new(&scenario).interrupt, 212_250);
        scenario.cost.scale_physical = false;
        assert_eq!(Work::new(&scenario).interrupt, 424_500);
    }

    #[test]
    fn a_split_driver_cost_adds_up_to_the_whole() {
        let mut scenario = Scenario::default();
        scenario.interrupts.fixed_share = 0.3;
        let work = Work::new(&scenario);
        assert_eq!(work.interrupt + work.announced, 382_050);
    }
}
