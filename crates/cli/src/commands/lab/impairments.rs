//! The flags that say what a cable of TAPs does to frames: shared by `lab up` and `lab cable`.

use anyhow::Context;
use clap::Args;
use netem::{Impairment, join::Settings};

/// What the cable does to frames.
#[derive(Debug, Args)]
pub struct Impairments {
    /// What the cable does to frames, as loss=1%,delay=10ms,rate=100mbit,queue=256kib; also burst,
    /// burst-length, jitter, reorder, reorder-delay, duplicate, corrupt, queue-frames, ecn (with
    /// --cable tap).
    #[arg(long, value_name = "KEY=VALUE,…")]
    impair: Option<String>,
    /// The same for frames from the second host to the first, where that differs.
    #[arg(long, value_name = "KEY=VALUE,…")]
    impair_back: Option<String>,
    /// Stands for all random choices of the cable: the same seed makes the same ones.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

impl Impairments {
    /// Whether any of the flags was given.
    pub fn given(&self) -> bool {
        self.impair.is_some() || self.impair_back.is_some() || self.seed.is_some()
    }

    /// What a new cable does.
    pub fn settings(&self) -> anyhow::Result<Settings> {
        self.change(Settings::both(Impairment::default(), 0))
    }

    /// What a cable does that did `before`.
    pub fn change(&self, before: Settings) -> anyhow::Result<Settings> {
        let mut settings = before;
        if let Some(text) = &self.impair {
            let impairment = text.parse().with_context(|| format!("--impair {text}"))?;
            settings.impairments = [impairment; 2];
        }
        if let Some(text) = &self.impair_back {
            let impairment = text.parse();
            settings.impairments[1] =
                impairment.with_context(|| format!("--impair-back {text}"))?;
        }
        settings.seed = self.seed.unwrap_or(settings.seed);
        Ok(settings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_direction_can_differ_and_what_is_not_said_stays() {
        let flags = Impairments {
            impair: Some("loss=1%".to_owned()),
            impair_back: Some("delay=5ms".to_owned()),
            seed: None,
        };
        let before = Settings::both(Impairment::default(), 7);
        let after = flags.change(before).unwrap();
        assert_eq!(after.impairments[0].to_string(), "loss=0.01");
        assert_eq!(after.impairments[1].to_string(), "delay=5000us");
        assert_eq!(after.seed, 7);
    }
}
