//! TCP_CC_INFO as the bytes of Linux's `union tcp_cc_info` (linux/inet_diag.h), filled with what the engine's congestion
//! control believes. Reno and CUBIC have no structure there: nothing is told of them.

use hostif::CongestionFigures;

/// `struct tcp_bbr_info`, `struct tcp_dctcp_info`, or nothing.
#[must_use]
pub fn emit(figures: CongestionFigures) -> Vec<u8> {
    let word = |value: u64| u32::try_from(value).unwrap_or(u32::MAX).to_ne_bytes();
    let half = |value: u64| u16::try_from(value).unwrap_or(u16::MAX).to_ne_bytes();
    match figures {
        CongestionFigures::Nothing => Vec::new(),
        CongestionFigures::Bbr {
            bandwidth,
            min_rtt_us,
            pacing_gain,
            cwnd_gain,
        } => [
            word(bandwidth & u64::from(u32::MAX)),
            word(bandwidth >> 32),
            word(min_rtt_us),
            word(pacing_gain),
            word(cwnd_gain),
        ]
        .concat(),
        CongestionFigures::Dctcp {
            enabled,
            ce_state,
            alpha,
            marked,
            acked,
        } => {
            let mut bytes = [half(enabled), half(ce_state)].concat();
            bytes.extend([word(alpha), word(marked), word(acked)].concat());
            bytes
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_structures_are_those_of_the_header() {
        let words = |bytes: &[u8]| -> Vec<u32> {
            let (words, rest) = bytes.as_chunks::<4>();
            assert!(rest.is_empty());
            words.iter().map(|word| u32::from_ne_bytes(*word)).collect()
        };
        let bbr = emit(CongestionFigures::Bbr {
            bandwidth: 5 << 32 | 6,
            min_rtt_us: 7,
            pacing_gain: 709,
            cwnd_gain: 512,
        });
        assert_eq!(words(&bbr), [6, 5, 7, 709, 512]);
        let dctcp = emit(CongestionFigures::Dctcp {
            enabled: 1,
            ce_state: 0,
            alpha: 1_024,
            marked: 3,
            acked: 1 << 40,
        });
        assert_eq!(dctcp[..4], [1_u16.to_ne_bytes(), [0; 2]].concat());
        assert_eq!(words(&dctcp[4..]), [1_024, 3, u32::MAX]);
        assert!(emit(CongestionFigures::Nothing).is_empty());
        assert_eq!(emit(CongestionFigures::unstarted("bbr")), [0; 20]);
    }
}
