//! The trials of a calibration once more, now as workloads of the model that was fitted to them: how much longer or shorter they
//! took than it makes of them, for each number of clients.

use load::{
    requests::{Each, Seen},
    trial::Work,
};
use sim::plan::{Client, Costs, Trial, Workload, closed_loop};
use statistics::Summary;

use crate::control::on_the_usual;

/// A server of one thread on two processors, of which its clients use the other.
pub fn one_thread() -> Workload {
    Workload {
        threads: 1,
        host_cores: 2,
        wake_share: 0.0,
        ..Workload::default()
    }
}

/// What such a server is asked.
pub fn workload_of(work: Work) -> Workload {
    Workload {
        request_bytes: work.request_bytes as f64,
        response_bytes: work.response_bytes as f64,
        application_ns: work.compute_ns as f64,
        together: work.together,
        ..one_thread()
    }
}

/// What was seen on a machine of that ratio. What the server computes it measures off by the clock.
pub fn seen_on_the_usual(seen: &Seen, work: Work, ratio: f64) -> Seen {
    let by_clock_ns = work.compute_ns as f64;
    let between_ns = 1e9 / seen.rate_per_s;
    let longer = on_the_usual(between_ns, by_clock_ns, ratio) / between_ns;
    let server_ns = on_the_usual(seen.server.processor_ns, by_clock_ns, ratio);
    Seen {
        rate_per_s: seen.rate_per_s / longer,
        mean_us: seen.mean_us * longer,
        p50_us: seen.p50_us * longer,
        p99_us: seen.p99_us * longer,
        client_ns: seen.client_ns * ratio,
        client: Each {
            processor_ns: seen.client.processor_ns * ratio,
            ..seen.client
        },
        server: Each {
            processor_ns: server_ns,
            ..seen.server
        },
    }
}

/// What trials say beside costs that were fitted to those `seen`, and how far off these and the `checks` are, whichever is further.
pub fn beside(
    seen: &[(Work, usize, Seen)],
    checks: &[(Work, usize, Seen)],
    costs: &Costs,
    client: &Client,
) -> Vec<Trial> {
    let costs = Costs {
        trials: Vec::new(),
        ..costs.clone()
    };
    let mut numbers: Vec<usize> = seen.iter().map(|(_, clients, _)| *clients).collect();
    numbers.sort_unstable();
    numbers.dedup();
    // Between answers, as it was seen and as the model makes it.
    let between_ns = |those: &[(Work, usize, Seen)], clients: usize| -> Vec<[f64; 2]> {
        let its = those.iter().filter(|(_, of, _)| *of == clients);
        its.map(|(work, _, seen)| {
            let model = closed_loop(&workload_of(*work), &costs, client, clients);
            [1e9 / seen.rate_per_s, 1e9 / model.rate_per_s]
        })
        .collect()
    };
    let of = |clients: usize| {
        let fitted = between_ns(seen, clients);
        let more: Vec<f64> = fitted.iter().map(|[seen, model]| seen - model).collect();
        let more_ns = Summary::of(&more)?.median;
        let off = off(&fitted, more_ns).max(off(&between_ns(checks, clients), more_ns));
        Some(Trial {
            clients,
            more_ns: more_ns.round(),
            off: (off * 1000.0).round() / 1000.0,
        })
    };
    numbers.into_iter().filter_map(of).collect()
}

/// Root of the mean square of how far the model is off with `more_ns`, as a part of what was seen.
fn off(between_ns: &[[f64; 2]], more_ns: f64) -> f64 {
    let squares = between_ns
        .iter()
        .map(|[seen, model]| ((model + more_ns) / seen - 1.0).powi(2));
    (squares.sum::<f64>() / between_ns.len().max(1) as f64).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use sim::plan::Preset;

    /// Trials that took this much longer than the model makes of them.
    fn seen(
        costs: &Costs,
        client: &Client,
        more_ns: impl Fn(usize, u64) -> f64,
    ) -> Vec<(Work, usize, Seen)> {
        let each = |compute_ns| {
            let more_ns = &more_ns;
            [1, 8].into_iter().map(move |clients| {
                let work = Work {
                    request_bytes: 64,
                    response_bytes: 64,
                    compute_ns,
                    together: false,
                };
                let model = closed_loop(&workload_of(work), costs, client, clients);
                let seen = Seen {
                    rate_per_s: 1e9 / (1e9 / model.rate_per_s + more_ns(clients, compute_ns)),
                    mean_us: 0.0,
                    p50_us: 0.0,
                    p99_us: 0.0,
                    client_ns: 0.0,
                    client: Each::default(),
                    server: Each::default(),
                };
                (work, clients, seen)
            })
        };
        [0, 6000, 12_000].into_iter().flat_map(each).collect()
    }

    #[test]
    fn what_the_model_leaves_out_is_found_by_the_number_of_clients() {
        let mut costs = Preset::shipped().stacks["inline"].clone();
        let client = Client::of(5000.0);
        let trials = seen(&costs, &client, |clients, _| match clients {
            1 => -2500.0,
            _ => 900.0,
        });
        costs.trials = beside(&trials, &[], &costs, &client);
        let [lone, several] = &costs.trials[..] else {
            panic!("{:?}", costs.trials)
        };
        assert_eq!((lone.clients, several.clients), (1, 8));
        assert!(
            (lone.more_ns + 2500.0).abs() < 2.0 && lone.off < 0.002,
            "{lone:?}"
        );
        assert!((several.more_ns - 900.0).abs() < 2.0, "{several:?}");
        // With them the model is what was seen, and to look again finds the same.
        let (work, clients, found) = trials[2];
        let model = closed_loop(&workload_of(work), &costs, &client, clients);
        assert!((model.rate_per_s / found.rate_per_s - 1.0).abs() < 0.001);
        assert_eq!(beside(&trials, &[], &costs, &client), costs.trials);
    }

    #[test]
    fn what_was_seen_on_a_slower_machine_is_taken_to_the_usual_one_but_for_what_the_server_measures_off()
     {
        let costs = Preset::shipped().stacks["kernel"].clone();
        let [.., (work, clients, seen)] = &seen(&costs, &Client::of(5000.0), |_, _| 0.0)[..] else {
            panic!("no trial");
        };
        let seen = Seen {
            server: Each {
                processor_ns: 20_000.0,
                ..seen.server
            },
            ..*seen
        };
        assert_eq!((work.compute_ns, *clients), (12_000, 8));
        let usual = seen_on_the_usual(&seen, *work, 0.75);
        assert_eq!(usual.server.processor_ns, 12_000.0 + 0.75 * 8_000.0);
        let between_ns = |seen: &Seen| 1e9 / seen.rate_per_s - 12_000.0;
        assert!((between_ns(&usual) / between_ns(&seen) - 0.75).abs() < 1e-9);
    }

    #[test]
    fn a_check_that_the_model_does_not_foresee_says_how_far_it_is_off() {
        let costs = Preset::shipped().stacks["inline"].clone();
        let client = Client::of(5000.0);
        let trials = seen(&costs, &client, |_, _| 900.0);
        let checks = seen(&costs, &client, |clients, _| match clients {
            1 => 900.0,
            _ => 6900.0,
        });
        let found = beside(&trials, &checks, &costs, &client);
        let [lone, several] = &found[..] else {
            panic!("{found:?}")
        };
        assert!(lone.off < 0.002 && several.off > 0.1, "{found:?}");
        assert!(
            (several.more_ns - 900.0).abs() < 2.0,
            "checks change no cost"
        );
    }

    #[test]
    fn trials_that_contradict_each_other_say_how_far_they_are_off() {
        let costs = Preset::shipped().stacks["inline"].clone();
        let client = Client::of(5000.0);
        let trials = seen(&costs, &client, |_, compute_ns| compute_ns as f64 / 2.0);
        assert!(
            beside(&trials, &[], &costs, &client)
                .iter()
                .all(|trial| trial.off > 0.1)
        );
    }
}
