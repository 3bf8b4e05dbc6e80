//! How soon a sleeping caller offers frames again to a busy device. The device does not say when it takes frames again.

/// Wait after the first refusal, microseconds.
const FIRST_US: u64 = 100;
/// Longest wait, microseconds.
const LONGEST_US: u64 = 5_000;

/// The wait until the next offer; it doubles with each refusal in a row.
#[derive(Debug, Default)]
pub(crate) struct Retry {
    /// 0: the device is not busy.
    wait_us: u64,
}

impl Retry {
    /// The device took a frame.
    pub(crate) fn on_taken(&mut self) {
        self.wait_us = 0;
    }

    /// It took none.
    pub(crate) fn on_busy(&mut self) {
        self.wait_us = (self.wait_us * 2).clamp(FIRST_US, LONGEST_US);
    }

    /// Whether it has taken none for so long that it may be more than busy.
    pub(crate) fn is_long(&self) -> bool {
        self.wait_us == LONGEST_US
    }

    /// When to offer again, in microseconds; `None`: nothing was refused.
    pub(crate) fn deadline_us(&self) -> Option<u64> {
        (self.wait_us > 0).then_some(self.wait_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_doubles_until_a_frame_is_taken() {
        let mut retry = Retry::default();
        assert_eq!(retry.deadline_us(), None);
        let waits: Vec<_> = (0..8)
            .map(|_| {
                assert!(!retry.is_long() || retry.deadline_us() == Some(LONGEST_US));
                retry.on_busy();
                retry.deadline_us().unwrap()
            })
            .collect();
        assert_eq!(waits, [100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000]);
        assert!(retry.is_long());
        retry.on_taken();
        assert_eq!((retry.deadline_us(), retry.is_long()), (None, false));
        retry.on_busy();
        assert_eq!(retry.deadline_us(), Some(100));
    }
}
