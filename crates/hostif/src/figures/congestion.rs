//! Congestion controls as they travel: a number for each name that `TCP_CONGESTION` knows (tcp(7)), and what one
//! believes, which `TCP_CC_INFO` is made of (linux/inet_diag.h).

/// The names; the number of one is its place here.
pub const NAMES: [&str; 4] = ["reno", "cubic", "bbr", "dctcp"];

/// The number of a name, which may end with zeros.
#[must_use]
pub fn code(name: &[u8]) -> Option<u8> {
    let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
    let place = NAMES.iter().position(|one| one.as_bytes() == name)?;
    u8::try_from(place).ok()
}

/// The name of a number.
#[must_use]
pub fn name(code: u8) -> Option<&'static str> {
    NAMES.get(usize::from(code)).copied()
}

/// What a congestion control believes. Gains are in 1/256, alpha in 1/1024, times in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CongestionFigures {
    /// It has nothing to tell.
    #[default]
    Nothing,
    /// BBR.
    Bbr {
        /// Bytes per second.
        bandwidth: u64,
        /// The shortest round trip; 0: not measured.
        min_rtt_us: u64,
        /// How much faster than the bandwidth segments leave.
        pacing_gain: u64,
        /// How much more than the product of both may be in flight.
        cwnd_gain: u64,
    },
    /// DCTCP.
    Dctcp {
        /// ECN is in use.
        enabled: u64,
        /// The last packet that came was marked.
        ce_state: u64,
        /// DCTCP.Alpha.
        alpha: u64,
        /// Marked bytes since it changed last.
        marked: u64,
        /// Bytes since it changed last.
        acked: u64,
    },
}

impl CongestionFigures {
    /// Words that they take.
    pub const WORDS: usize = 6;

    /// Of one that has not begun, by its name (Linux clears what it has chosen).
    #[must_use]
    pub fn unstarted(name: &str) -> Self {
        match name {
            "bbr" => Self::Bbr {
                bandwidth: 0,
                min_rtt_us: 0,
                pacing_gain: 0,
                cwnd_gain: 0,
            },
            "dctcp" => Self::Dctcp {
                enabled: 1,
                ce_state: 0,
                alpha: 0,
                marked: 0,
                acked: 0,
            },
            _ => Self::Nothing,
        }
    }

    /// As words of an answer.
    #[must_use]
    pub const fn to_words(self) -> [u64; Self::WORDS] {
        match self {
            Self::Nothing => [0; Self::WORDS],
            Self::Bbr {
                bandwidth,
                min_rtt_us,
                pacing_gain,
                cwnd_gain,
            } => [1, bandwidth, min_rtt_us, pacing_gain, cwnd_gain, 0],
            Self::Dctcp {
                enabled,
                ce_state,
                alpha,
                marked,
                acked,
            } => [2, enabled, ce_state, alpha, marked, acked],
        }
    }

    /// Reads them back; what is not known is nothing.
    #[must_use]
    pub const fn from_words(words: &[u64]) -> Self {
        match *words {
            [1, bandwidth, min_rtt_us, pacing_gain, cwnd_gain, _] => Self::Bbr {
                bandwidth,
                min_rtt_us,
                pacing_gain,
                cwnd_gain,
            },
            [2, enabled, ce_state, alpha, marked, acked] => Self::Dctcp {
                enabled,
                ce_state,
                alpha,
                marked,
                acked,
            },
            _ => Self::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_believes_comes_back_from_its_words() {
        for words in [[1, 2, 3, 4, 5, 0], [2, 3, 4, 5, 6, 7], [0; 6]] {
            assert_eq!(CongestionFigures::from_words(&words).to_words(), words);
        }
        let strange: [&[u64]; 3] = [&[], &[1, 2], &[9; 6]];
        for words in strange {
            assert_eq!(
                CongestionFigures::from_words(words),
                CongestionFigures::Nothing
            );
        }
    }

    #[test]
    fn names_come_back_and_strangers_have_no_number() {
        for (place, one) in NAMES.iter().enumerate() {
            assert_eq!(code(one.as_bytes()).map(usize::from), Some(place));
            assert_eq!(name(code(one.as_bytes()).unwrap()), Some(*one));
        }
        assert_eq!(code(b"cubic\0\0\0"), Some(1));
        assert_eq!(code(b"cubicle"), None);
        assert_eq!(code(b""), None);
        assert_eq!(name(200), None);
    }
}
