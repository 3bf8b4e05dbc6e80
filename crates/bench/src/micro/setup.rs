//! One way of running programs, and a set of such ways with the rows that compare them.

use anyhow::bail;
use output::columns;

use super::{
    row::Row,
    samples::Values,
    testbed::{Stack, Testbed},
};

/// Whether idle processors may sleep deeply while a setup is measured: the same for both sides of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Idle {
    /// As the machine is set.
    Untouched,
    /// `/dev/cpu_dma_latency` is held at 0, where that is allowed.
    Held,
}

/// Programs on stacks, and what is read from them.
#[derive(Debug, Clone)]
pub struct Setup {
    pub key: &'static str,
    /// What happens, in a few words.
    pub title: &'static str,
    /// How deeply processors may idle meanwhile.
    pub idle: Idle,
    /// Programs that must be installed.
    pub tools: &'static [&'static str],
    /// What of several things that `measure` can do.
    pub what: &'static str,
    /// Of the server and then of the client, as far as they differ from one setup to the next.
    pub stacks: Vec<Stack>,
    pub measure: fn(&Testbed, &Self) -> anyhow::Result<Values>,
}

impl Setup {
    /// Those of a table with a line for each: key, title, what, stacks. They need no program but this one, and processors are held
    /// from deep idle.
    pub fn all(
        table: &'static str,
        measure: fn(&Testbed, &Self) -> anyhow::Result<Values>,
    ) -> Vec<Self> {
        let setup = |[key, title, what, stacks @ ..]: [&'static str; 5]| Self {
            key,
            title,
            idle: Idle::Held,
            tools: &[],
            what,
            stacks: stacks.into_iter().filter_map(Stack::named).collect(),
            measure,
        };
        columns(table).map(setup).collect()
    }

    /// The first of its stacks, and the last.
    pub fn ends(&self) -> [Stack; 2] {
        let kernel = Stack::Kernel;
        [self.stacks.first(), self.stacks.last()].map(|stack| stack.copied().unwrap_or(kernel))
    }
}

/// What one of the commands measures.
#[derive(Debug, Clone)]
pub struct Plan {
    /// In the order of measurement.
    pub setups: Vec<Setup>,
    /// In the order of the table.
    pub rows: Vec<Row>,
    /// What a reader must know beyond the conditions that all commands share.
    pub notes: Vec<&'static str>,
}

impl Plan {
    /// Of the tables of rows and setups.
    pub fn of(rows: &'static str, setups: Vec<Setup>, notes: &[&'static str]) -> Self {
        Self {
            setups,
            rows: Row::all(rows),
            notes: notes.to_vec(),
        }
    }

    /// The same with the rows and setups of another one, but its own notes.
    pub fn and(mut self, other: Self) -> Self {
        self.setups.extend(other.setups);
        self.rows.extend(other.rows);
        self
    }

    /// With [`Self::keep_only`].
    pub fn only(mut self, words: &[impl AsRef<str>]) -> anyhow::Result<Self> {
        self.keep_only(words)?;
        Ok(self)
    }

    /// Keeps the rows in whose name one of the words stands, with those that are indented below them, and the
    /// setups that they need. No words: everything. Words with commas are several, unless a name has them so.
    fn keep_only(&mut self, words: &[impl AsRef<str>]) -> anyhow::Result<()> {
        if words.is_empty() {
            return Ok(());
        }
        let all = self.rows.clone();
        let names: Vec<String> = all.iter().map(|row| row.what.to_lowercase()).collect();
        let words: Vec<String> = words
            .iter()
            .flat_map(|text| split(&text.as_ref().to_lowercase(), &names))
            .collect();
        let mut is_wanted = false;
        self.rows.retain(|row| {
            let name = row.what.to_lowercase();
            if !is_below(row) {
                is_wanted = words.iter().any(|word| name.contains(word));
            }
            is_wanted
        });
        if self.rows.is_empty() {
            let names = all.iter().filter(|row| !is_below(row));
            let names: Vec<String> = names.map(|row| format!("  {}", row.what)).collect();
            let words = words.join(",");
            bail!(
                "--only {words}: no row has such a name; there are\n{}",
                names.join("\n")
            );
        }
        let rows = &self.rows;
        self.setups.retain(|setup| needs(rows, setup));
        Ok(())
    }

    /// Refuses to set things beside each other that were measured under other conditions.
    pub fn check_alike(&self) -> anyhow::Result<()> {
        let setup = |key: &str| self.setups.iter().find(|setup| setup.key == key);
        for row in &self.rows {
            let sides = row.kernel.and_then(setup).zip(setup(row.shunt));
            let Some((kernel, shunt)) = sides else {
                continue;
            };
            if kernel.idle != shunt.idle {
                bail!(
                    "{}: {} and {} let processors idle differently: they are not compared",
                    row.what.trim(),
                    kernel.title,
                    shunt.title
                );
            }
        }
        Ok(())
    }

    /// Whether a row compares what the setup measures.
    #[cfg(test)]
    pub fn needs(&self, setup: &Setup) -> bool {
        needs(&self.rows, setup)
    }
}

fn needs(rows: &[Row], setup: &Setup) -> bool {
    rows.iter()
        .any(|row| row.kernel == Some(setup.key) || row.shunt == setup.key)
}

/// The words of a list with commas. From its beginning the longest piece that is in a name counts as one word, so
/// that a name with a comma can be given as it is printed.
fn split(text: &str, names: &[String]) -> Vec<String> {
    let parts: Vec<&str> = text.split(',').collect();
    let mut words = Vec::new();
    let mut begin = 0;
    while begin < parts.len() {
        let is_named = |end: &usize| {
            let word = parts[begin..*end].join(",");
            names.iter().any(|name| name.contains(word.trim()))
        };
        let longest = (begin + 1..=parts.len()).rev().find(is_named);
        let end = longest.unwrap_or(begin + 1);
        let word = parts[begin..end].join(",").trim().to_owned();
        words.extend((!word.is_empty()).then_some(word));
        begin = end;
    }
    words
}

/// Whether a row is a part of the one above it.
fn is_below(row: &Row) -> bool {
    row.what.starts_with(' ')
}
