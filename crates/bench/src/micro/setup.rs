//! One way of running programs, and a set of such ways with the rows that compare them.

use anyhow::bail;

use super::{row::Row, samples::Values, testbed::Testbed};

/// Whether idle processors may sleep deeply while a setup is measured: the same for both sides of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Idle {
    /// As the machine is set.
    Untouched,
    /// `/dev/cpu_dma_latency` is held at 0, where that is allowed.
    Held,
}

/// Programs on stacks, and what is read from them.
#[derive(Debug, Clone, Copy)]
pub struct Setup {
    /// Names it in rows.
    pub key: &'static str,
    /// What happens, in a few words.
    pub title: &'static str,
    /// How deeply processors may idle meanwhile.
    pub idle: Idle,
    /// Programs that must be installed.
    pub tools: &'static [&'static str],
    /// Measures once.
    pub measure: fn(&Testbed) -> anyhow::Result<Values>,
}

impl Setup {
    /// One that needs no program but this one, with processors held from deep idle.
    pub const fn new(
        key: &'static str,
        title: &'static str,
        measure: fn(&Testbed) -> anyhow::Result<Values>,
    ) -> Self {
        Self {
            key,
            title,
            idle: Idle::Held,
            tools: &[],
            measure,
        }
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
    /// Keeps the rows in whose name one of the words stands, with those that are indented below them, and the
    /// setups that they need. No words: everything. Words with commas are several, unless a name has them so.
    ///
    /// # Errors
    /// No row is left.
    pub fn keep_only(&mut self, words: &[String]) -> anyhow::Result<()> {
        if words.is_empty() {
            return Ok(());
        }
        let all = self.rows.clone();
        let names: Vec<String> = all.iter().map(|row| row.what.to_lowercase()).collect();
        let words: Vec<String> = words
            .iter()
            .flat_map(|text| split(&text.to_lowercase(), &names))
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
        let needed = self.setups.iter().filter(|setup| self.needs(setup));
        self.setups = needed.copied().collect();
        Ok(())
    }

    /// Refuses to set things beside each other that were measured under other conditions.
    ///
    /// # Errors
    /// A row whose two sides are unlike.
    pub fn check_alike(&self) -> anyhow::Result<()> {
        let setup = |key: &str| self.setups.iter().find(|setup| setup.key == key);
        for row in &self.rows {
            let sides = row.kernel.and_then(|kernel| setup(kernel.setup));
            let Some((kernel, shunt)) = sides.zip(setup(row.shunt.setup)) else {
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
            if row.kernel.map(|kernel| kernel.quantity) != Some(row.shunt.quantity) {
                bail!("{}: two quantities are not compared", row.what.trim());
            }
        }
        Ok(())
    }

    /// Whether a row compares what the setup measures.
    pub fn needs(&self, setup: &Setup) -> bool {
        let mut sources = self
            .rows
            .iter()
            .flat_map(|row| row.kernel.into_iter().chain([row.shunt]));
        sources.any(|source| source.setup == setup.key)
    }
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

/// Why a setup cannot be measured on this machine or with this binary: no failure.
#[derive(Debug)]
pub struct Unavailable(pub String);

impl std::fmt::Display for Unavailable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unavailable {}
