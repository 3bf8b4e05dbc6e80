//! Saying on standard error how far a simulation is, when it takes long enough to ask.

use std::{
    io::IsTerminal,
    time::{Duration, Instant},
};

/// Nobody asks before this.
const SILENCE: Duration = Duration::from_secs(2);

/// How far something is.
#[derive(Debug)]
pub struct Progress {
    what: &'static str,
    total: Option<usize>,
    done: usize,
    began: Instant,
    said: Option<Instant>,
}

impl Progress {
    /// Of so many steps; none where nobody knows how many there will be.
    pub fn new(what: &'static str, total: Option<usize>) -> Self {
        Self {
            what,
            total,
            done: 0,
            began: Instant::now(),
            said: None,
        }
    }

    /// One step is done.
    pub fn step(&mut self) {
        self.done += 1;
        let terminal = std::io::stderr().is_terminal();
        let pause = Duration::from_millis(if terminal { 200 } else { 5000 });
        let end = self.total == Some(self.done) && self.said.is_some();
        let due = match self.said {
            None => self.began.elapsed() >= SILENCE,
            Some(said) => said.elapsed() >= pause,
        };
        if !due && !end {
            return;
        }
        self.said = Some(Instant::now());
        let text = self.text(self.began.elapsed().as_secs_f64());
        match (terminal, end) {
            (true, false) => progress!("\r{text}    "),
            (true, true) => note!("\r{text}    "),
            (false, _) => note!("{text}"),
        }
    }

    fn text(&self, elapsed_s: f64) -> String {
        let Some(total) = self.total else {
            return format!("{} {}, {elapsed_s:.0} s", self.done, self.what);
        };
        let left = elapsed_s / self.done.max(1) as f64 * total.saturating_sub(self.done) as f64;
        format!("{} of {total} {}, {left:.0} s left", self.done, self.what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_told_where_the_end_is_known() {
        let mut known = Progress::new("points", Some(10));
        known.done = 4;
        assert_eq!(known.text(8.0), "4 of 10 points, 12 s left");
        let mut open = Progress::new("runs", None);
        open.done = 3;
        assert_eq!(open.text(8.0), "3 runs, 8 s");
    }
}
