//! The control path of an offload engine: sockets cost more to create and close on it, and less to
//! use. From how many send and receive pairs per connection does it pay?
//!
//! The host posts commands to a doorbell ring; where the ring is full it waits for the device; a
//! completion wakes it. Costs are those of the `toe` paper (Pentium 4, µs of host time).

use std::collections::VecDeque;

use crate::time::{Ns, from_us};

/// Host time of the calls, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Calls {
    /// Creating a socket.
    pub create_us: f64,
    /// Closing it.
    pub close_us: f64,
    /// One send.
    pub send_us: f64,
    /// One receive.
    pub receive_us: f64,
}

/// The kernel's own sockets.
pub const INET: Calls = Calls {
    create_us: 11.1,
    close_us: 8.8,
    send_us: 83.2,
    receive_us: 73.3,
};

/// Sockets through the offload module.
pub const OFFLOADED: Calls = Calls {
    create_us: 50.7,
    close_us: 51.4,
    send_us: 46.2,
    receive_us: 49.2,
};

/// The device behind a doorbell ring.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Device {
    /// Commands that the ring holds.
    pub ring: usize,
    /// What a command costs the device.
    pub command_us: f64,
    /// Host time to wake the thread that takes a completion, where it had to wait.
    pub wake_us: f64,
}

/// What a connection cost.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cost {
    /// Host time.
    pub host_us: f64,
    /// From its creation to the end of its close.
    pub elapsed_us: f64,
    /// Times that the host found the ring full.
    pub waits: u64,
}

/// One connection with this many send and receive pairs.
pub fn connection(calls: &Calls, device: Option<&Device>, pairs: usize) -> Cost {
    let mut steps = vec![calls.create_us];
    for _ in 0..pairs {
        steps.extend([calls.send_us, calls.receive_us]);
    }
    steps.push(calls.close_us);
    let (mut now, mut host, mut waits): (Ns, Ns, u64) = (0, 0, 0);
    let mut ring: VecDeque<Ns> = VecDeque::new();
    let mut device_free: Ns = 0;
    for step in steps {
        let length = from_us(step);
        now += length;
        host += length;
        let Some(device) = device else { continue };
        while ring.front().is_some_and(|done| *done <= now) {
            ring.pop_front();
        }
        if ring.len() >= device.ring
            && let Some(done) = ring.pop_front()
        {
            let wake = from_us(device.wake_us);
            now = done + wake;
            host += wake;
            waits += 1;
        }
        device_free = device_free.max(now) + from_us(device.command_us);
        ring.push_back(device_free);
    }
    now = now.max(ring.back().copied().unwrap_or(0));
    Cost {
        host_us: host as f64 / 1e3,
        elapsed_us: now as f64 / 1e3,
        waits,
    }
}

/// Pairs per connection from which the second way costs the host less, simulated: where the two lines
/// through connections without and with pairs cross.
pub fn break_even_pairs(kernel: &Calls, offloaded: &Calls, device: &Device) -> f64 {
    let host = |calls, device, pairs| connection(calls, device, pairs).host_us;
    let start = host(offloaded, Some(device), 0) - host(kernel, None, 0);
    const MANY: usize = 1000;
    let end = host(offloaded, Some(device), MANY) - host(kernel, None, MANY);
    if end >= start {
        return f64::INFINITY;
    }
    start / ((start - end) / MANY as f64)
}

/// The same in closed form.
pub fn break_even_formula(kernel: &Calls, offloaded: &Calls) -> f64 {
    let more = offloaded.create_us + offloaded.close_us - kernel.create_us - kernel.close_us;
    let less = kernel.send_us + kernel.receive_us - offloaded.send_us - offloaded.receive_us;
    more / less
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAST: Device = Device {
        ring: 64,
        command_us: 5.0,
        wake_us: 10.0,
    };

    #[test]
    fn the_calls_are_the_papers() {
        let facts = crate::paper::Facts::toe();
        for (calls, side, layer) in [(INET, "inet", "inet"), (OFFLOADED, "toe", "topl")] {
            for (ours, fact) in [
                (calls.create_us, format!("toe.create.{side}")),
                (calls.close_us, format!("toe.delete.{side}")),
                (calls.send_us, format!("toe.send.{layer}")),
                (calls.receive_us, format!("toe.recv.{layer}")),
            ] {
                assert!((ours - facts.number(&fact)).abs() < 1e-9, "{fact}");
            }
        }
    }

    #[test]
    fn the_break_even_of_the_simulation_is_that_of_the_formula() {
        let formula = break_even_formula(&INET, &OFFLOADED);
        assert!((formula - 82.2 / 61.1).abs() < 1e-9);
        let simulated = break_even_pairs(&INET, &OFFLOADED, &FAST);
        assert!((simulated - formula).abs() < 1e-6, "{simulated}");
    }

    #[test]
    fn a_connection_with_one_pair_loses_and_with_two_wins() {
        let host = |calls, pairs| connection(calls, None, pairs).host_us;
        assert!(host(&OFFLOADED, 1) > host(&INET, 1));
        assert!(host(&OFFLOADED, 2) < host(&INET, 2));
    }

    #[test]
    fn a_slow_device_fills_its_ring_and_moves_the_break_even() {
        let slow = Device {
            ring: 2,
            command_us: 80.0,
            wake_us: 10.0,
        };
        assert!(connection(&OFFLOADED, Some(&slow), 100).waits > 50);
        assert!(break_even_pairs(&INET, &OFFLOADED, &slow) > 1.35);
    }
}
