//! What is drawn, by ratatui's backend for tests.

use super::*;
use crate::top::{
    Sort,
    model::tests::{connection, moved, two_samples},
};
use ratatui::{Terminal, backend::TestBackend};

fn screen(model: &Model, input: Input, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, model, input)).unwrap();
    terminal.backend().to_string()
}

#[test]
fn the_screen_shows_engines_connections_rates_and_keys() {
    let model = two_samples(Sort::Rate);
    let text = screen(&model, Input::Commands, 140, 12);
    for part in [
        "@shunt/engine (7 ",
        "2 connections, received 1.00MB/s",
        "@shunt/silent (9 python3): does not answer (stopped)",
        "*1 connections",
        "sorted by rate",
        "10.0.0.1:6379",
        "2.00k",
        "150us",
        "q quit",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
}

#[test]
fn a_filter_that_is_typed_and_a_pause_are_seen() {
    let mut model = two_samples(Sort::Rtt);
    (model.filter, model.paused) = ("redis".to_owned(), true);
    let text = screen(&model, Input::Filter, 140, 12);
    for part in ["filter: redis_", "paused", "sorted by rtt"] {
        assert!(text.contains(part), "{part}\n{text}");
    }
}

#[test]
fn the_selected_row_is_on_the_screen_however_small_that_is() {
    let mut model = Model::new(Sort::Rate, String::new());
    model.update(moved((0..200).map(|port| connection(port, 0)).collect()));
    for selected in [0, 5, 150, 199] {
        model.selected = selected;
        let shown = model.connections[selected].0.remote.clone();
        for (width, height) in [(140, 9), (140, 30)] {
            let text = screen(&model, Input::Commands, width, height);
            assert!(text.contains(&shown), "{shown} {height}\n{text}");
        }
        // Nothing to see, and nothing to fail of.
        for (width, height) in [(1, 1), (20, 3), (200, 1)] {
            screen(&model, Input::Commands, width, height);
        }
    }
}

#[test]
fn every_table_has_a_width_and_a_cell_for_each_column() {
    let mut model = two_samples(Sort::Rate);
    for tab in Tab::ALL {
        model.tab = tab;
        let cells = cells(&model, 0, 100);
        assert!(!cells.cells.is_empty(), "{tab:?}");
        assert_eq!(cells.heading.len(), cells.widths.len());
        for row in cells.cells {
            assert_eq!(row.len(), cells.heading.len());
        }
    }
}

#[test]
fn numbers_stay_short() {
    for (value, expected) in [
        (0.0, "0"),
        (999.4, "999"),
        (1_000.0, "1.00k"),
        (12_345.0, "12.3k"),
        (4_560_000.0, "4.56M"),
        (123e9, "123G"),
    ] {
        assert_eq!(short(value), expected);
    }
}
