//! What became of each run, for people and as JSON.

use std::{fmt::Write as _, time::Duration};

use serde_json::{Value, json};

use crate::player::Failure;
use crate::script::{Family, Side};

/// One script on one side over one version of IP.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The script.
    pub name: String,
    /// The side.
    pub side: Side,
    /// The version.
    pub family: Family,
    /// How it went.
    pub verdict: Verdict,
    /// How often it was run.
    pub tries: u32,
    /// How long the last try took.
    pub took: Duration,
}

/// How a run went.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// As the script says.
    Passed,
    /// Otherwise.
    Failed(Box<Failure>),
    /// Otherwise, as is known: the reason stands in the script.
    Open(String, Box<Failure>),
    /// As the script says, although a line `open` expects a fault.
    OpenButPassed(String),
    /// Not run, for this reason.
    Skipped(String),
}

/// How many runs ended how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Passed.
    pub passed: usize,
    /// Failed.
    pub failed: usize,
    /// Failed as is known.
    pub open: usize,
    /// Passed although a fault is known.
    pub open_but_passed: usize,
    /// Not run.
    pub skipped: usize,
    /// Passed, but not at the first try.
    pub retried: usize,
}

impl Counts {
    /// Counts outcomes.
    pub fn of<'o>(outcomes: impl IntoIterator<Item = &'o Outcome>) -> Self {
        let mut counts = Self::default();
        for outcome in outcomes {
            match &outcome.verdict {
                Verdict::Passed => counts.passed += 1,
                Verdict::Failed(_) => counts.failed += 1,
                Verdict::Open(..) => counts.open += 1,
                Verdict::OpenButPassed(_) => counts.open_but_passed += 1,
                Verdict::Skipped(_) => counts.skipped += 1,
            }
            if outcome.tries > 1 && matches!(outcome.verdict, Verdict::Passed) {
                counts.retried += 1;
            }
        }
        counts
    }

    /// One line.
    pub fn line(&self) -> String {
        let mut line = format!("{} passed, {} failed", self.passed, self.failed);
        for (count, what) in [
            (self.open, "known to differ (open)"),
            (self.open_but_passed, "open but passed"),
            (self.skipped, "skipped"),
            (self.retried, "passed after runs that were disturbed"),
        ] {
            if count > 0 {
                let _ = write!(line, ", {count} {what}");
            }
        }
        line
    }
}

impl Outcome {
    /// One line for a run.
    pub fn line(&self) -> String {
        let (word, more) = match &self.verdict {
            Verdict::Passed => ("ok", String::new()),
            Verdict::Failed(failure) => (
                "FAILED",
                format!(
                    " line {}: {}{}",
                    failure.line,
                    failure.problem,
                    if failure.is_disturbed {
                        " (disturbed: no processor for a while)"
                    } else {
                        ""
                    }
                ),
            ),
            Verdict::Open(why, _) => ("open", format!(" {why}")),
            Verdict::OpenButPassed(why) => ("open, but passed", format!(" {why}")),
            Verdict::Skipped(why) => ("skipped", format!(" {why}")),
        };
        let again = if self.tries > 1 {
            format!(" (try {})", self.tries)
        } else {
            String::new()
        };
        format!(
            "{word} {} {} {}{again}{more}",
            self.name, self.side, self.family
        )
    }

    /// The story of a run that failed: what happened, then expected against got.
    pub fn story(&self) -> Option<String> {
        let (Verdict::Failed(failure) | Verdict::Open(_, failure)) = &self.verdict else {
            return None;
        };
        let mut text = format!("{} on {} over {}:\n", self.name, self.side, self.family);
        for line in &failure.trace {
            let _ = writeln!(text, "  {line}");
        }
        let _ = writeln!(text, "  line {}, expected: {}", failure.line, failure.text);
        let _ = writeln!(text, "  {}", failure.problem);
        Some(text)
    }

    fn json(&self) -> Value {
        let (verdict, detail) = match &self.verdict {
            Verdict::Passed => ("passed", Value::Null),
            Verdict::Failed(failure) => (
                "failed",
                json!({"line": failure.line, "problem": failure.problem, "trace": failure.trace}),
            ),
            Verdict::Open(why, failure) => (
                "open",
                json!({"reason": why, "line": failure.line, "problem": failure.problem}),
            ),
            Verdict::OpenButPassed(why) => ("open_but_passed", json!({"reason": why})),
            Verdict::Skipped(why) => ("skipped", json!({"reason": why})),
        };
        json!({
            "script": self.name,
            "side": self.side.to_string(),
            "family": self.family.to_string(),
            "verdict": verdict,
            "tries": self.tries,
            "took_ms": u64::try_from(self.took.as_millis()).unwrap_or(u64::MAX),
            "detail": detail,
        })
    }
}

/// Everything, as JSON.
pub fn json(outcomes: &[Outcome]) -> Value {
    let counts = Counts::of(outcomes);
    json!({
        "passed": counts.passed,
        "failed": counts.failed,
        "open": counts.open,
        "open_but_passed": counts.open_but_passed,
        "skipped": counts.skipped,
        "retried": counts.retried,
        "runs": outcomes.iter().map(Outcome::json).collect::<Vec<_>>(),
    })
}
