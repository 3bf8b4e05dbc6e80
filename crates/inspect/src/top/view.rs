//! Draws the model: engines above, one of three tables, the keys below. Knows no terminal.

use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    style::{Modifier, Style},
    text::Line,
    widgets::{Paragraph, Row, Table, TableState},
};

use super::{
    model::{Model, Tab},
    sample::CONNECTIONS_MAX,
};
use crate::figures::histograms::Spread;

/// Lines of engines above the table; with more the table of engines tells of them.
const ENGINES_ABOVE: usize = 4;

/// What the user is typing, if that is a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Input {
    /// Keys are commands.
    Commands,
    /// Keys are letters of the filter.
    Filter,
}

/// A whole screen.
pub fn draw(frame: &mut Frame<'_>, model: &Model, input: Input) {
    let above = header(model);
    let height = u16::try_from(above.len()).unwrap_or(u16::MAX);
    let [top, tabs, body, keys] = Layout::vertical([
        Constraint::Length(height),
        Constraint::Length(1),
        Constraint::Min(2),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(Paragraph::new(above), top);
    frame.render_widget(Paragraph::new(tab_line(model, input)), tabs);
    draw_table(frame, model, body);
    let reversed = Style::new().add_modifier(Modifier::REVERSED);
    frame.render_widget(Paragraph::new(KEYS).style(reversed), keys);
}

const KEYS: &str =
    "Tab tables  F4 / filter  F6 s sort  r reverse  p pause  arrows move  F10 q quit";

fn header(model: &Model) -> Vec<Line<'static>> {
    let shown = model.engines.iter().take(ENGINES_ABOVE);
    let mut lines: Vec<Line<'_>> = shown
        .map(|(engine, rates)| {
            let process = engine
                .pid
                .map_or(String::new(), |pid| format!(" ({pid} {})", engine.program));
            Line::from(match &engine.silent {
                Some(reason) => format!("{}{process}: {reason}", engine.label),
                None => format!(
                    "{}{process}: {} connections, received {}B/s, sent {}B/s, sent again {}",
                    engine.label,
                    engine.connections,
                    short(rates.received_bytes_per_s),
                    short(rates.sent_bytes_per_s),
                    engine.counted.retransmissions,
                ),
            })
        })
        .collect();
    let more = model.engines.len().saturating_sub(ENGINES_ABOVE);
    if more > 0 {
        lines.push(Line::from(format!("and {more} more engines (3)")));
    }
    if model.engines.is_empty() {
        lines.push(Line::from("no engine runs any more"));
    }
    lines
}

fn tab_line(model: &Model, input: Input) -> Line<'static> {
    let names = Tab::ALL.iter().enumerate().map(|(at, tab)| {
        let mark = if *tab == model.tab { "*" } else { " " };
        format!("{mark}{} {}", at + 1, tab.title())
    });
    let mut text = names.collect::<Vec<_>>().join(" ");
    let order = if model.reversed { ", reversed" } else { "" };
    text += &format!("   sorted by {}{order}", model.sort.name());
    if model.paused {
        text += "   paused";
    }
    if model.left_out > 0 {
        text += &format!(
            "   {} beyond the first {CONNECTIONS_MAX} left out",
            model.left_out
        );
    }
    if input == Input::Filter || !model.filter.is_empty() {
        let cursor = if input == Input::Filter { "_" } else { "" };
        text += &format!("   filter: {}{cursor}", model.filter);
    }
    Line::from(text)
}

fn draw_table(frame: &mut Frame<'_>, model: &Model, area: Rect) {
    // Only what is visible is made into text.
    let height = usize::from(area.height.saturating_sub(1)).max(1);
    let first = (model.selected + 1).saturating_sub(height);
    let rows = cells(model, first, height);
    let widths = rows.widths.iter().map(|width| Constraint::Length(*width));
    let heading = Row::new(rows.heading).style(Style::new().add_modifier(Modifier::BOLD));
    let table = Table::new(rows.cells.into_iter().map(Row::new), widths)
        .header(heading)
        .column_spacing(1)
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let mut state = TableState::new().with_selected(model.selected.checked_sub(first));
    frame.render_stateful_widget(table, area, &mut state);
}

/// Some rows of the table that is shown, as text.
pub struct Cells {
    /// Names of the columns.
    pub heading: Vec<&'static str>,
    /// Their widths on the screen.
    pub widths: Vec<u16>,
    pub cells: Vec<Vec<String>>,
}

/// The rows from `first` on, at most `count`.
pub fn cells(model: &Model, first: usize, count: usize) -> Cells {
    match model.tab {
        Tab::Connections => connections(model, first, count),
        Tab::Programs => programs(model, first, count),
        Tab::Engines => engines(model, first, count),
    }
}

fn connections(model: &Model, first: usize, count: usize) -> Cells {
    let rows = model.connections.iter().skip(first).take(count);
    let cells = rows.map(|(one, rates)| {
        vec![
            one.pid.map_or("*".to_owned(), |pid| pid.to_string()),
            one.program.clone(),
            one.protocol.clone(),
            one.state.clone(),
            one.local.clone(),
            one.remote.clone(),
            short(rates.received_bytes_per_s),
            short(rates.sent_bytes_per_s),
            one.counted.retransmissions.to_string(),
            round_trip(one.srtt_us),
            format!("{}/{}", one.queues.0, one.queues.1),
        ]
    });
    Cells {
        heading: vec![
            "PID", "PROGRAM", "PROTO", "STATE", "LOCAL", "PEER", "RX B/s", "TX B/s", "RETR", "RTT",
            "QUEUES",
        ],
        widths: vec![7, 15, 5, 10, 21, 21, 7, 7, 5, 8, 12],
        cells: cells.collect(),
    }
}

fn programs(model: &Model, first: usize, count: usize) -> Cells {
    let rows = model.programs.iter().skip(first).take(count);
    let cells = rows.map(|one| {
        vec![
            one.pid.to_string(),
            one.program.clone(),
            one.label.clone(),
            one.connections.to_string(),
            short(one.rates.received_bytes_per_s),
            short(one.rates.sent_bytes_per_s),
            one.retransmissions.to_string(),
            round_trip(one.srtt_us),
            short(one.calls.calls_per_s),
            short(one.calls.wake_ups_per_s),
            one.calls
                .switches_per_call()
                .map_or("*".to_owned(), |each| format!("{each:.3}")),
        ]
    });
    Cells {
        heading: vec![
            "PID", "PROGRAM", "ENGINE", "CONNS", "RX B/s", "TX B/s", "RETR", "MAX RTT", "CALLS/s",
            "WAKES/s", "SW/CALL",
        ],
        widths: vec![7, 15, 30, 6, 7, 7, 5, 8, 7, 7, 7],
        cells: cells.collect(),
    }
}

fn engines(model: &Model, first: usize, count: usize) -> Cells {
    let rows = model.engines.iter().skip(first).take(count);
    let cells = rows.map(|(one, rates)| {
        vec![
            one.pid.map_or("*".to_owned(), |pid| pid.to_string()),
            one.label.clone(),
            one.silent.clone().unwrap_or_else(|| one.mode.clone()),
            one.device.clone(),
            one.programs.to_string(),
            one.connections.to_string(),
            short(rates.received_bytes_per_s),
            short(rates.sent_bytes_per_s),
            short(rates.received_frames_per_s),
            short(rates.sent_frames_per_s),
            one.counted.retransmissions.to_string(),
            at_most(&one.round_trips[1], 500),
            at_most(&one.round_trips[1], 990),
            at_most(&one.polls[1], 990),
            format!("{}K", one.memory_kib),
        ]
    });
    Cells {
        heading: vec![
            "PID", "ENGINE", "MODE", "DEVICE", "PROGS", "CONNS", "RX B/s", "TX B/s", "RX fr/s",
            "TX fr/s", "RETR", "RTT 50%", "RTT 99%", "POLL 99%", "MEMORY",
        ],
        widths: vec![7, 30, 9, 16, 5, 6, 7, 7, 7, 7, 5, 8, 8, 8, 9],
        cells: cells.collect(),
    }
}

/// What so many thousandths of the values since the last sample do not exceed.
fn at_most(spread: &Spread, thousandths: u64) -> String {
    round_trip(spread.at_most(thousandths))
}

fn round_trip(srtt_us: Option<u64>) -> String {
    match srtt_us {
        None => "*".to_owned(),
        Some(us) if us < 10_000 => format!("{us}us"),
        Some(us) => format!("{}ms", us / 1_000),
    }
}

/// A number in at most six letters: 999, 12.3k, 4.56M; units of 1000.
fn short(value: f64) -> String {
    let (value, unit) = match value {
        value if value >= 1e12 => (value / 1e12, "T"),
        value if value >= 1e9 => (value / 1e9, "G"),
        value if value >= 1e6 => (value / 1e6, "M"),
        value if value >= 1e3 => (value / 1e3, "k"),
        value => (value, ""),
    };
    match value {
        value if unit.is_empty() || value >= 100.0 => format!("{value:.0}{unit}"),
        value if value >= 10.0 => format!("{value:.1}{unit}"),
        value => format!("{value:.2}{unit}"),
    }
}

#[cfg(test)]
mod tests;
