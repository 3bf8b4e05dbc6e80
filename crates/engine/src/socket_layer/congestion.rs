//! TCP_CONGESTION and SO_MAX_PACING_RATE of a socket: what the program asks for, and what the header says.

use crate::sockets::Sockets;
use hostif::OptionChanges;
use tcp::{Algorithm, SocketOptions};

/// Takes over what `changes` says; a number that names nothing changes nothing.
pub(crate) fn take(options: &mut SocketOptions, changes: &OptionChanges) {
    let algorithm = changes.congestion.and_then(Algorithm::from_code);
    options.congestion = algorithm.unwrap_or(options.congestion);
    if let Some(rate) = changes.max_pacing_rate {
        // 0 is no limit here; a program that asks for it gets the slowest there is.
        options.max_pacing_rate = match rate {
            u32::MAX => 0,
            rate => u64::from(rate.max(1)),
        };
    }
}

impl Sockets {
    /// Tells the program which congestion control its socket has.
    pub(crate) fn publish_congestion(&mut self, row: u32) {
        let code = self.row(row).options.congestion.code();
        self.with_header(row, |header| header.engine_set_congestion(code));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_are_those_of_the_host_interface() {
        for algorithm in Algorithm::ALL {
            let name = hostif::figures::congestion::name(algorithm.code());
            assert_eq!(name, Some(algorithm.name()));
            assert_eq!(Algorithm::from_code(algorithm.code()), Some(algorithm));
        }
        assert_eq!(
            Algorithm::ALL.len(),
            hostif::figures::congestion::NAMES.len()
        );
    }

    #[test]
    fn a_program_may_choose_and_cannot_spoil() {
        let mut options = SocketOptions::default();
        let changes = |congestion, max_pacing_rate| OptionChanges {
            congestion,
            max_pacing_rate,
            ..OptionChanges::default()
        };
        take(&mut options, &changes(Some(2), Some(5_000)));
        assert_eq!(
            (options.congestion, options.max_pacing_rate),
            (Algorithm::Bbr, 5_000)
        );
        take(&mut options, &changes(Some(99), Some(u32::MAX)));
        assert_eq!(
            (options.congestion, options.max_pacing_rate),
            (Algorithm::Bbr, 0)
        );
    }
}
