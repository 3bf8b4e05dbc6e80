//! Printing results: text for people, JSON for programs, and an end without noise when the reader
//! of a pipe has gone.
//!
//! Everything that `shunt` writes to its standard output or error passes here. The macros of the standard
//! library end the process where that fails; these do not.

use std::{
    fmt::Arguments,
    fs,
    io::{self, Write},
    path::Path,
    sync::OnceLock,
};

use anyhow::Context;
use serde::Serialize;

pub mod html;
pub mod log;

/// A line on standard error, for people. Where it cannot be written there is nobody to tell.
#[macro_export]
macro_rules! note {
    ($($text:tt)*) => { $crate::note(format_args!($($text)*)) };
}

/// Text on standard error that later text replaces, for people.
#[macro_export]
macro_rules! progress {
    ($($text:tt)*) => { $crate::progress(format_args!($($text)*)) };
}

/// A line on standard output while the command goes on. A failure is reported at its end, by [`failed`].
#[macro_export]
macro_rules! say {
    ($($text:tt)*) => { $crate::say(format_args!($($text)*)) };
}

/// What `note!` does.
pub fn note(text: Arguments<'_>) {
    progress(format_args!("{text}\n"));
}

/// What `progress!` does.
pub fn progress(text: Arguments<'_>) {
    let text = text.to_string();
    if !log::try_line(&text) {
        let _ = io::stderr().lock().write_all(text.as_bytes());
    }
}

/// What is said beside figures of a binary that was compiled to find faults: debug assertions make Shunt's own code slower, and the kernel's not.
pub fn unoptimised() -> Option<&'static str> {
    cfg!(debug_assertions).then_some(
        "this binary has debug assertions (cargo build --release leaves them out): Shunt's figures are slower than Shunt is",
    )
}

/// The first thing that `say!` could not write, but to a reader that has gone.
static UNSAID: OnceLock<anyhow::Error> = OnceLock::new();

/// What `say!` does.
pub fn say(text: Arguments<'_>) {
    if let Err(error) = print(&format!("{text}\n")) {
        let _ = UNSAID.set(error);
    }
}

/// Why a line of `say!` could not be written, if one could not.
pub fn failed() -> Option<&'static anyhow::Error> {
    UNSAID.get()
}

/// Writes text to standard output.
pub fn print(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // `shunt … | head` is no failure.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result.context("writing to standard output"),
    }
}

/// Writes a value to standard output as indented JSON.
pub fn print_json(value: &impl Serialize) -> anyhow::Result<()> {
    let text = serde_json::to_string_pretty(value).context("composing JSON")?;
    print(&(text + "\n"))
}

/// Writes a file that a flag names.
///
/// # Errors
/// Where the file cannot be written; the error names the flag.
pub fn write_file(flag: &str, file: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(file, text).with_context(|| format!("{flag}: writing {}", file.display()))
}

/// Prints a result: as JSON if that is asked for, else as the text that is made of it.
///
/// # Errors
/// As [`print`].
pub fn print_result<T: Serialize>(
    is_json: bool,
    result: &T,
    text: impl FnOnce() -> String,
) -> anyhow::Result<()> {
    match is_json {
        true => print_json(result),
        false => print(&text()),
    }
}

/// A table with columns as wide as their widest cell; the first column is left-aligned, the others
/// right-aligned.
#[derive(Debug, Default)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty table with these headings, which ` | ` parts.
    pub fn new(headings: &str) -> Self {
        Self {
            rows: vec![headings.split(" | ").map(str::to_owned).collect()],
        }
    }

    /// A table of these rows, the headings first.
    pub fn of(rows: Vec<Vec<String>>) -> Self {
        Self { rows }
    }

    /// Adds a row.
    pub fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.to_vec());
    }

    /// The table as lines.
    pub fn render(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            self.rows
                .iter()
                .filter_map(|row| row.get(column))
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                let width = widths[column];
                line += &if column == 0 {
                    format!("{cell:<width$}")
                } else {
                    format!("  {cell:>width$}")
                };
            }
            text += line.trim_end();
            text.push('\n');
        }
        text
    }
}

/// The cells of a table in text, a line for each row with `|` between cells; missing ones are empty. The first keeps its
/// indentation.
pub fn columns<const N: usize>(table: &'static str) -> impl Iterator<Item = [&'static str; N]> {
    table.trim_matches('\n').lines().map(|line| {
        let mut cells = line.split('|');
        let first = cells.next().unwrap_or_default().trim_end();
        let mut rest = std::iter::once(first).chain(cells.map(str::trim));
        std::array::from_fn(|_| rest.next().unwrap_or_default())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new("what | rate");
        table.row(["a long name".to_owned(), "9".to_owned()]);
        assert_eq!(table.render(), "what         rate\na long name     9\n");
    }

    #[test]
    fn cells_of_a_text_are_trimmed_but_for_the_indentation_of_the_first() {
        let cells: Vec<[&str; 3]> = columns("\na | b  | c\n  d | e\n").collect();
        assert_eq!(cells, [["a", "b", "c"], ["  d", "e", ""]]);
    }
}
