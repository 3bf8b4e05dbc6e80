//! When requests are made, and how long the network takes: equations (1) to (3) of the paper.

use super::{Machine, event::Id};
use crate::{
    rng::Rng,
    scenario::{Arrivals, Network, Phase, Transmission, Workload},
    time::{NEVER, Ns, from_us, round},
};

#[derive(Debug, Clone, Copy)]
pub(super) struct Request {
    /// When the client made it.
    pub made: Ns,
    /// When its last packet reached the machine.
    pub arrived: Ns,
    /// When its response left the machine.
    pub left: Ns,
    /// When the client has the response.
    pub answered: Ns,
    pub client: u32,
    /// Packets of it that the NIC's memory holds.
    pub held: u16,
    pub losses: u8,
    /// It was dropped and will not be answered.
    pub dropped: bool,
}

/// Delay of a packet without jitter, in microseconds: equations (1), (2) and (3).
pub(super) fn delay_us(network: &Network, bytes: f64) -> f64 {
    let bits = bytes * 8.0;
    let rates = network.rates_mbps.iter();
    let transmission = match network.transmission {
        Transmission::Paper => bits * network.rates_mbps.len() as f64 / rates.sum::<f64>(),
        Transmission::StoreAndForward => rates.map(|rate| bits / rate).sum(),
    };
    transmission + network.distance_m / network.speed_m_per_s * 1e6
}

/// Time on the server's own link alone.
pub(super) fn first_link_us(network: &Network, bytes: f64) -> f64 {
    bytes * 8.0 / network.rates_mbps[0]
}

/// When each request is made and by whom, in order of time.
pub(super) fn requests(workload: &Workload, rng: &mut Rng) -> Vec<Request> {
    let mut made = match workload.arrivals {
        Arrivals::Periodic => periodic(workload, rng, 1),
        Arrivals::Batch => periodic(workload, rng, workload.batch),
        Arrivals::Poisson => poisson(workload, rng, |at| at),
        Arrivals::OnOff => poisson(workload, rng, squeeze),
        Arrivals::Trace => traced(workload),
    };
    made.sort_by_key(|(at, _)| *at);
    if workload.requests_total > 0 {
        made.truncate(workload.requests_total);
    }
    made.into_iter()
        .map(|(made, client)| Request {
            made,
            arrived: NEVER,
            left: NEVER,
            answered: NEVER,
            client,
            held: 0,
            losses: 0,
            dropped: false,
        })
        .collect()
}

fn client_number(client: u64) -> u32 {
    u32::try_from(client).expect("invariant: the check allows a million clients")
}

fn periodic(workload: &Workload, rng: &mut Rng, batch: usize) -> Vec<(Ns, u32)> {
    let (clients, period) = (workload.clients, workload.period_ms * 1e6);
    let each = if workload.requests_total > 0 {
        workload.requests_total / clients + 2
    } else {
        workload.requests_per_client
    };
    let mut made = Vec::with_capacity(clients * each);
    let step = period * batch as f64;
    for client in 0..clients {
        let phase = match workload.phase {
            Phase::Together => 0.0,
            Phase::Spread => step * client as f64 / clients as f64,
            Phase::Random => rng.unit() * step,
        };
        made.extend((0..each).map(|k| {
            let at = phase + (k / batch) as f64 * step;
            (round(at), client_number(client as u64))
        }));
    }
    made
}

fn poisson(workload: &Workload, rng: &mut Rng, place: impl Fn(f64) -> f64) -> Vec<(Ns, u32)> {
    let clients = workload.clients;
    let mean = workload.period_ms * 1e6 / clients as f64;
    let total = if workload.requests_total > 0 {
        workload.requests_total
    } else {
        clients * workload.requests_per_client
    };
    let mut at = 0.0;
    (0..total)
        .map(|_| {
            at += rng.exponential(mean);
            let client = (rng.unit() * clients as f64).floor();
            (round(place(at)), client_number(round(client)))
        })
        .collect()
}

/// At given times; clients take turns in the order of the trace.
fn traced(workload: &Workload) -> Vec<(Ns, u32)> {
    let times = workload.arrivals_us.iter().enumerate();
    let client = |index: usize| client_number((index % workload.clients) as u64);
    times
        .map(|(index, us)| (from_us(*us), client(index)))
        .collect()
}

/// All of a second into its first half.
fn squeeze(ns: f64) -> f64 {
    const SECOND: f64 = 1e9;
    let whole = (ns / SECOND).floor() * SECOND;
    whole + (ns - whole) / 2.0
}

impl Machine<'_> {
    pub(super) fn jitter(&mut self) -> f64 {
        1.0 + self.scenario.network.jitter * self.rng.unit()
    }

    pub(super) fn network_delay(&mut self, bytes: f64) -> Ns {
        let us = delay_us(&self.scenario.network, bytes);
        from_us(us * self.jitter())
    }

    /// The packets of all requests, by the time at which they reach the machine.
    pub(super) fn packets_of_requests(&mut self) -> Vec<(Ns, Id, bool)> {
        let count = self.work.packets;
        let bytes = self.scenario.workload.request_bytes / count as f64;
        let mut packets = Vec::with_capacity(self.requests.len() * count);
        for index in 0..self.requests.len() {
            let made = self.requests[index].made;
            let request = Id::try_from(index).expect("invariant: the check allows five million");
            for packet in 1..=count {
                let at = made + self.network_delay(bytes) * packet as u64;
                packets.push((at, request, packet == count));
            }
        }
        packets.sort_by_key(|(at, ..)| *at);
        packets
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_networks_delay_is_the_sum_by_hand() {
        let network = Network::default();
        assert!((delay_us(&network, 256.0) - 20.98).abs() < 1e-9);
        assert!((delay_us(&network, 1024.0) - 82.42).abs() < 1e-9);
    }

    #[test]
    fn the_printed_equation_averages_rates_and_a_store_adds_them() {
        let mut network = Network {
            rates_mbps: vec![100.0, 10.0],
            distance_m: 0.0,
            ..Network::default()
        };
        assert!((delay_us(&network, 1000.0) - 8000.0 / 55.0).abs() < 1e-9);
        network.transmission = Transmission::StoreAndForward;
        assert!((delay_us(&network, 1000.0) - 880.0).abs() < 1e-9);
    }

    fn made(arrivals: Arrivals) -> Vec<Request> {
        let workload = Workload {
            arrivals,
            clients: 10,
            batch: 4,
            requests_per_client: 1000,
            ..Workload::default()
        };
        requests(&workload, &mut Rng::new(3))
    }

    #[test]
    fn every_process_of_arrivals_keeps_the_rate() {
        for arrivals in [
            Arrivals::Periodic,
            Arrivals::Poisson,
            Arrivals::Batch,
            Arrivals::OnOff,
        ] {
            let requests = made(arrivals);
            assert_eq!(requests.len(), 10_000);
            let seconds = requests.last().unwrap().made as f64 / 1e9;
            assert!((seconds - 10.0).abs() < 0.6, "{arrivals:?}: {seconds}");
        }
    }

    #[test]
    fn a_trace_is_followed_to_the_nanosecond() {
        let workload = Workload {
            arrivals: Arrivals::Trace,
            arrivals_us: vec![5.0, 0.5, 7.25],
            clients: 2,
            ..Workload::default()
        };
        let requests = requests(&workload, &mut Rng::new(1));
        let seen: Vec<(Ns, u32)> = requests.iter().map(|r| (r.made, r.client)).collect();
        assert_eq!(seen, [(500, 1), (5000, 0), (7250, 0)]);
    }

    #[test]
    fn on_and_off_is_silent_for_half_of_each_second() {
        let late = made(Arrivals::OnOff)
            .iter()
            .filter(|r| r.made % 1_000_000_000 > 500_000_000)
            .count();
        assert_eq!(late, 0);
    }
}
