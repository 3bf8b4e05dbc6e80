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

impl Study {
    /// Each claim with its verdict.
    pub(super) fn verdict(&self, d: &mut Document) {
        d.heading("In short");
        d.text(
            "The paper compares three places for TCP/IP: the kernel, a library of the program, and a processor \
             on the NIC (NIC-NET). It reports that the NIC saves two thirds of the host's processor time and up \
             to 83 % of the response time, and that a NIC of 200 MHz is fast enough. We have its text, not its \
             simulator: costs, ranges, thresholds and orderings, but no curve. So \"exact\" below means that a \
             printed number comes out, \"shape\" that a range, a threshold or an ordering does.",
        );
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

/// How it was done.
pub(super) fn method(d: &mut Document) {
    d.heading("Method");
    d.text(
        "One server machine is simulated event by event in whole nanoseconds: a host processor with interrupts, \
         bottom halves and a round robin of processes, a NIC processor, and a network of equations (1) to (3). \
         Clients send a request every 10 ms each. A computation that never ends competes with the server. Every \
         point is the mean of eight runs that differ in the seed and in how much of the computation's first \
         slice is over; one seed gives the same bytes on any machine.",
    );
    d.text(
        "Where the costs of Table 1 fall is not in the paper. Three allocations are compared. Profile A: one packet \
         per request, the driver's cost on receive only, and the NIC-NET host keeps the interrupt and the socket \
         copies. A2: the same with two packets. B: two packets, the driver's cost also on transmit, and the socket \
         layer on the NIC. Of 4320 allocations tried, 27 give Table 2 to its printed digits; A and B are among \
         them. A is used where nothing else is said, because it is the simplest and its livelock is at 7 \
         clients with the one host clock that the paper names.",
    );
}

/// The misses, with what was tried.
pub(super) fn misses(d: &mut Document) {
    d.text(
        "Both misses are lower ends, where NIC-NET gains least. Fig 8 against user-level at one client: in our \
         model the two then differ by the NIC's faster clock alone, a few percent. Of the changes tried below, \
         those that keep the livelock at 7 clients leave it at 7 % or less, but for a scheduler that lets a woken \
         server preempt, and that one moves everything else out of the published ranges. Fig 9 against the kernel \
         at the fastest host: letting bottom halves run before the scheduler chooses, as Linux 2.2 did, moves the \
         saving from 57 to 81 % to 48 to 76 %, and in Fig 8 from 42 to 73 % to 18 to 63 %: nearer at one end, \
         farther at the other. About four thousand combinations of allocation, background load, bottom-half \
         policy, receive policy, phase, window and clock were tried.",
    );
    d.text(
        "Windows, NIC clock, and Fig 9's clients and clocks were chosen because they fit: agreement shows that the \
         model can produce the published numbers, not that the authors used these settings.",
    );
}

/// What was assumed, and by whom.
pub(super) fn assumptions(d: &mut Document) {
    d.heading("Assumptions");
    d.text("S is stated in the paper, I implied by it, O is ours: needed, and not in the paper.");
    let points = [
        "S: 200 ms round robin, non-preemptive kernel; costs of Table 1, all scaled inversely with the clock.",
        "I: one endless computation competes with the server at equal share (its number is O); a woken process waits for its turn; bottom halves run at scheduling points (after the choice: O); a user-level library receives before it responds; NIC-NET's host keeps the interrupt and the socket copies.",
        "O: one packet per request and response, no pure acknowledgements, driver cost on receive only, one connection set-up per 60 requests.",
        "O: host 500 MHz and NIC 1 GHz in Fig 8 (500 MHz is S for Fig 10); windows of 60 requests per client (Fig 8), of 100 with 6 clients (Fig 9), of 60 in all (Fig 10); means over what was answered while load arrived (Figs 8 and 9).",
        "O: requests of 256 and responses of 1024 bytes, 100 Mbit/s, 100 m, random phases; no application work, no context-switch cost, no loss.",
    ];
    d.list(points.map(str::to_owned));
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
    d.text(
        "Read it so: without a competing computation, or with a scheduler that lets a woken server preempt, the \
         stacks are so far apart, or so close, that none of the published ranges remains; the ranges are those of a \
         200 ms round robin under competition. Where bottom halves run decides what the kernel loses, and \
         where the library receives decides whether there is a livelock at all. Phases and windows matter \
         little. (Four runs per point instead of eight, so the first row differs from Fig 8 a little.)",
    );
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
