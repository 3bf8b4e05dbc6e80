//! The plan as a report.

use super::{Buys, Estimate, Plan, Row, Source, Workload};
use crate::document::Document;

fn optional(value: Option<f64>) -> String {
    value.map_or_else(|| "overload".to_owned(), |us| format!("{us:.1}"))
}

fn estimate(value: Option<Estimate>) -> String {
    value.map_or_else(
        || "overload".to_owned(),
        |us| format!("{:.1} ± {:.1}", us.value, us.plus_minus),
    )
}

fn cells(row: &Row) -> Vec<String> {
    let c = &row.closed;
    let verdict = match row.buys {
        Buys::Baseline => "today",
        Buys::Yes => "buys",
        Buys::Nothing => "buys nothing",
        Buys::Hurts => "hurts",
    };
    vec![
        row.stack.clone(),
        format!("{:.0}", c.stack_ns),
        format!("{:.0}", c.device_ns),
        format!("{:.0} %", 100.0 * c.host_load),
        format!("{:.2}", c.busy_cores),
        format!("{:+.2}", row.saved_cores),
        format!("{:.0}", c.capacity_per_s),
        format!("{:?}", c.bottleneck).to_lowercase(),
        optional(c.mean_us),
        estimate(row.simulated.p50_us),
        estimate(row.simulated.p99_us),
        verdict.to_owned(),
    ]
}

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
        let headings = [
            "stack",
            "stack ns",
            "device ns",
            "host load",
            "busy cores",
            "saved",
            "most/s",
            "ends first",
            "mean µs",
            "p50 µs",
            "p99 µs",
            "",
        ];
        d.table(headings, self.rows.iter().map(cells).collect());
        d.text(
            "Capacity and mean are the closed form; p50 and p99 are simulated, at the host: means of five runs \
             with their 95 % confidence intervals.",
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
                let p99 = row.simulated.p99_us;
                let keeps = p99.is_some_and(|us| us.value + us.plus_minus <= w.target_p99_us);
                let verb = if keeps { "keeps" } else { "misses" };
                format!(
                    "{} {verb} the wanted p99 of {} µs.",
                    row.stack, w.target_p99_us
                )
            }));
        }
        self.turns(&mut d);
        self.dependence(&mut d);
        d.text(format!(
            "Assumed, not measured: {}.",
            self.assumed.join(", ")
        ));
        if !self.disagreements.is_empty() {
            d.text(format!(
                "The simulation keeps less than 90 % of what the closed form promises for: {}.",
                self.disagreements.join(", ")
            ));
        }
        d
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
