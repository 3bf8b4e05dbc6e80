//! The runs of one folder. Sizes and cases take turns, in the other order every second time: a disk changes from one minute
//! to the next, and whoever comes later finds warmer caches.

use std::{
    thread,
    time::{Duration, Instant},
};

use super::{
    case::{Case, Ran},
    results::Results,
    site::{Site, size_text},
};
use crate::tools;

/// What is measured with a file of one size.
pub struct Table {
    pub site: Site,
    /// What came of it.
    pub results: Results,
}

impl Table {
    /// Of these cases; those of which programs are not installed are skipped.
    pub fn of(site: Site, cases: Vec<Case>) -> Self {
        let mut results = Results::of(cases);
        for index in 0..results.len() {
            let missing = tools::missing(results.case(index).tools);
            if !missing.is_empty() {
                let why = format!("not installed: {}", missing.join(", "));
                results.skip(index, why);
            }
        }
        Self { site, results }
    }

    /// Runs a case once; what somebody interrupts does not count.
    fn take(&mut self, index: usize, run: u32, is_fresh: bool) -> anyhow::Result<()> {
        let (site, results) = (&self.site, &mut self.results);
        let case = results.case(index);
        let ran = prepare(site, is_fresh).and_then(|()| run_and_check(site, case, run == 0));
        // The next one may need the room.
        site.clean()?;
        if site.interrupt.came() {
            return Ok(());
        }
        let said = match &ran {
            Ok(ran) => format!("{:.2} Gbit/s", ran.gbit_per_s),
            Err(error) => format!("failed: {error:#}"),
        };
        let (place, size) = (&site.file_system.kind, size_text(site.bytes));
        note!("{place}, {size}: run {}: {}: {said}", run + 1, case.title);
        match ran {
            Ok(ran) => results.add(index, run, ran),
            Err(error) => results.fail(index, format!("{error:#}")),
        }
        Ok(())
    }
}

/// Runs everything so many times. What was measured until somebody interrupts it is there.
pub fn measure(tables: &mut [Table], runs: u32, is_fresh: bool) -> anyhow::Result<()> {
    for run in 0..runs {
        let of_table = |(number, table): (usize, &Table)| {
            let cases = 0..table.results.len();
            cases.map(move |index| (number, index)).collect::<Vec<_>>()
        };
        let mut order: Vec<_> = tables.iter().enumerate().flat_map(of_table).collect();
        if run % 2 == 1 {
            order.reverse();
        }
        for (number, index) in order {
            let table = &mut tables[number];
            if table.results.is_over(index) {
                continue;
            }
            table.take(index, run, is_fresh)?;
            if table.site.interrupt.came() {
                note!("interrupted: what follows is what was measured so far");
                return Ok(());
            }
        }
        note!("{} of {runs} runs are done", run + 1);
    }
    Ok(())
}

/// All of the source is in the page cache.
fn prepare(site: &Site, is_fresh: bool) -> anyhow::Result<()> {
    if is_fresh {
        rest(site)?;
    }
    site.bring_in()
}

/// What has been freed goes back to the host of a virtual machine: it waits two seconds for more to come.
fn rest(site: &Site) -> anyhow::Result<()> {
    const RESTED: Duration = Duration::from_secs(10);
    let until = Instant::now() + RESTED;
    while Instant::now() < until {
        site.interrupt.check()?;
        thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

fn run_and_check(site: &Site, case: &Case, compare: bool) -> anyhow::Result<Ran> {
    let ran = (case.run)(site)?;
    if case.stores {
        // Byte by byte the first time; a short file is found each time.
        site.check_stored(compare)?;
    }
    Ok(ran)
}
