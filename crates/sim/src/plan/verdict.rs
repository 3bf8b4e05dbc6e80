//! The answer: one row per stack, and a sentence — buys, buys nothing, or hurts, and why.

use serde::Serialize;

use super::{
    Asked, Bottleneck, Closed, ClosedLoop, Costs, FileError, Preset, Simulated, Source, Value,
    Where, Workload, asking::Asking, closed, simulate,
};

/// What a stack would buy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Buys {
    /// What there is today.
    Baseline,
    /// More requests, or processors for other work.
    Yes,
    /// More if its costs hold, most of which nobody has measured.
    NotKnown,
    /// Less than a tenth of either.
    Nothing,
    /// Less than there is.
    Hurts,
}

/// One stack.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// Its name.
    pub stack: String,
    /// The closed form.
    pub closed: Closed,
    /// The simulation.
    pub simulated: Simulated,
    /// What clients would see that wait for each answer, where the workload has such.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clients: Option<ClosedLoop>,
    /// Capacity over the baseline's, less one.
    pub gain: f64,
    /// Host cores free at the offered load that the baseline would use.
    pub saved_cores: f64,
    /// What part of a request's work on it stands on values that were measured.
    pub measured_share: f64,
    /// How far its capacity and its mean may be off, as a part of them.
    pub error_band: f64,
    /// What it would buy.
    pub buys: Buys,
    /// And why.
    pub sentence: String,
}

/// Where the answer turns.
#[derive(Debug, Clone, Default, Serialize)]
pub struct BreakEven {
    /// Requests per connection from which the stack costs the host less than the baseline does.
    pub requests_per_connection: Option<f64>,
    /// Application time per request above which the gain in capacity is less than a tenth.
    pub application_ns: Option<f64>,
    /// NIC clock from which its capacity reaches the baseline's.
    pub nic_clock_mhz: Option<f64>,
}

/// How much the gain changes with a parameter.
#[derive(Debug, Clone, Serialize)]
pub struct Effect {
    /// The parameter.
    pub parameter: String,
    /// The gain with 20 % less of it.
    pub gain_less: f64,
    /// The gain with 20 % more of it.
    pub gain_more: f64,
    /// Where its value is from; none for what the workload says.
    pub source: Option<Source>,
}

/// The answer for a workload.
#[derive(Debug, Clone, Serialize)]
pub struct Plan {
    /// Its title.
    pub title: String,
    /// One row per stack, the baseline first.
    pub rows: Vec<Row>,
    /// Who asks, where they wait for each answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clients: Option<Asked>,
    /// Host time per request of the first stack by the preset alone.
    pub preset_stack_ns: f64,
    /// The stack with the largest gain, and where its answer turns.
    pub best: String,
    /// Where the best stack's answer turns.
    pub break_even: BreakEven,
    /// The three parameters with the largest effect on the best stack's gain.
    pub effects: Vec<Effect>,
    /// Values of the stacks compared that nobody measured.
    pub assumed: Vec<String>,
    /// Stacks for which the simulation keeps less than 90 % of what the closed form promises.
    pub disagreements: Vec<String>,
}

/// So much of a stack's costs must be measured before something is promised of it.
const KNOWN: f64 = 0.5;
/// A gain or a saving below this is nothing.
const NOTHING: f64 = 0.1;
/// A loss beyond this hurts.
const LOSS: f64 = 0.05;

/// Answers for every stack of a workload.
pub fn plan(w: &Workload, preset: &Preset) -> Result<Plan, FileError> {
    let costs_of = |name: &String| {
        preset.stacks.get(name).ok_or_else(|| {
            let known: Vec<&str> = preset.stacks.keys().map(String::as_str).collect();
            FileError::value(
                "stacks",
                format!("\"{name}\" is not in the preset: {}", known.join(", ")),
            )
        })
    };
    let Some((today, others)) = w.stacks.split_first() else {
        return Err(FileError::value("stacks", "is empty"));
    };
    let preset_stack_ns = closed(w, costs_of(today)?).stack_ns;
    let first = &as_observed(w, costs_of(today)?, preset_stack_ns);
    let mut stacks: Vec<(String, &Costs)> = vec![(today.clone(), first)];
    for name in others {
        stacks.push((name.clone(), costs_of(name)?));
    }
    let asking = Asking::of(w, first);
    let w = &asking
        .as_ref()
        .map_or_else(|| w.clone(), |asking| asking.workload_on(first));
    let base = closed(w, first);
    let mut rows: Vec<Row> = stacks
        .iter()
        .enumerate()
        .map(|(index, (name, costs))| row(w, name, costs, &base, index == 0, asking.as_ref()))
        .collect();
    tell_bands(&mut rows);
    let best = rows.iter().skip(1).max_by(|a, b| a.gain.total_cmp(&b.gain));
    let best = best.map_or_else(String::new, |row| row.stack.clone());
    let costs = preset.stacks.get(&best).unwrap_or(first);
    let disagreements = rows
        .iter()
        .filter(|row| row.simulated.kept_of_capacity < 0.9);
    Ok(Plan {
        title: w.title.clone(),
        break_even: break_even(w, first, costs),
        effects: effects(w, first, costs),
        assumed: assumed(&stacks),
        disagreements: disagreements.map(|row| row.stack.clone()).collect(),
        clients: asking.map(|asking| asking.asked),
        preset_stack_ns,
        best,
        rows,
    })
}

/// What a gain may be as far as the bands of both stacks say, and that it may be none.
fn tell_bands(rows: &mut [Row]) {
    /// Of a capacity of which nothing is known.
    const LEAST: f64 = 0.01;
    let Some((base, others)) = rows.split_first_mut() else {
        return;
    };
    let is_gain = |row: &&mut Row| row.buys == Buys::Yes && row.gain >= NOTHING;
    for row in others.iter_mut().filter(is_gain) {
        let part = |band: f64| (1.0 - band).max(LEAST);
        let least = (1.0 + row.gain) * part(row.error_band) / (1.0 + base.error_band) - 1.0;
        let most = (1.0 + row.gain) * (1.0 + row.error_band) / part(base.error_band) - 1.0;
        let none = if least < NOTHING {
            ": it may be no gain, so try it before you rely on it"
        } else {
            ""
        };
        row.sentence += &format!(
            " With the bands of both it is {:+.0} to {:+.0} %{none}.",
            100.0 * least,
            100.0 * most
        );
    }
}

/// The costs of what there is today, scaled to what was seen of it.
fn as_observed(w: &Workload, costs: &Costs, preset_stack_ns: f64) -> Costs {
    let mut seen = costs.clone();
    if w.observed_stack_ns > 0.0 && preset_stack_ns > 0.0 {
        // What clients take was seen apart, and is none of the stack's.
        let own = costs.values().into_iter();
        for (name, value) in own.filter(|(name, _)| !name.starts_with("client")) {
            if let Some(changed) = seen.value_mut(name) {
                changed.value = value.value * w.observed_stack_ns / preset_stack_ns;
                changed.source = Source::Measured;
                "scaled to what was seen of the program".clone_into(&mut changed.how);
            }
        }
    }
    seen
}

fn row(
    w: &Workload,
    name: &str,
    costs: &Costs,
    base: &Closed,
    baseline: bool,
    asking: Option<&Asking>,
) -> Row {
    let w = &asking.map_or_else(|| w.clone(), |asking| asking.workload_on(costs));
    let closed = closed(w, costs);
    let simulated = simulate(w, costs, &closed);
    let gain = closed.capacity_per_s / base.capacity_per_s - 1.0;
    // In overload a stack uses all there is: what it would need counts.
    let saved_cores = base.busy_cores - closed.busy_cores;
    let buys = match () {
        () if baseline => Buys::Baseline,
        () if gain < -LOSS => Buys::Hurts,
        () if gain >= NOTHING => Buys::Yes,
        () if saved_cores >= NOTHING * w.host_cores as f64 && !closed.bottleneck.is_outside() => {
            Buys::Yes
        }
        () => Buys::Nothing,
    };
    let measured_share = super::closed::measured_share(w, costs);
    let mut sentence = sentence(w, name, &closed, base, buys, gain, saved_cores);
    let is_known = buys != Buys::Yes || measured_share >= KNOWN;
    if !is_known {
        sentence = format!(
            "Not known for {name}: {:.0} % of what it costs here is measured. If the rest holds: {sentence}",
            100.0 * measured_share
        );
    }
    Row {
        sentence,
        measured_share,
        error_band: super::closed::error_band(w, costs),
        stack: name.to_owned(),
        closed,
        simulated,
        clients: asking.map(|asking| match baseline {
            true => asking.of_today(),
            false => asking.on(costs),
        }),
        gain,
        saved_cores,
        buys: if is_known { buys } else { Buys::NotKnown },
    }
}

fn what(bottleneck: Bottleneck) -> &'static str {
    match bottleneck {
        Bottleneck::Host => "the host's processors",
        Bottleneck::Device => "the processors that run the stack",
        Bottleneck::Link => "the link",
        Bottleneck::Bus => "the bus",
        Bottleneck::Disk => "the disk",
        Bottleneck::Clients => "the clients",
    }
}

fn sentence(
    w: &Workload,
    name: &str,
    c: &Closed,
    base: &Closed,
    buys: Buys,
    gain: f64,
    saved: f64,
) -> String {
    let percent = (100.0 * gain).abs();
    let share = 100.0 * base.stack_ns / (base.stack_ns + w.application_ns);
    let ends = match c.bottleneck {
        Bottleneck::Host | Bottleneck::Device | Bottleneck::Clients => {
            format!("{} end", what(c.bottleneck))
        }
        Bottleneck::Link | Bottleneck::Bus | Bottleneck::Disk => {
            format!("{} ends", what(c.bottleneck))
        }
    };
    match buys {
        Buys::Baseline => format!("{name} is what there is: {ends} first."),
        Buys::Yes if gain >= NOTHING => format!(
            "{name} buys {percent:.0} % more requests: the stack was {share:.0} % of the host's work per \
             request, now {ends} first."
        ),
        Buys::Yes | Buys::NotKnown => {
            format!("{name} buys {saved:.1} host cores at the offered load.")
        }
        Buys::Nothing if c.bottleneck == Bottleneck::Clients => format!(
            "{name} buys nothing: {ends} first; only clients that can ask more would show what it gives."
        ),
        Buys::Nothing if c.bottleneck.is_outside() => {
            format!("{name} buys nothing: {ends} first, and no stack makes it faster.")
        }
        Buys::Nothing => format!(
            "{name} buys nothing worth having ({:+.0} %): the stack is {share:.0} % of the host's work per \
             request, and nobody can take away more than that.",
            100.0 * gain
        ),
        Buys::Hurts if c.bottleneck == Bottleneck::Clients => format!(
            "{name} hurts: {percent:.0} % fewer requests, because beside it each costs the clients more, and {ends} first."
        ),
        Buys::Hurts if c.bottleneck == Bottleneck::Device => format!(
            "{name} hurts: {percent:.0} % fewer requests, because {ends} need {:.1} µs for each.",
            c.device_ns / 1e3
        ),
        Buys::Hurts if w.requests_per_connection > 0.0 && c.stack_ns > base.stack_ns => format!(
            "{name} hurts: {percent:.0} % fewer requests, because connections of {} requests pay its dear \
             set-up and hardly use it.",
            w.requests_per_connection
        ),
        Buys::Hurts => {
            format!(
                "{name} hurts: {percent:.0} % fewer requests, because it takes processors from the program."
            )
        }
    }
}

/// A point between 1 and a million where a statement becomes true, by halving; none where it never is.
fn turn(mut holds: impl FnMut(f64) -> bool, from: f64, to: f64) -> Option<f64> {
    if holds(from) || !holds(to) {
        return None;
    }
    let (mut low, mut high) = (from, to);
    for _ in 0..60 {
        let middle = (low * high).sqrt();
        if holds(middle) {
            high = middle;
        } else {
            low = middle;
        }
    }
    Some(high)
}

fn break_even(w: &Workload, base: &Costs, costs: &Costs) -> BreakEven {
    let gain =
        |w: &Workload| closed(w, costs).capacity_per_s / closed(w, base).capacity_per_s - 1.0;
    let cheaper = |requests: f64| {
        let w = Workload {
            requests_per_connection: requests,
            ..w.clone()
        };
        closed(&w, costs).stack_ns < closed(&w, base).stack_ns
    };
    let small = |ns: f64| {
        let w = Workload {
            application_ns: ns,
            ..w.clone()
        };
        gain(&w) < NOTHING
    };
    let fast = |mhz: f64| {
        let mut w = w.clone();
        w.nic.clock_mhz = mhz;
        gain(&w) >= 0.0
    };
    BreakEven {
        requests_per_connection: turn(cheaper, 0.01, 1e6),
        application_ns: turn(small, 1.0, 1e9),
        nic_clock_mhz: (costs.place == Where::Nic)
            .then(|| turn(fast, 1.0, 1e5))
            .flatten(),
    }
}

fn effects(w: &Workload, base: &Costs, costs: &Costs) -> Vec<Effect> {
    let gain = |w: &Workload, base: &Costs, costs: &Costs| {
        closed(w, costs).capacity_per_s / closed(w, base).capacity_per_s - 1.0
    };
    let mut effects = Vec::new();
    let mut of_value = |whose: &str, base_changes: bool, name: &str, value: &Value| {
        let with = |factor: f64| {
            let (mut b, mut c) = (base.clone(), costs.clone());
            let changed = if base_changes { &mut b } else { &mut c };
            if let Some(v) = changed.value_mut(name) {
                v.value *= factor;
            }
            gain(w, &b, &c)
        };
        effects.push(Effect {
            parameter: format!("{whose} {name}"),
            gain_less: with(0.8),
            gain_more: with(1.2),
            source: Some(value.source),
        });
    };
    for (name, value) in base.values() {
        of_value("baseline", true, name, value);
    }
    for (name, value) in costs.values() {
        of_value("best", false, name, value);
    }
    type Change = fn(&mut Workload, f64);
    let own: [(&str, Change); 4] = [
        ("application_ns", |w, f| w.application_ns *= f),
        ("response_bytes", |w, f| w.response_bytes *= f),
        ("wake_share", |w, f| {
            w.wake_share = (w.wake_share * f).min(1.0)
        }),
        ("nic.clock_mhz", |w, f| w.nic.clock_mhz *= f),
    ];
    for (name, change) in own {
        let with = |factor: f64| {
            let mut w = w.clone();
            change(&mut w, factor);
            gain(&w, base, costs)
        };
        effects.push(Effect {
            parameter: name.to_owned(),
            gain_less: with(0.8),
            gain_more: with(1.2),
            source: None,
        });
    }
    let size = |e: &Effect| (e.gain_more - e.gain_less).abs();
    effects.sort_by(|a, b| size(b).total_cmp(&size(a)));
    effects.truncate(3);
    effects
}

fn assumed(stacks: &[(String, &Costs)]) -> Vec<String> {
    let all = stacks.iter().flat_map(|(stack, costs)| {
        let values = costs.values().into_iter();
        values.map(move |(name, value)| (stack, name, value))
    });
    all.filter(|(_, _, value)| value.source == Source::Assumed)
        .map(|(stack, name, _)| format!("{stack}.{name}"))
        .collect()
}
