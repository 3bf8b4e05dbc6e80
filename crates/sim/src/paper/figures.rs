//! Simulates what each table and figure of the paper shows.

use serde::Serialize;

use crate::{
    formula::{PerRequest, livelock_clients, packet_error_rate, with_profile},
    paper::Facts,
    scenario::{Axis, Kind, Profile, Scenario, parse, with_settings},
    statistics::summary::{Summary, replicate},
    time::as_ms,
};

/// A table or figure of the paper.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Figure {
    /// Costs of the layers, and what the printed totals say.
    Table1,
    /// Host time saved over the error rate.
    Table2,
    /// Host time of 60 requests.
    Fig7,
    /// Response time over clients.
    Fig8,
    /// Response time over the host's clock.
    Fig9,
    /// Response time over the NIC's clock.
    Fig10,
}

/// The three architectures in the paper's order.
pub const STACKS: [Kind; 3] = [Kind::Kernel, Kind::User, Kind::Nic];

/// The text of a figure's scenario file.
fn text_of(figure: Figure) -> &'static str {
    match figure {
        Figure::Table1 | Figure::Table2 | Figure::Fig7 => {
            include_str!("../../../../scenarios/fig7.toml")
        }
        Figure::Fig8 => include_str!("../../../../scenarios/fig8.toml"),
        Figure::Fig9 => include_str!("../../../../scenarios/fig9.toml"),
        Figure::Fig10 => include_str!("../../../../scenarios/fig10.toml"),
    }
}

/// The scenario of a figure, as its file has it.
pub fn scenario(figure: Figure) -> Scenario {
    parse(text_of(figure)).expect("invariant: the scenario files parse, tests run them")
}

/// The values of one of a scenario's own axes.
fn axis(scenario: &Scenario, key: &str) -> Vec<f64> {
    let own = scenario.sweep.iter().filter(|axis| axis.key == key);
    own.filter_map(|axis| Axis::parse(&format!("{}={}", axis.key, axis.values)).ok())
        .flat_map(|axis| axis.values)
        .filter_map(|value| value.parse().ok())
        .collect()
}

fn run(base: &Scenario, kind: Kind, settings: &[String]) -> Summary {
    let settings = settings.iter().map(String::as_str);
    let mut scenario = with_settings(base, settings)
        .expect("invariant: the axes of the scenario files fit, tests run them");
    scenario.stack.kind = kind;
    replicate(&scenario)
}

/// One architecture at one point.
#[derive(Debug, Clone, Serialize)]
pub struct Stack {
    /// Mean over what was answered while load arrived: a survivor's mean.
    pub survivors_mean_ms: Option<f64>,
    /// Mean over everything, drained.
    pub drained_mean_ms: Option<f64>,
    /// Answers in the second half of the load as a share of what was asked in it.
    pub late_share: f64,
    /// Groups of answers more than 50 ms apart, per run.
    pub batches: f64,
}

impl Stack {
    fn of(summary: &Summary) -> Self {
        Self {
            survivors_mean_ms: summary.during_load_mean_ms,
            drained_mean_ms: summary.response.map(|response| response.mean_ms),
            late_share: summary.late_share,
            batches: summary.batches,
        }
    }
}

/// How much shorter the NIC's response is than another's, in percent.
fn reduction(nic: &Stack, other: &Stack) -> Option<f64> {
    let (nic, other) = (nic.survivors_mean_ms?, other.survivors_mean_ms?);
    (other > 0.0).then(|| 100.0 * (1.0 - nic / other))
}

/// Figs 8 and 9: the three architectures at one place of the figure's axis.
#[derive(Debug, Clone, Serialize)]
pub struct Compared {
    /// Clients in Fig 8, the host's clock in MHz in Fig 9.
    pub at: f64,
    /// Kernel-resident stack.
    pub kernel: Stack,
    /// User-level stack.
    pub user: Stack,
    /// NIC-resident stack.
    pub nic: Stack,
    /// Reduction against the kernel.
    pub vs_kernel_percent: Option<f64>,
    /// Reduction against the user-level stack.
    pub vs_user_percent: Option<f64>,
}

/// Fig 7: host time of 60 requests.
#[derive(Debug, Clone, Serialize)]
pub struct CpuRow {
    /// The architecture.
    pub stack: Kind,
    /// In interrupts.
    pub interrupt_ms: f64,
    /// In bottom halves and the server.
    pub stack_ms: f64,
}

/// Table 2: one error rate.
#[derive(Debug, Clone, Serialize)]
pub struct Table2Row {
    /// Probability that a bit is wrong.
    pub bit_error_rate: f64,
    /// Probability that a packet is, as printed.
    pub packet_error_rate_published: f64,
    /// The same, computed for 1024 bytes.
    pub packet_error_rate: f64,
    /// Host time saved, as printed.
    pub published_percent: f64,
    /// Host time saved with each profile's costs.
    pub profiles_percent: Vec<(Profile, f64)>,
}

/// Everything that the paper shows, again.
#[derive(Debug, Clone, Serialize)]
pub struct Study {
    /// Table 2.
    pub table2: Vec<Table2Row>,
    /// Fig 7.
    pub fig7: Vec<CpuRow>,
    /// Reduction of host time in Fig 7, simulated.
    pub fig7_reduction: f64,
    /// The same in closed form.
    pub closed_reduction: f64,
    /// Clients at which the user-level stack stops answering, in closed form.
    pub livelock_formula_clients: f64,
    /// Fig 8.
    pub fig8: Vec<Compared>,
    /// Fig 9.
    pub fig9: Vec<Compared>,
    /// Fig 10: the NIC's clock, and the mean response for each clock of the host.
    pub fig10: Vec<(f64, Vec<f64>)>,
    /// The host's clocks of Fig 10.
    pub fig10_host_mhz: Vec<f64>,
}

/// Connections per request: one set-up for 60 requests.
pub const SET_UPS: f64 = 1.0 / 60.0;

impl Study {
    /// Simulates what these figures show; the others stay empty.
    pub fn of(figures: &[Figure]) -> Self {
        let wants = |figure| figures.contains(&figure);
        let paper = Scenario::default();
        let costs = PerRequest::new(&paper, SET_UPS);
        let fig7 = fig7();
        let total = |row: &CpuRow| row.interrupt_ms + row.stack_ms;
        let fig7_reduction = 1.0 - 2.0 * total(&fig7[2]) / (total(&fig7[0]) + total(&fig7[1]));
        let fig10 = scenario(Figure::Fig10);
        Self {
            table2: table2(&Facts::nic_net()),
            fig7,
            fig7_reduction,
            closed_reduction: costs.reduction(0.0),
            livelock_formula_clients: livelock_clients(&paper),
            fig8: if wants(Figure::Fig8) {
                clients_of(&scenario(Figure::Fig8))
            } else {
                Vec::new()
            },
            fig9: if wants(Figure::Fig9) {
                compared(&scenario(Figure::Fig9), "host.clock_mhz")
            } else {
                Vec::new()
            },
            fig10_host_mhz: axis(&fig10, "host.clock_mhz"),
            fig10: if wants(Figure::Fig10) {
                nic_clocks(&fig10)
            } else {
                Vec::new()
            },
        }
    }
}

fn table2(facts: &Facts) -> Vec<Table2Row> {
    let bits = facts.numbers("nn.t2.ebit");
    let printed = facts.numbers("nn.t2.e");
    let published = facts.numbers("nn.t2.rdec");
    let bytes = facts.number("nn.t2.packet");
    let rows = bits.into_iter().zip(printed).zip(published);
    rows.map(|((bit_error_rate, e), percent)| {
        let saved = |profile| {
            let scenario = with_profile(&Scenario::default(), profile);
            let costs = PerRequest::new(&scenario, SET_UPS);
            (profile, 100.0 * costs.reduction(e))
        };
        Table2Row {
            bit_error_rate,
            packet_error_rate_published: e,
            packet_error_rate: packet_error_rate(bit_error_rate, bytes),
            published_percent: percent,
            profiles_percent: [Profile::A, Profile::A2, Profile::B].map(saved).to_vec(),
        }
    })
    .collect()
}

fn fig7() -> Vec<CpuRow> {
    let base = scenario(Figure::Fig7);
    let row = |kind| {
        let mut scenario = base.clone();
        scenario.stack.kind = kind;
        let outcome = crate::machine::Machine::run(&scenario, scenario.runs.seed, 0);
        CpuRow {
            stack: kind,
            interrupt_ms: as_ms(outcome.busy.interrupt),
            stack_ms: as_ms(outcome.busy.host() - outcome.busy.interrupt),
        }
    };
    STACKS.map(row).to_vec()
}

/// Each architecture at every value of one of a scenario's own axes.
fn compared(base: &Scenario, key: &str) -> Vec<Compared> {
    let row = |at: f64| {
        let settings = [format!("{key}={at}")];
        let [kernel, user, nic] = STACKS.map(|kind| Stack::of(&run(base, kind, &settings)));
        Compared {
            at,
            vs_kernel_percent: reduction(&nic, &kernel),
            vs_user_percent: reduction(&nic, &user),
            kernel,
            user,
            nic,
        }
    };
    axis(base, key).into_iter().map(row).collect()
}

/// Fig 8 of a scenario that may differ from the paper's.
pub(super) fn clients_of(base: &Scenario) -> Vec<Compared> {
    compared(base, "workload.clients")
}

fn nic_clocks(base: &Scenario) -> Vec<(f64, Vec<f64>)> {
    let hosts = axis(base, "host.clock_mhz");
    let mean = |nic: f64, host: f64| {
        let settings = [
            format!("nic.clock_mhz={nic}"),
            format!("host.clock_mhz={host}"),
        ];
        let response = run(base, Kind::Nic, &settings).response;
        response.map_or(f64::NAN, |response| response.mean_ms)
    };
    let clocks = axis(base, "nic.clock_mhz").into_iter();
    clocks
        .map(|nic| (nic, hosts.iter().map(|host| mean(nic, *host)).collect()))
        .collect()
}
