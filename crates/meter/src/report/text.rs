//! A report for people.

use output::Table;
use statistics::Distribution;

use super::Report;
use crate::graph;

impl Report {
    /// The whole report; `graph` adds the distribution as bars.
    pub fn text(&self, graph: bool) -> String {
        let mut text = format!("{}\n{}", self.heading(), self.counts_text());
        text += &self.times_text();
        if let (true, Some(found)) = (graph, &self.round_trip) {
            text += &format!("\n{}", graph::bars(&found.histogram));
        }
        text.push('\n');
        for line in self.environment.lines() {
            text += &format!("{line}\n");
        }
        text += &format!("{}\n", self.contention.line());
        for warning in &self.warnings {
            text += &format!("warning: {warning}\n");
        }
        for exceeded in &self.exceeded {
            text += &format!("failed: {exceeded}\n");
        }
        text
    }

    /// What was measured, over which stack, in a line.
    pub fn heading(&self) -> String {
        format!("{}, over {}", self.subject(), self.stack)
    }

    /// What was measured, in a line.
    pub fn subject(&self) -> String {
        let label = self
            .label
            .as_ref()
            .map_or(String::new(), |label| format!("{label}: "));
        label + &self.subject_of(&format!("{} bytes", self.payload_bytes))
    }

    /// The same without its label, of probes of this size.
    pub fn subject_of(&self, bytes: &str) -> String {
        let mut target = self.target.clone();
        if let Some(address) = self.address
            && address.to_string() != target
        {
            target += &format!(" ({address})");
        }
        if let Some(port) = self.port {
            target += &format!(", port {port}");
        }
        let sending = &self.sending;
        let how = match (sending.rate_per_s, sending.in_flight) {
            (Some(rate), _) => format!("open loop, {rate} per second"),
            (None, Some(count)) if sending.is_burst => format!("bursts of {count}"),
            (None, count) => format!("closed loop, {} in flight", count.unwrap_or(1)),
        };
        let spinning = if sending.is_spinning {
            ", spinning"
        } else {
            ""
        };
        let kind = self.kind.title();
        format!("{kind} to {target}: {bytes}, {how}{spinning}")
    }

    fn counts_text(&self) -> String {
        let counts = &self.counts;
        let loss = self
            .loss_percent()
            .map_or(String::new(), |loss| format!(" ({loss:.3} %)"));
        let told = counts.numbers().map(|(name, count)| match name {
            "lost" => format!("{count} lost{loss}"),
            name => format!("{count} {name}"),
        });
        let mut text = format!("{}, in {}\n", told.join(", "), duration(self.seconds));
        let named =
            |answer: &crate::probe::Answer, count: &u64| format!("{} {count}", answer.name());
        let answers: Vec<String> = counts
            .answers
            .iter()
            .map(|(answer, count)| named(answer, count))
            .collect();
        if counts
            .answers
            .keys()
            .any(|answer| *answer != crate::probe::Answer::Echo)
        {
            text += &format!("answers: {}\n", answers.join(", "));
        }
        for (reason, count) in &counts.errors {
            text += &format!("error, {count} times: {reason}\n");
        }
        for (router, count) in counts
            .routers
            .iter()
            .filter(|(router, _)| self.address != Some(**router))
        {
            text += &format!("answered by {router}: {count}\n");
        }
        text
    }

    fn times_text(&self) -> String {
        let Some(found) = &self.round_trip else {
            return "no round trip was measured\n".to_owned();
        };
        let mut table = Table::new(
            "µs | min | mean | deviation | p50 | p90 | p99 | p99.9 | p99.99 | p99.999 | max",
        );
        let name = if self.from_sending.is_some() {
            "from when due"
        } else {
            "round trip"
        };
        table.row(row(name, found));
        if let Some(found) = &self.from_sending {
            table.row(row("from when sent", found));
        }
        if let Some(found) = &self.lateness {
            table.row(row("sender's lateness", found));
        }
        let mut text = format!("\n{}", table.render());
        if let Some(median) = found.median_us() {
            text += &format!(
                "one way, if both ways took the same: {:.2} µs (an estimate, half of p50; no clock at the other end was asked)\n",
                median / 2.0
            );
        }
        if self.from_sending.is_some() && self.counts.lost > 0 {
            text += "lost probes have no time: the percentiles are those of the others\n";
        }
        let shown = found.percentiles.last().map_or(50.0, |last| last.percent);
        if shown < 99.999 {
            text += &format!(
                "a percentile needs a round trip above it: of {} the last that is told is p{shown}\n",
                found.count
            );
        }
        text
    }
}

/// With a unit in which it has digits.
fn duration(seconds: f64) -> String {
    if seconds < 1.0 {
        format!("{:.2} ms", seconds * 1e3)
    } else {
        format!("{seconds:.3} s")
    }
}

fn row(name: &str, found: &Distribution) -> [String; 11] {
    let us = |us: f64| format!("{us:.2}");
    let percentile = |percent| found.percentile_us(percent).map_or("-".to_owned(), us);
    [
        name.to_owned(),
        us(found.min_us),
        us(found.mean_us),
        found.deviation_us.map_or("-".to_owned(), us),
        percentile(50.0),
        percentile(90.0),
        percentile(99.0),
        percentile(99.9),
        percentile(99.99),
        percentile(99.999),
        us(found.max_us),
    ]
}
