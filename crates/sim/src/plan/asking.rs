//! Who asks: the clients of a workload that wait for each answer, on today's stack as they were seen and on the others
//! as the preset knows them.
//!
//! What was seen of them is a rate, their processor time and the server's. The model of today's stack is fitted to it:
//! costs are scaled until both sides take the time that they took, and what then is missing in an exchange is a wait
//! that nobody works in. A short one is what wake-ups take; a long one is a pause of the clients, or the way to them. Where
//! somebody was busy all the time there was no such wait: there what is missing are processors, which others had or which
//! the system let idle while somebody wanted them.

use serde::Serialize;

use super::{Client, ClosedLoop, Costs, Source, Value, Workload, closed_loop};

/// Rounds of the fit, it stands still after a few; and those before which only the work is matched.
const ROUNDS: usize = 20;
const WORK_ALONE: usize = 4;
/// Who has less of the processors than this is not modelled.
const LEAST_SHARE: f64 = 0.01;
/// Closer to what was seen than this is there.
const CLOSE: f64 = 0.003;
/// No wake-up takes longer than this; what does is a pause of the clients.
const LONGEST_WAKE_UP_NS: f64 = 200_000.0;
/// More clients than this are as good as this many.
const MOST_CLIENTS: usize = 1024;

/// What the fit says of the clients.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Asked {
    /// Clients with one request each under way.
    pub clients: usize,
    /// Whether they work on this same host.
    pub here: bool,
    /// What they ask today, together.
    pub requests_per_s: f64,
    /// What the model of today's stack says that they ask, from the work of both sides alone.
    pub model_per_s: f64,
    /// Where somebody was busy all the time: the part that both sides got of the processors' time.
    pub processor_share: f64,
    /// What an exchange waits for wake-ups, where that is what is missing.
    pub latency_ns: f64,
    /// What clients let go by between an answer and the next request, the way to them included.
    pub pause_ns: f64,
}

/// Where the time goes that is missing in an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wait {
    /// Somebody is busy all the time, and has less of a processor than there is.
    Processors,
    /// Who sleeps takes time to wake.
    WakeUps,
    /// Clients pause, or are far away.
    Pauses,
}

/// Clients and today's stack, fitted.
#[derive(Debug, Clone)]
pub(super) struct Asking {
    clients: usize,
    workload: Workload,
    today: Costs,
    client: Client,
    /// The clients of the preset on today's stack.
    known: Option<Client>,
    pub(super) asked: Asked,
}

impl Asking {
    /// Fits clients and today's stack to what the workload says was seen; none where nobody waits for answers.
    /// `today` are the costs scaled to it as far as the closed form can.
    pub(super) fn of(w: &Workload, today: &Costs) -> Option<Self> {
        let clients = w.clients.min(MOST_CLIENTS);
        if clients == 0 {
            return None;
        }
        let here = w.client_ns > 0.0;
        let known = today.client();
        let client = match here {
            true => Client {
                threads: match w.client_threads {
                    0 => w.host_cores,
                    threads => threads,
                },
                ..known.unwrap_or_default()
            },
            false => Client::default(),
        };
        let first = Self {
            clients,
            workload: w.clone(),
            today: today.clone(),
            client,
            known,
            asked: Asked {
                clients,
                here,
                requests_per_s: w.requests_per_s,
                model_per_s: 0.0,
                processor_share: 1.0 - w.other_load,
                latency_ns: 0.0,
                pause_ns: 0.0,
            },
        };
        if w.saturated {
            return Some(first.fitted(Wait::Processors));
        }
        let fitted = here.then(|| first.clone().fitted(Wait::WakeUps));
        let is_wake_up = |fitted: &Self| fitted.asked.latency_ns <= LONGEST_WAKE_UP_NS;
        Some(match fitted.filter(is_wake_up) {
            Some(fitted) => fitted,
            None => first.fitted(Wait::Pauses),
        })
    }

    /// Goes on until the model does what was seen, or as near as it comes.
    fn fitted(mut self, wait: Wait) -> Self {
        let seen_ns = self.clients as f64 / self.workload.requests_per_s * 1e9;
        let mut wait_ns: f64 = 0.0;
        for round in 0..ROUNDS {
            let found = self.of_today();
            if round == WORK_ALONE {
                self.asked.model_per_s = found.rate_per_s;
            }
            let missing_ns = seen_ns - self.clients as f64 / found.rate_per_s.max(1e-9) * 1e9;
            let before_ns = wait_ns;
            wait_ns = (wait_ns + missing_ns).clamp(0.0, seen_ns);
            let close = match wait {
                Wait::Processors => missing_ns.abs() < CLOSE * seen_ns,
                Wait::WakeUps | Wait::Pauses => (wait_ns - before_ns).abs() < CLOSE * seen_ns,
            };
            // Both, and not the first alone.
            if self.match_work(&found) & close && round >= WORK_ALONE {
                break;
            }
            if round < WORK_ALONE {
                wait_ns = 0.0;
                continue;
            }
            match wait {
                Wait::Processors => {
                    let more = self.workload.requests_per_s / found.rate_per_s.max(1e-9);
                    let share = (self.asked.processor_share * more).clamp(LEAST_SHARE, 1.0);
                    self.asked.processor_share = share;
                    self.workload.other_load = 1.0 - share;
                }
                Wait::WakeUps => {
                    self.asked.latency_ns = wait_ns;
                    self.today.set("latency_ns", seen(wait_ns));
                }
                Wait::Pauses => {
                    self.client.pause_ns = wait_ns;
                    self.asked.pause_ns = wait_ns;
                }
            }
        }
        self
    }

    /// Brings the work of server and client nearer to what was seen; whether it was there before.
    fn match_work(&mut self, found: &ClosedLoop) -> bool {
        let w = &self.workload;
        let mut there = true;
        if w.observed_stack_ns > 0.0 && found.work.stack_ns > 0.0 {
            let factor = w.observed_stack_ns / found.work.stack_ns;
            there &= (factor - 1.0).abs() < CLOSE;
            for name in ["receive_ns", "send_ns", "turn_ns", "sleep_ns"] {
                if let Some(value) = self.today.value_mut(name) {
                    value.value *= factor;
                }
            }
            self.client.rouse_ns *= factor;
        }
        if self.asked.here {
            let missing_ns = w.client_ns - found.work.client_ns;
            there &= missing_ns.abs() < CLOSE * w.client_ns;
            self.client.request_ns = (self.client.request_ns + missing_ns).max(0.0);
        }
        there
    }

    /// What they see on the stack that there is today.
    pub(super) fn of_today(&self) -> ClosedLoop {
        closed_loop(&self.workload, &self.today, &self.client, self.clients)
    }

    /// What they would see on another stack. How long wake-ups take there is what they take today, where the preset
    /// does not know.
    pub(super) fn on(&self, costs: &Costs) -> ClosedLoop {
        let mut client = self.client;
        if let (true, Some(known), Some(theirs)) = (self.asked.here, self.known, costs.client()) {
            client = Client {
                request_ns: (client.request_ns + theirs.request_ns - known.request_ns).max(0.0),
                threads: client.threads,
                pause_ns: client.pause_ns,
                ..theirs
            };
        }
        let mut costs = costs.clone();
        if costs.latency_ns.is_none() {
            costs.set("latency_ns", seen(self.asked.latency_ns));
        }
        closed_loop(&self.workload, &costs, &client, self.clients)
    }

    /// The workload with what its clients take beside that stack.
    pub(super) fn workload_on(&self, costs: &Costs) -> Workload {
        let mut w = self.workload.clone();
        if let (true, Some(known), Some(theirs)) = (self.asked.here, self.known, costs.client()) {
            let bytes = w.request_bytes + w.response_bytes;
            let of = |client: &Client| client.request_ns + bytes * client.byte_ns;
            w.client_ns = (w.client_ns + of(&theirs) - of(&known)).max(1.0);
        }
        w
    }
}

fn seen(ns: f64) -> Value {
    Value {
        value: ns,
        source: Source::Measured,
        how: "what is missing in an exchange that was seen".to_owned(),
        spread: None,
    }
}

#[cfg(test)]
mod tests;
