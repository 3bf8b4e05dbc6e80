//! What a reader needs around the figures: the verdict first, how it was done, what it rests on, what the
//! paper leaves out, and how to do it again.

use super::{
    super::{Facts, Study, sensitivity},
    figures::range,
};
use crate::{
    formula::{
        PerRequest, livelock_clients, nic_work_us, sustained_mhz, with_driver_share, with_profile,
    },
    report::document::Document,
    scenario::{Profile, Scenario},
};

/// What stands in `prose.txt`: sections by their names in brackets; in each headings, paragraphs and lists with blank lines between.
const PROSE: &str = include_str!("prose.txt");

/// Adds a section of it.
pub(super) fn said(d: &mut Document, section: &str) {
    let begins = format!("[{section}]\n");
    let text = PROSE.split_once(&begins).map_or("", |(_, text)| text);
    let text = text.split("\n[").next().unwrap_or_default();
    for block in text.trim().split("\n\n") {
        if let Some(heading) = block.strip_prefix("# ") {
            d.heading(heading);
        } else if let Some(points) = block.strip_prefix("- ") {
            d.list(points.split("\n- ").map(str::to_owned));
        } else {
            d.text(block.replace('\n', " "));
        }
    }
}

impl Study {
    /// Each claim with its verdict.
    pub(super) fn verdict(&self, d: &mut Document) {
        said(d, "in short");
        d.table(["claim", "published", "here", "verdict"], self.claims());
        d.text(format!(
            "What to take from it: the saving of processor time is real and follows from the paper's own Table 1; where \
             its costs fall moves it between 68 and 76 %. The saving of response time is mostly the scheduler's: with a \
             competing computation and slices of 200 ms, whoever needs the server's turn once instead of twice \
             wins. And the advice of a slow NIC does not hold for a load that goes on: 900 requests a second need \
             {:.0} MHz.",
            sustained_mhz(&Scenario::default(), 900.0)
        ));
    }
    fn claims(&self) -> Vec<Vec<String>> {
        let facts = Facts::nic_net();
        let published = |key: &str| range(facts.range(key));
        let table2 = |ours: bool| {
            let cells = self.table2.iter().map(|row| {
                let first = row
                    .profiles_percent
                    .first()
                    .map_or(0.0, |(_, percent)| *percent);
                format!("{:.0}", if ours { first } else { row.published_percent })
            });
            cells.collect::<Vec<_>>().join(" ") + " %"
        };
        let livelock = self.livelock_clients();
        let row = |claim: &str, published: String, here: String, verdict: &str| {
            vec![claim.to_owned(), published, here, verdict.to_owned()]
        };
        vec![
            row(
                "host time saved over the error rate (Table 2)",
                table2(false),
                table2(true),
                "exact, by formula, once costs are allocated",
            ),
            row(
                "host time saved over 60 requests (Fig 7)",
                format!("{} %", facts.number("nn.rdec")),
                format!("{:.1} %", 100.0 * self.fig7_reduction),
                "exact, by simulation",
            ),
            row(
                "clients at which the user-level stack stops answering (Fig 8)",
                format!("{}", facts.number("nn.fig8.livelock")),
                format!(
                    "{} ({:.2} in closed form)",
                    livelock.map_or("none".to_owned(), |n| n.to_string()),
                    self.livelock_formula_clients
                ),
                "threshold; our onset is gradual, from 4",
            ),
            row(
                "response time saved against the kernel (Fig 8)",
                published("nn.fig8.vs.kernel"),
                range(self.fig8_vs_kernel()),
                "shape; the upper end needs longer load",
            ),
            row(
                "the same against user-level (Fig 8)",
                published("nn.fig8.vs.user"),
                range(self.fig8_vs_user()),
                "upper end; the lower is NOT reproduced",
            ),
            row(
                "against user-level over the host's clock (Fig 9)",
                published("nn.fig9.vs.user"),
                range(self.fig9_vs_user()),
                "shape, both ends",
            ),
            row(
                "against the kernel over the host's clock (Fig 9)",
                published("nn.fig9.vs.kernel"),
                range(self.fig9_vs_kernel()),
                "upper end; the lower is NOT reproduced",
            ),
            row(
                "a NIC clock beyond which more buys little (Fig 10)",
                format!("at most {} MHz", facts.number("nn.fig10.knee")),
                format!("{} MHz", self.knee_mhz()),
                "shape, for a burst of 60 requests only",
            ),
        ]
    }
}

/// What the answer rests on.
pub(super) fn dependence(d: &mut Document) {
    d.heading("What Fig 8 rests on: one assumption changed at a time");
    let rows = sensitivity().into_iter().map(|change| {
        let livelock = change.livelock_clients;
        vec![
            change.name.to_owned(),
            range(change.vs_kernel_percent),
            range(change.vs_user_percent),
            livelock.map_or("never".to_owned(), |clients| clients.to_string()),
        ]
    });
    let headings = [
        "change",
        "saved vs kernel",
        "saved vs user",
        "user-level stops at",
    ];
    d.table(headings, rows.collect());
    said(d, "dependence");
}

/// What the paper gets wrong or leaves out.
pub(super) fn beyond(d: &mut Document) {
    let paper = Scenario::default();
    let percent = |v: f64| format!("{:.0}", 100.0 * v);
    let share = |share: f64, zero_copy: bool| {
        let mut s = with_driver_share(&paper, share);
        s.bus.zero_copy = zero_copy;
        percent(PerRequest::new(&s, 0.0).reduction(0.0))
    };
    let packets = |packets: usize| {
        let mut s = paper.clone();
        s.workload.request_packets = packets;
        percent(PerRequest::new(&s, 1.0 / 60.0).reduction(0.0))
    };
    d.heading("What the paper leaves out");
    d.list([
        format!(
            "Sustained load: 900 requests/s × {:.1} µs at 450 MHz need {:.0} MHz of NIC, not 200.",
            nic_work_us(&paper),
            sustained_mhz(&paper, 900.0)
        ),
        "The gain in response time is mostly scheduling: NIC-NET's 100 ms are half a slice. Without the \
         competing process the unloaded times are 2.03, 1.87 and 1.28 ms."
            .to_owned(),
        "At equal clocks NIC-NET is no faster than user-level when unloaded: the work moved, it did not vanish."
            .to_owned(),
        format!(
            "More packets per segment save more: {}, {} and {} % for 1, 2 and 4.",
            packets(1),
            packets(2),
            packets(4)
        ),
        format!(
            "DMA, the paper's future work: with 1, ½, 0.2 and 0.1 of the driver's cost left for all \
             stacks {}, {}, {} and {} % are saved; without socket copies too (½, 0.2, 0.1) {}, {} and {} %.",
            share(1.0, false),
            share(0.5, false),
            share(0.2, false),
            share(0.1, false),
            share(0.5, true),
            share(0.2, true),
            share(0.1, true)
        ),
        "Equation (5) counts processing only; with a time-out of 200 ms or more, loss dominates the \
         response time, offloaded or not."
            .to_owned(),
        format!(
            "The livelock in closed form: {:.2} clients with profile A, {:.2} with two packets per request.",
            livelock_clients(&paper),
            livelock_clients(&with_profile(&paper, Profile::A2))
        ),
    ]);
}

/// The commands that do it again.
pub(super) fn again(d: &mut Document) {
    d.heading("Doing it again");
    d.list([
        "`shunt sim paper --check`: the sixteen checks, two of which are known to miss, with exit status 1 where another fails.".to_owned(),
        "`shunt sim paper --plot DIR`: this study as a page with the charts of Figs 8 to 10.".to_owned(),
        "`shunt sim sweep scenarios/fig8.toml`: the points of a figure; fig7, fig9, fig10 and sustained lie beside it."
            .to_owned(),
        "`shunt sim run scenarios/fig8.toml --set stack.bottom_half_first=true`: one assumption changed.".to_owned(),
        format!(
            "Written by shunt {}; seed {} in every scenario.",
            env!("CARGO_PKG_VERSION"),
            Scenario::default().runs.seed
        ),
    ]);
}
