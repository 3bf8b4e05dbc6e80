//! What a cable does to frames, as one value: from text (`loss=1%,delay=10ms,rate=100mbit`), from
//! and to serde, and back to text.
//!
//! The words follow tc-netem(8) where it has them. What they do to a frame is in `cable.rs`.

use std::fmt;
use std::str::FromStr;

/// Bytes that wait for the line at most, if nothing else is said.
pub const QUEUE_BYTES: u64 = 256 * 1024;
/// How long a frame is held back so that others overtake it, if nothing else is said.
pub const REORDER_US: u64 = 1_000;

/// What a cable does to the frames of one direction. The default does nothing.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Impairment {
    /// Probability that a frame is lost, each by itself.
    pub loss: f64,
    /// Probability, per frame, that a burst of losses begins.
    pub burst: f64,
    /// Mean frames in a burst of losses.
    pub burst_length: f64,
    /// Time on the line.
    pub delay_us: u64,
    /// Up to this much is added to or taken from the delay; frames keep their order.
    pub jitter_us: u64,
    /// Probability that a frame is held back and others overtake it.
    pub reorder: f64,
    /// How long such a frame is held back.
    pub reorder_us: u64,
    /// Probability that a frame arrives twice.
    pub duplicate: f64,
    /// Probability that one bit of a frame is flipped.
    pub corrupt: f64,
    /// Bits per second; `None`: no limit.
    pub rate_bps: Option<u64>,
    /// Bytes that wait for a line of limited rate; frames beyond are dropped.
    pub queue_bytes: u64,
    /// Frames that wait for a line of limited rate; frames beyond are dropped. `None`: bytes decide.
    pub queue_frames: Option<u64>,
    /// Bytes waiting from which on a frame is marked "congestion experienced" (RFC 3168 §5) if it
    /// may be; `None`: nothing is marked.
    pub ecn_bytes: Option<u64>,
}

impl Default for Impairment {
    fn default() -> Self {
        Self {
            loss: 0.0,
            burst: 0.0,
            burst_length: 8.0,
            delay_us: 0,
            jitter_us: 0,
            reorder: 0.0,
            reorder_us: REORDER_US,
            duplicate: 0.0,
            corrupt: 0.0,
            rate_bps: None,
            queue_bytes: QUEUE_BYTES,
            queue_frames: None,
            ecn_bytes: None,
        }
    }
}

/// Why text is not an impairment.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseError {
    /// No `=`.
    #[error("{part:?} is not KEY=VALUE, as in loss=1%,delay=10ms")]
    NotAPair {
        /// What was found.
        part: String,
    },
    /// A key that does not exist.
    #[error(
        "{key:?} is none of loss, burst, burst-length, delay, jitter, reorder, reorder-delay, duplicate, corrupt, rate, queue, queue-frames, ecn"
    )]
    UnknownKey {
        /// What was found.
        key: String,
    },
    /// A value of the wrong form.
    #[error("{key}={value}: expected {expected}")]
    BadValue {
        /// Whose value it is.
        key: String,
        /// What was found.
        value: String,
        /// What it should look like.
        expected: &'static str,
    },
}

impl FromStr for Impairment {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let mut impairment = Self::default();
        for part in text
            .split(',')
            .map(str::trim)
            .filter(|part| !part.is_empty())
        {
            let (key, value) = part.split_once('=').ok_or_else(|| ParseError::NotAPair {
                part: part.to_owned(),
            })?;
            impairment.set(key.trim(), value.trim())?;
        }
        Ok(impairment)
    }
}

impl Impairment {
    fn set(&mut self, key: &str, value: &str) -> Result<(), ParseError> {
        let bad = |expected| {
            let (key, value) = (key.to_owned(), value.to_owned());
            move || ParseError::BadValue {
                key,
                value,
                expected,
            }
        };
        let chance = || probability(value).ok_or_else(bad("a probability as 1% or 0.01"));
        let time = || scaled(value, TIMES).ok_or_else(bad("a time as 10ms, 50us or 1s"));
        match key {
            "loss" => self.loss = chance()?,
            "burst" => self.burst = chance()?,
            "burst-length" => {
                let length = value.parse().ok().filter(|length: &f64| *length >= 1.0);
                self.burst_length = length.ok_or_else(bad("a number of frames, 1 or more"))?;
            }
            "delay" => self.delay_us = time()?,
            "jitter" => self.jitter_us = time()?,
            "reorder" => self.reorder = chance()?,
            "reorder-delay" => self.reorder_us = time()?,
            "duplicate" => self.duplicate = chance()?,
            "corrupt" => self.corrupt = chance()?,
            "rate" => {
                let rate = scaled(value, RATES).filter(|rate| *rate > 0);
                self.rate_bps = Some(rate.ok_or_else(bad("a rate as 100mbit or 1gbit"))?);
            }
            "queue" => {
                let bytes = scaled(value, SIZES);
                self.queue_bytes = bytes.ok_or_else(bad("a size as 64kib, 1mb or 9000"))?;
            }
            "queue-frames" => {
                let frames = value.parse().ok().filter(|frames| *frames > 0);
                self.queue_frames = Some(frames.ok_or_else(bad("a number of frames, 1 or more"))?);
            }
            "ecn" => {
                let bytes = scaled(value, SIZES);
                self.ecn_bytes = Some(bytes.ok_or_else(bad("a size as 64kib, 1mb or 9000"))?);
            }
            _ => {
                return Err(ParseError::UnknownKey {
                    key: key.to_owned(),
                });
            }
        }
        Ok(())
    }
}

impl fmt::Display for Impairment {
    /// Only what differs from the default, in a form that parses back to the same value.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = Self::default();
        let mut parts = Vec::new();
        let mut chance = |key: &str, value: f64| {
            if value != 0.0 {
                parts.push(format!("{key}={value}"));
            }
        };
        chance("loss", self.loss);
        chance("burst", self.burst);
        chance("reorder", self.reorder);
        chance("duplicate", self.duplicate);
        chance("corrupt", self.corrupt);
        if self.burst_length.to_bits() != plain.burst_length.to_bits() {
            parts.push(format!("burst-length={}", self.burst_length));
        }
        let mut whole = |key: &str, value: u64, usual: u64, unit: &str| {
            if value != usual {
                parts.push(format!("{key}={value}{unit}"));
            }
        };
        whole("delay", self.delay_us, plain.delay_us, "us");
        whole("jitter", self.jitter_us, plain.jitter_us, "us");
        whole("reorder-delay", self.reorder_us, plain.reorder_us, "us");
        whole("rate", self.rate_bps.unwrap_or(0), 0, "bit");
        whole("queue", self.queue_bytes, plain.queue_bytes, "");
        whole("queue-frames", self.queue_frames.unwrap_or(0), 0, "");
        if let Some(bytes) = self.ecn_bytes {
            parts.push(format!("ecn={bytes}"));
        }
        formatter.write_str(&parts.join(","))
    }
}

type Units = &'static [(&'static str, f64)];

/// Microseconds; a bare number is ambiguous and refused.
const TIMES: Units = &[("us", 1.0), ("ms", 1e3), ("s", 1e6)];
/// Bits per second, in powers of ten as line rates are.
const RATES: Units = &[("kbit", 1e3), ("mbit", 1e6), ("gbit", 1e9), ("bit", 1.0)];
/// Bytes.
const SIZES: Units = &[
    ("kib", 1024.0),
    ("mib", 1_048_576.0),
    ("kb", 1e3),
    ("mb", 1e6),
    ("b", 1.0),
    ("", 1.0),
];

fn probability(value: &str) -> Option<f64> {
    let chance = match value.strip_suffix('%') {
        Some(percent) => percent.trim().parse::<f64>().ok()? / 100.0,
        None => value.parse().ok()?,
    };
    (0.0..=1.0).contains(&chance).then_some(chance)
}

fn scaled(value: &str, units: Units) -> Option<u64> {
    let value = value.to_ascii_lowercase();
    let parse = |(unit, factor): &(&str, f64)| {
        let number: f64 = value.strip_suffix(unit)?.trim().parse().ok()?;
        to_u64((number * factor).round())
    };
    units.iter().find_map(parse)
}

fn to_u64(number: f64) -> Option<u64> {
    // Up to 2^53 every whole number has an f64 of its own.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the range was just checked"
    )]
    (0.0..=EXACT).contains(&number).then_some(number as u64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_full_line_of_text_is_read() {
        let text = "loss=1%, burst=0.002,burst-length=4,delay=10ms,jitter=500us,reorder=0.5%,\
                    reorder-delay=2ms,duplicate=0.1%,corrupt=0.0001,rate=2.5gbit,queue=64kib,\
                    queue-frames=40,ecn=30kb";
        let expected = Impairment {
            loss: 0.01,
            burst: 0.002,
            burst_length: 4.0,
            delay_us: 10_000,
            jitter_us: 500,
            reorder: 0.005,
            reorder_us: 2_000,
            duplicate: 0.001,
            corrupt: 0.0001,
            rate_bps: Some(2_500_000_000),
            queue_bytes: 65_536,
            queue_frames: Some(40),
            ecn_bytes: Some(30_000),
        };
        assert_eq!(text.parse(), Ok(expected));
        assert_eq!("".parse(), Ok(Impairment::default()));
    }

    #[test]
    fn each_mistake_is_named() {
        let message = |text: &str| text.parse::<Impairment>().unwrap_err().to_string();
        assert!(message("loss").contains("KEY=VALUE"));
        assert!(message("los=1%").contains("none of loss"));
        assert!(message("loss=101%").contains("probability"));
        assert!(message("loss=nan").contains("probability"));
        assert!(message("delay=10").contains("10ms"));
        assert!(message("delay=-1ms").contains("10ms"));
        assert!(message("rate=0mbit").contains("100mbit"));
        assert!(message("queue=many").contains("64kib"));
        assert!(message("burst-length=0.5").contains("1 or more"));
        assert!(message("queue-frames=0").contains("1 or more"));
        assert!(message("ecn=some").contains("64kib"));
    }

    fn impairment() -> impl Strategy<Value = Impairment> {
        let chances = proptest::array::uniform5(0.0..=1.0_f64);
        let numbers = proptest::array::uniform4(0..1_u64 << 40);
        (
            chances,
            numbers,
            1.0..100.0_f64,
            proptest::array::uniform3(proptest::option::of(1..1_u64 << 40)),
        )
            .prop_map(
                |(
                    [loss, burst, reorder, duplicate, corrupt],
                    [a, b, c, d],
                    burst_length,
                    [rate_bps, queue_frames, ecn_bytes],
                )| {
                    Impairment {
                        loss,
                        burst,
                        burst_length,
                        delay_us: a,
                        jitter_us: b,
                        reorder,
                        reorder_us: c,
                        duplicate,
                        corrupt,
                        rate_bps,
                        queue_bytes: d,
                        queue_frames,
                        ecn_bytes,
                    }
                },
            )
    }

    proptest! {
        #[test]
        fn text_and_json_come_back_as_the_same_value(impairment in impairment()) {
            prop_assert_eq!(impairment.to_string().parse(), Ok(impairment));
            let json = serde_json::to_string(&impairment).unwrap();
            let back: Impairment = serde_json::from_str(&json).unwrap();
            // JSON numbers may lose the last digit of a probability.
            prop_assert!((back.loss - impairment.loss).abs() < 1e-12);
            prop_assert_eq!(back.delay_us, impairment.delay_us);
        }
    }
}
