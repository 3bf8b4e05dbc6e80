//! The plan as a report.

use super::closed::MODEL_BAND;
use super::{Asked, Buys, Estimate, Plan, Row, Source, Workload};
use crate::report::document::Document;

fn optional(value: Option<f64>) -> String {
    value.map_or_else(|| "overload".to_owned(), |us| format!("{us:.1}"))
}

fn estimate(value: Option<Estimate>) -> String {
    value.map_or_else(
        || "overload".to_owned(),
        |us| format!("{:.1} ± {:.1}", us.value, us.plus_minus),
    )
}

fn cells(w: &Workload, row: &Row) -> Vec<String> {
    let c = &row.closed;
    let verdict = match row.buys {
        Buys::Baseline => "today",
        Buys::Yes => "buys",
        Buys::NotKnown => "not known",
        Buys::Nothing => "buys nothing",
        Buys::Hurts => "hurts",
    };
    let mut cells = vec![
        row.stack.clone(),
        format!("{:.0}", c.stack_ns),
        format!("{:.0}", c.device_ns),
        format!("{:.0} %", 100.0 * c.host_load),
        format!("{:.2}", c.busy_cores),
        format!("{:+.2}", row.saved_cores),
        match w.clients > 0 && w.wake_share > MANY_WAKE_UPS {
            true => format!("≥ {:.0}", c.capacity_per_s),
            false => format!("{:.0}", c.capacity_per_s),
        },
        format!("± {:.0} %", 100.0 * row.error_band),
        format!("{:?}", c.bottleneck).to_lowercase(),
    ];
    cells.extend(match row.clients {
        None => vec![
            optional(c.mean_us),
            estimate(row.simulated.p50_us),
            estimate(row.simulated.p99_us),
        ],
        Some(clients) => vec![
            format!("{:.0}", clients.rate_per_s),
            format!("{:.1}", clients.mean_us),
            format!("{:.1}", clients.p50_us),
            format!("{:.1}", clients.p99_us),
        ],
    });
    cells.push(verdict.to_owned());
    cells
}

const BY_THEMSELVES: &str = "Capacity and mean are the closed form; p50 and p99 are simulated, at the host: means of \
     five runs with their 95 % confidence intervals.";
fn what_the_band_is() -> String {
    format!(
        "Band: how far capacity and mean may be off: {:.0} %, as far as sim plan --verify has missed at most, half of the \
         spread of what was measured, and half of each value that nobody measured, by their parts of a request's work.",
        100.0 * MODEL_BAND
    )
}

const WHO_WAIT: &str = "Capacity is the closed form, for as many such clients as it takes. What these clients get per \
     second, their mean, p50 and p99 are simulated turn by turn; the time is from a request to its answer, the client's \
     own work included.";

impl Plan {
    /// The report for this workload.
    pub fn report(&self, w: &Workload, machine: &str) -> Document {
        let mut d = Document::new(if self.title.is_empty() {
            "Plan"
        } else {
            &self.title
        });
        d.text(format!(
            "{:.0} requests/s, {:.0} bytes in, {:.0} out, {:.0} ns of application, {} host cores. Costs of: \
             {machine}.",
            w.requests_per_s, w.request_bytes, w.response_bytes, w.application_ns, w.host_cores
        ));
        let mut headings = vec![
            "stack",
            "stack ns",
            "device ns",
            "host load",
            "busy cores",
            "saved",
            "most/s",
            "band",
            "ends first",
        ];
        headings.extend(self.clients.map(|_| "these get/s"));
        headings.extend(["mean µs", "p50 µs", "p99 µs", ""]);
        d.table(
            headings,
            self.rows.iter().map(|row| cells(w, row)).collect(),
        );
        d.text(match self.clients {
            None => BY_THEMSELVES,
            Some(_) => WHO_WAIT,
        });
        d.text(what_the_band_is());
        d.list(
            self.clients
                .map(|asked| who_asks(&asked, w))
                .unwrap_or_default(),
        );
        if w.observed_stack_ns > 0.0 {
            d.text(format!(
                "What {} takes was seen while it ran ({:.0} ns per request); the preset would say {:.0}.",
                self.rows.first().map_or("today's stack", |row| &row.stack),
                w.observed_stack_ns,
                self.preset_stack_ns
            ));
        }
        d.list(self.rows.iter().map(|row| row.sentence.clone()));
        if w.target_p99_us > 0.0 {
            d.list(self.rows.iter().map(|row| {
                let simulated = row.simulated.p99_us.map(|us| us.value + us.plus_minus);
                let p99_us = row.clients.map(|clients| clients.p99_us).or(simulated);
                let keeps = p99_us.is_some_and(|us| us <= w.target_p99_us);
                let verb = if keeps { "keeps" } else { "misses" };
                format!(
                    "{} {verb} the wanted p99 of {} µs.",
                    row.stack, w.target_p99_us
                )
            }));
        }
        self.turns(&mut d);
        self.dependence(&mut d);
        d.heading("Assumed, not measured");
        d.list(self.assumed_by_stack());
        if !self.disagreements.is_empty() {
            d.text(format!(
                "The simulation keeps less than 90 % of what the closed form promises for: {}.",
                self.disagreements.join(", ")
            ));
        }
        d
    }

    /// A line for each stack that has values nobody measured.
    fn assumed_by_stack(&self) -> Vec<String> {
        let of_stack = |row: &Row| {
            let names = self.assumed.iter();
            let own: Vec<&str> = names
                .filter_map(|name| name.strip_prefix(row.stack.as_str())?.strip_prefix('.'))
                .collect();
            (!own.is_empty()).then(|| format!("{}: {}", row.stack, own.join(", ")))
        };
        self.rows.iter().filter_map(of_stack).collect()
    }

    fn turns(&self, d: &mut Document) {
        d.heading(format!("Where the answer for {} turns", self.best));
        let b = &self.break_even;
        let turns = [
            (
                "requests per connection from which it costs the host less",
                b.requests_per_connection,
            ),
            (
                "application ns per request above which the gain is below 10 %",
                b.application_ns,
            ),
            (
                "NIC clock in MHz from which it reaches today's capacity",
                b.nic_clock_mhz,
            ),
        ];
        let rows = turns
            .into_iter()
            .filter_map(|(what, value)| Some(vec![what.to_owned(), format!("{:.1}", value?)]));
        d.table(["what", "value"], rows.collect());
    }

    fn dependence(&self, d: &mut Document) {
        d.heading("What the gain depends on most (20 % less and more of each)");
        let rows = self.effects.iter().map(|effect| {
            let source = match effect.source {
                None => "workload",
                Some(Source::Measured) => "measured",
                Some(Source::Literature) => "literature",
                Some(Source::Assumed) => "assumed",
            };
            vec![
                effect.parameter.clone(),
                format!("{:+.0} %", 100.0 * effect.gain_less),
                format!("{:+.0} %", 100.0 * effect.gain_more),
                source.to_owned(),
            ]
        });
        d.table(
            ["parameter", "gain with less", "with more", "from"],
            rows.collect(),
        );
    }
}

/// A model this near to what was seen explains it.
const CLOSE: f64 = 0.02;
/// Sleeps per request from which a request's costs are not those under load.
const MANY_WAKE_UPS: f64 = 0.3;

/// Who the clients are taken to be, how well the model of today's stack fits what was seen, and what it does not know.
fn who_asks(asked: &Asked, w: &Workload) -> Vec<String> {
    let mut lines = vec![format!(
        "{} clients wait for each answer before they ask again, {}.",
        w.clients,
        match (asked.here, w.client_threads) {
            (false, _) => "on other hosts: they take no processor of this one".to_owned(),
            (true, 0) => format!(
                "on this host: they take {:.0} ns of it for each",
                w.client_ns
            ),
            (true, 1) => format!(
                "on this host: one of their threads works, and takes {:.0} ns of it for each",
                w.client_ns
            ),
            (true, threads) => format!(
                "on this host: {threads} of their threads work, and take {:.0} ns of it for each",
                w.client_ns
            ),
        }
    )];
    let error = asked.model_per_s / asked.requests_per_s - 1.0;
    let missing = match w.saturated {
        true => format!(
            " Somebody was busy all the time, so nobody is taken to pause: they got {:.0} % of the processors' time, and \
             would on any stack",
            100.0 * asked.processor_share
        ),
        false if error < -CLOSE => " More was seen than the model allows".to_owned(),
        false => " What is missing is taken for a wait".to_owned(),
    };
    lines.push(format!(
        "They ask {:.0}/s today; the work of both sides alone would allow them {:.0} ({:+.0} %).{missing}.",
        asked.requests_per_s,
        asked.model_per_s,
        100.0 * error
    ));
    if w.wake_share > MANY_WAKE_UPS {
        lines.push(format!(
            "A thread slept {:.1} times per request. With more clients many requests share a wake-up, so capacities \
             are higher than these (≥); record the program under the load that you plan for.",
            w.wake_share
        ));
    }
    if asked.latency_ns > 0.0 {
        lines.push(format!(
            "An exchange waits {:.1} µs in which nobody works, for wake-ups; stacks of which the preset does not say \
             are taken to wait as long.",
            asked.latency_ns / 1e3
        ));
    }
    if asked.pause_ns > 0.0 {
        lines.push(format!(
            "{:.1} µs go by between an answer and the next request, and would on any stack: {}.",
            asked.pause_ns / 1e3,
            match asked.here {
                true => "the clients pause",
                false => "the way to the clients, and what they do meanwhile",
            }
        ));
    }
    if asked.here {
        lines.push(
            "What stays on this host's loopback stays on the kernel, unless `shunt run --loopback` serves both ends; \
             the other rows are for clients that come through an interface."
                .to_owned(),
        );
    }
    lines
}

#[cfg(test)]
mod tests {
    use crate::plan::{Preset, Workload, plan};

    #[test]
    fn the_report_says_who_asks_and_what_was_assumed_of_them() {
        let text = |w: &Workload| {
            let plan = plan(w, &Preset::of_tests()).unwrap();
            plan.report(w, "machine").to_text()
        };
        let here = Workload {
            clients: 8,
            client_ns: 5000.0,
            client_threads: 2,
            requests_per_s: 40_000.0,
            ..Workload::default()
        };
        let said = text(&here);
        for words in [
            "these get/s",
            "2 of their threads work",
            "They ask 40000/s",
            "loopback",
        ] {
            assert!(said.contains(words), "{words}: {said}");
        }
        let far = Workload {
            client_ns: 0.0,
            client_threads: 0,
            ..here
        };
        let said = text(&far);
        assert!(
            said.contains("they take no processor of this one"),
            "{said}"
        );
        assert!(said.contains("the way to the clients"), "{said}");
        let alone = text(&Workload::default());
        assert!(
            !alone.contains("these get/s") && alone.contains("five runs"),
            "{alone}"
        );
    }
}
