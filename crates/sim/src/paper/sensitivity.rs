//! What the reproduction of Fig 8 rests on: one assumption changed at a time.

use serde::Serialize;

use super::{
    Figure,
    checks::{livelock_in, vs_kernel_in, vs_user_in},
    figures::{clients_of, scenario},
};
use crate::scenario::with_settings;

/// Fig 8 with one assumption changed.
#[derive(Debug, Clone, Serialize)]
pub struct Change {
    /// What is changed.
    pub name: &'static str,
    /// Least and most saved against the kernel, percent.
    pub vs_kernel_percent: (f64, f64),
    /// Least and most saved against user-level over one to six clients, percent.
    pub vs_user_percent: (f64, f64),
    /// Clients at which the user-level stack stops answering.
    pub livelock_clients: Option<f64>,
}

/// The changes: a name, and the setting that makes it.
const CHANGES: &str = "
as it is                             |
no background process                | host.background=0
two background processes             | host.background=2
bottom half at once                  | stack.bottom_half=immediate
bottom half before the choice        | stack.bottom_half_first=true
bottom half also after system calls  | stack.bottom_half=sysret
user-level receives in the interrupt | stack.receive=interrupt
two packets per request (profile A2) | stack.profile=A2
profile B                            | stack.profile=B
clients in phase                     | workload.phase=together
clients evenly spread                | workload.phase=spread
NIC at 500 MHz                       | nic.clock_mhz=500
synchronous host interface           | nic.mode=sync
40 requests per client               | workload.requests_per_client=40
90 requests per client               | workload.requests_per_client=90
1 ms of application work             | workload.compute_us=1000
host at 600 MHz                      | host.clock_mhz=600
woken server preempts                | host.wake=preempt
slices of 50 ms                      | host.quantum_ms=50
";

/// Simulates every change, with half of Fig 8's replications.
pub fn sensitivity() -> Vec<Change> {
    let base = scenario(Figure::Fig8);
    let one = |line: &'static str| {
        let (name, setting) = line.split_once('|').unwrap_or((line, ""));
        let name = name.trim();
        let setting = Some(setting.trim()).filter(|setting| !setting.is_empty());
        let settings = setting.into_iter().chain(["runs.replications=4"]);
        let changed = with_settings(&base, settings)
            .expect("invariant: the settings of the table fit, a test runs them");
        let rows = clients_of(&changed);
        Change {
            name,
            vs_kernel_percent: vs_kernel_in(&rows),
            vs_user_percent: vs_user_in(&rows),
            livelock_clients: livelock_in(&rows),
        }
    };
    CHANGES.trim().lines().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_rests_on_the_background_process_and_on_where_receiving_is_done() {
        let changes = sensitivity();
        let named = |name: &str| changes.iter().find(|c| c.name == name).unwrap();
        assert_eq!(named("as it is").livelock_clients, Some(7.0));
        // Without competition or with receiving in the interrupt nobody stops below ten clients.
        for name in [
            "no background process",
            "user-level receives in the interrupt",
        ] {
            assert_eq!(named(name).livelock_clients, None, "{name}");
        }
        for (name, clients) in [
            ("two background processes", 6.0),
            ("two packets per request (profile A2)", 5.0),
            ("host at 600 MHz", 8.0),
        ] {
            assert_eq!(named(name).livelock_clients, Some(clients), "{name}");
        }
        let least = |name: &str| named(name).vs_kernel_percent.0;
        assert!(least("bottom half at once") < 10.0);
        assert!(least("bottom half before the choice") < least("as it is") - 10.0);
        assert!(least("woken server preempts") > 90.0);
    }
}
