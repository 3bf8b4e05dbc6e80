//! How often a sleeping program is told of news: the interrupt policies of the TCP-offload literature. They hold
//! events of sockets back (data, free space, an end, an error); what answers a command is told at once.

use core::fmt;

/// Environment variable by which a program's library learns it.
pub const NOTIFY_VARIABLE: &str = "SHUNT_NOTIFY";

/// Longest that news may wait, microseconds: a second.
pub const MAX_AFTER_US: u32 = 1_000_000;
/// How long news wait at most where nobody says: a program must hear of the last one, too.
const DEFAULT_AFTER_US: u32 = 1_000;
/// Most events that can be waited for: what fits a ring.
const MAX_EVERY: u32 = 65_536;

/// A policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moderation {
    /// Events that make a notification; `None`: as many as fit the ring.
    pub every: Option<u32>,
    /// Longest wait of the first of them, microseconds.
    pub after_us: u32,
}

impl Default for Moderation {
    /// Each event at once.
    fn default() -> Self {
        Self {
            every: Some(1),
            after_us: 0,
        }
    }
}

impl Moderation {
    /// Reads `each`, `full`, `every=N`, the latter two with `,us=T` behind them or not.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (name, after_us) = match text.split_once(",us=") {
            Some((name, us)) => (name, us.parse().ok()?),
            None => (text, DEFAULT_AFTER_US),
        };
        let policy = match name {
            "each" if name == text => Self::default(),
            "full" => Self {
                every: None,
                after_us,
            },
            _ => Self {
                every: Some(name.strip_prefix("every=")?.parse().ok()?),
                after_us,
            },
        };
        policy.is_possible().then_some(policy)
    }

    /// Whether its numbers are within their bounds.
    #[must_use]
    pub fn is_possible(self) -> bool {
        self.every
            .is_none_or(|every| (1..=MAX_EVERY).contains(&every))
            && self.after_us <= MAX_AFTER_US
    }
}

impl fmt::Display for Moderation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.every {
            Some(1) => f.write_str("each"),
            Some(every) => write!(f, "every={every},us={}", self.after_us),
            None => write!(f, "full,us={}", self.after_us),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_read_and_written_alike() {
        for text in ["each", "full,us=50", "every=8,us=1000"] {
            assert_eq!(Moderation::parse(text).unwrap().to_string(), text);
        }
        let unsaid = Moderation::parse("every=8").unwrap();
        assert_eq!((unsaid.every, unsaid.after_us), (Some(8), 1_000));
    }

    #[test]
    fn what_is_none_or_out_of_bounds_is_refused() {
        let long = "every=2,us=1000001";
        for text in [
            "",
            "each,us=5",
            "every",
            "every=0",
            "every=65537",
            "full,us=",
            "half",
            long,
        ] {
            assert_eq!(Moderation::parse(text), None, "{text:?}");
        }
    }
}
