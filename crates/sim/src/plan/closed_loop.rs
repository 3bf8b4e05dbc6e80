//! Clients that wait for an answer before they ask again: rate and response time for any number of them, from the
//! same costs as the closed form and turn by turn (`turns`): what a wake-up costs is shared by all that have come
//! meanwhile, and a client that sleeps is woken at the server's expense.
//!
//! It is what a benchmark measures, so that a prediction can be held against one.

use serde::{Deserialize, Serialize};

use super::{
    Closed, Costs, Where, Workload, closed, trial,
    turns::{Station, circulate},
};
use crate::time::as_us;

/// What so many clients would see.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ClosedLoop {
    /// Clients with one request each under way.
    pub clients: usize,
    /// Requests per second.
    pub rate_per_s: f64,
    /// Mean time from a request to its answer, client's work included and its pauses not.
    pub mean_us: f64,
    /// Its median.
    pub p50_us: f64,
    /// Its 99th percentile.
    pub p99_us: f64,
    /// What that is made of.
    pub work: Work,
}

/// What a request takes of each, and how often each comes back from waiting for one.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Work {
    /// The application.
    pub application_ns: f64,
    /// The host's part of the stack, wake-ups included.
    pub stack_ns: f64,
    /// The engine or the NIC.
    pub device_ns: f64,
    /// Its client, wake-ups included.
    pub client_ns: f64,
    /// What a lone request waits for besides work.
    pub latency_ns: f64,
    /// What trials with so many clients took more between two answers than these costs make it; less where below nothing.
    pub more_ns: f64,
    /// Times per request that the server comes back from waiting.
    pub server_turns: f64,
    /// Times per request that the client does.
    pub client_turns: f64,
    /// Times per request that the client had slept.
    pub client_sleeps: f64,
}

/// What clients take that share the server's machine, in processor time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Client {
    /// Each request with its answer.
    pub request_ns: f64,
    /// Each byte of both.
    pub byte_ns: f64,
    /// Each time it comes back from waiting.
    pub turn_ns: f64,
    /// More for each time that it had slept.
    pub sleep_ns: f64,
    /// What it costs the server to wake it.
    pub rouse_ns: f64,
    /// Threads that the clients have; 0 is one.
    pub threads: usize,
    /// What goes by between an answer and the next request without work on this machine.
    pub pause_ns: f64,
}

impl Client {
    /// One of which nothing is known but its time per request.
    pub fn of(request_ns: f64) -> Self {
        Self {
            request_ns,
            ..Self::default()
        }
    }
}

/// Clients are followed up to this number; beyond, the rate is the capacity.
const MOST_CLIENTS: usize = 1024;
/// What trials say shortens no exchange below this part of what the costs make it.
const LEAST_PART: f64 = 0.5;

/// Predicts clients on the same host as the server, or elsewhere where they take no time.
///
/// The threads of clients and server share the processors that the stack leaves; who finds none free takes turns. What a
/// lone request waits for besides work (`latency_ns`) goes by whenever the client had slept.
pub fn closed_loop(w: &Workload, costs: &Costs, client: &Client, clients: usize) -> ClosedLoop {
    let c = closed(w, costs);
    let clients = clients.clamp(1, MOST_CLIENTS);
    let (asking, servers) = (client.threads.clamp(1, clients), threads(w, &c));
    let (parties, pools) = parties(w, costs, client, &c, asking);
    let devices_from = asking + servers;
    let devices = parties.len() - devices_from;
    let routes: Vec<Vec<usize>> = (0..clients)
        .map(|message| {
            let (from, server) = (message % asking, asking + message % servers);
            match devices {
                0 => vec![server, from],
                _ => {
                    let device = devices_from + message % devices;
                    vec![device, server, device, from]
                }
            }
        })
        .collect();
    let found = circulate(&parties, &pools, &routes);
    let of = |from: usize, to: usize| found.each.get(from..to).unwrap_or_default();
    let sum = |from: usize, to: usize| {
        // A sum of nothing would be -0.
        of(from, to)
            .iter()
            .fold(0.0, |sum, each| sum + each.work_ns)
            * c.core_share
    };
    let alone = ClosedLoop {
        clients,
        rate_per_s: found.per_s,
        mean_us: found.time.mean_ns / 1e3,
        p50_us: as_us(found.time.p50_ns),
        p99_us: as_us(found.time.p99_ns),
        work: Work {
            application_ns: w.application_ns,
            stack_ns: sum(asking, devices_from) - w.application_ns,
            device_ns: sum(devices_from, parties.len()),
            client_ns: sum(0, asking),
            latency_ns: value(costs.latency_ns.as_ref()),
            more_ns: 0.0,
            server_turns: of(asking, devices_from).iter().map(|each| each.turns).sum(),
            client_turns: of(0, asking).iter().map(|each| each.turns).sum(),
            client_sleeps: of(0, asking).iter().map(|each| each.sleeps).sum(),
        },
    };
    alone.as_trials_say(costs)
}

impl ClosedLoop {
    /// With what trials with as many requests under way took more or less than these costs make it.
    fn as_trials_say(mut self, costs: &Costs) -> Self {
        // Little's law: clients that pause have none under way.
        let under_way = self.rate_per_s * self.mean_us / 1e6;
        let Some(trial) = trial::between(&costs.trials, under_way) else {
            return self;
        };
        let between_ns = 1e9 / self.rate_per_s.max(1e-9);
        let is_ns = (between_ns + trial.more_ns).max(LEAST_PART * between_ns);
        let factor = is_ns / between_ns;
        self.work.more_ns = is_ns - between_ns;
        self.rate_per_s /= factor;
        self.mean_us *= factor;
        self.p50_us *= factor;
        self.p99_us *= factor;
        self
    }
}

fn value(v: Option<&super::Value>) -> f64 {
    v.map_or(0.0, |v| v.value)
}

/// Threads that serve, each a party of its own.
fn threads(w: &Workload, c: &Closed) -> usize {
    match w.threads {
        // As many as there are processors for them.
        0 => (1..=w.host_cores)
            .rev()
            .find(|n| *n as f64 <= c.cores)
            .unwrap_or(1),
        threads => threads.min(w.host_cores),
    }
}

/// Pools of processors: those of the host that programs have, one for each processor of an engine or NIC, and those of
/// clients elsewhere, who have enough.
const HOST: usize = 0;
const ELSEWHERE: usize = 1;
const DEVICES: usize = 2;

/// The clients' threads, then the server's, then the engine's or the NIC's processors; and the size of the pools.
fn parties(
    w: &Workload,
    costs: &Costs,
    client: &Client,
    c: &Closed,
    asking: usize,
) -> (Vec<Station>, Vec<usize>) {
    let crowded = super::crowded(w, costs);
    let of_host = match costs.place {
        Where::Engine if !crowded => w.host_cores.saturating_sub(w.engine_cores).max(1),
        Where::Host | Where::Engine | Where::Nic => w.host_cores,
    };
    let device_ns = if crowded { 0.0 } else { c.device_ns };
    let devices = match costs.place {
        Where::Engine if !crowded => w.engine_cores,
        Where::Nic => w.nic.cores,
        Where::Host | Where::Engine => 0,
    };
    let share = c.core_share.max(1e-3);
    let send_ns = costs.send_ns.value.min(c.stack_ns);
    let extra_ns = if crowded { c.device_ns } else { 0.0 };
    let mut parties = vec![asker(w, costs, client, share); asking];
    parties.extend((0..threads(w, c)).map(|_| Station {
        pool: HOST,
        turn_ns: value(costs.turn_ns.as_ref()) / share,
        receive_ns: (w.application_ns + extra_ns + c.stack_ns - send_ns) / share,
        send_ns: send_ns / share,
        sleep_ns: value(costs.sleep_ns.as_ref()) / share,
        rouse_ns: value(costs.rouse_ns.as_ref()) / share,
        together: w.together,
        ..Station::default()
    }));
    parties.extend((0..devices).map(|device| Station {
        pool: DEVICES + device,
        // It is passed twice.
        receive_ns: device_ns / 2.0,
        ..Station::default()
    }));
    let mut pools = vec![1; DEVICES + devices];
    pools[HOST] = of_host;
    pools[ELSEWHERE] = asking;
    (parties, pools)
}

/// A thread of clients; those that take no time here are elsewhere.
fn asker(w: &Workload, costs: &Costs, client: &Client, share: f64) -> Station {
    let bytes = w.request_bytes + w.response_bytes;
    let request_ns = client.request_ns + bytes * client.byte_ns;
    let here = request_ns + client.turn_ns + client.sleep_ns > 0.0;
    Station {
        pool: if here { HOST } else { ELSEWHERE },
        turn_ns: client.turn_ns / share,
        receive_ns: request_ns / share,
        sleep_ns: client.sleep_ns / share,
        rouse_ns: client.rouse_ns / share,
        latency_ns: value(costs.latency_ns.as_ref()),
        pause_ns: client.pause_ns,
        ..Station::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Preset, Source, Value};

    fn costs(stack: &str, stack_ns: f64, latency_ns: f64) -> Costs {
        let mut costs = Preset::of_tests().stacks[stack].clone();
        let names: Vec<&str> = costs.values().into_iter().map(|(name, _)| name).collect();
        for name in names {
            costs.value_mut(name).unwrap().value = 0.0;
        }
        costs.send_ns.value = stack_ns;
        costs.latency_ns = Some(Value {
            value: latency_ns,
            source: Source::Assumed,
            how: String::new(),
            spread: None,
        });
        costs
    }

    fn workload() -> Workload {
        Workload {
            application_ns: 2000.0,
            threads: 1,
            wake_share: 0.0,
            ..Workload::default()
        }
    }

    fn near(value: f64, wanted: f64) {
        assert!((value / wanted - 1.0).abs() < 0.02, "{value} {wanted}");
    }

    #[test]
    fn a_lone_client_waits_for_the_sum_of_all_work_and_the_delay() {
        let costs = costs("kernel", 6000.0, 20_000.0);
        let one = closed_loop(&workload(), &costs, &Client::of(5000.0), 1);
        near(one.mean_us, 33.0);
        near(one.rate_per_s, 1e9 / 33_000.0);
        let sum = one.work.application_ns + one.work.stack_ns + one.work.client_ns;
        near(sum + one.work.latency_ns, 33_000.0);
        near(one.work.server_turns, 1.0);
        near(one.work.client_sleeps, 1.0);
    }

    #[test]
    fn what_trials_took_more_is_added_between_answers_and_to_the_mean() {
        let mut costs = costs("kernel", 6000.0, 20_000.0);
        let client = Client::of(5000.0);
        let of = |costs: &Costs, clients| closed_loop(&workload(), costs, &client, clients);
        let [lone, many] = [1, 200].map(|clients| of(&costs, clients));
        let trial = |clients, more_ns| crate::plan::Trial {
            clients,
            more_ns,
            off: 0.0,
        };
        costs.trials = vec![trial(1, -3000.0), trial(24, 800.0)];
        let shorter = of(&costs, 1);
        near(shorter.mean_us, lone.mean_us - 3.0);
        near(shorter.work.more_ns, -3000.0);
        let slower = of(&costs, 200);
        near(1e9 / slower.rate_per_s, 1e9 / many.rate_per_s + 800.0);
        near(slower.mean_us, 200.0 / slower.rate_per_s * 1e6);
        costs.trials = vec![trial(1, -1e9)];
        near(of(&costs, 1).mean_us, LEAST_PART * lone.mean_us);
    }

    #[test]
    fn many_clients_are_served_at_the_rate_of_the_slowest_processor() {
        let costs = costs("kernel", 6000.0, 20_000.0);
        let many = closed_loop(&workload(), &costs, &Client::of(5000.0), 200);
        near(many.rate_per_s, 125_000.0);
        near(many.mean_us, 200.0 / 0.125);
    }

    #[test]
    fn a_wake_up_is_paid_by_all_requests_that_came_meanwhile() {
        let mut costs = costs("kernel", 6000.0, 0.0);
        let turn = costs.send_ns.clone();
        costs.set(
            "turn_ns",
            Value {
                value: 4000.0,
                ..turn
            },
        );
        let client = Client::of(1000.0);
        let of = |clients| closed_loop(&workload(), &costs, &client, clients);
        near(of(1).mean_us, 2.0 + 6.0 + 4.0 + 1.0);
        let many = of(100);
        assert!(many.work.server_turns < 0.05, "{many:?}");
        assert!(many.work.stack_ns < 6200.0, "{many:?}");
        near(many.rate_per_s, 125_000.0);
    }

    #[test]
    fn a_client_that_sleeps_is_woken_at_the_servers_expense() {
        let costs = costs("kernel", 6000.0, 0.0);
        let client = Client {
            rouse_ns: 1000.0,
            ..Client::of(1000.0)
        };
        let busy_server = closed_loop(&workload(), &costs, &client, 50);
        near(busy_server.work.stack_ns, 7000.0);
        let slow = Client {
            request_ns: 20_000.0,
            ..client
        };
        let busy_client = closed_loop(&workload(), &costs, &slow, 50);
        assert!(busy_client.work.client_sleeps < 0.01, "{busy_client:?}");
        near(busy_client.work.stack_ns, 6000.0);
        near(busy_client.rate_per_s, 50_000.0);
    }

    #[test]
    fn an_engine_of_two_processors_leaves_one_to_program_and_clients() {
        let mut engine = costs("engine", 1000.0, 0.0);
        engine.value_mut("device_ns").unwrap().value = 3000.0;
        let many = closed_loop(&workload(), &engine, &Client::of(5000.0), 200);
        near(many.rate_per_s, 125_000.0);
        let slow = engine.value_mut("device_ns").unwrap();
        slow.value = 16_000.0;
        let many = closed_loop(&workload(), &engine, &Client::of(5000.0), 200);
        near(many.rate_per_s, 62_500.0);
    }

    #[test]
    fn threads_serve_side_by_side_as_far_as_there_are_processors() {
        let w = Workload {
            threads: 3,
            host_cores: 4,
            ..workload()
        };
        let costs = costs("kernel", 6000.0, 0.0);
        let three = closed_loop(&w, &costs, &Client::of(1000.0), 120);
        near(three.rate_per_s, 3.0 * 125_000.0);
        let two = Workload { host_cores: 2, ..w };
        let shared = closed_loop(&two, &costs, &Client::of(1000.0), 120);
        assert!(shared.rate_per_s < 2.0 * 125_000.0, "{shared:?}");
    }

    #[test]
    fn clients_of_two_threads_ask_twice_as_much_where_there_are_processors() {
        let costs = costs("kernel", 1000.0, 0.0);
        let w = Workload {
            host_cores: 4,
            ..workload()
        };
        let of = |threads| Client {
            threads,
            ..Client::of(8000.0)
        };
        near(closed_loop(&w, &costs, &of(1), 50).rate_per_s, 125_000.0);
        near(closed_loop(&w, &costs, &of(2), 50).rate_per_s, 250_000.0);
        // Two processors do 11 µs of work for each.
        let two = Workload { host_cores: 2, ..w };
        let shared = closed_loop(&two, &costs, &of(2), 50);
        assert!(
            (0.93..1.01).contains(&(shared.rate_per_s / (2e9 / 11_000.0))),
            "{shared:?}"
        );
    }

    #[test]
    fn clients_elsewhere_take_no_processor_and_what_they_pause_is_no_wait() {
        let costs = costs("kernel", 6000.0, 0.0);
        let w = Workload {
            host_cores: 1,
            ..workload()
        };
        let far = Client {
            pause_ns: 200_000.0,
            ..Client::default()
        };
        let one = closed_loop(&w, &costs, &far, 1);
        near(one.mean_us, 8.0);
        assert!(
            (one.rate_per_s / (1e9 / 208_000.0) - 1.0).abs() < 0.03,
            "{one:?}"
        );
        let many = closed_loop(&w, &costs, &far, 400);
        near(many.rate_per_s, 125_000.0);
        assert!(
            many.p99_us > many.p50_us && many.p50_us > 1000.0,
            "{many:?}"
        );
    }
}
