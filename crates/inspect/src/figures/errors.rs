//! Which of an engine's counters tell of something that went wrong, on its side, on the network or at a peer.

use serde_json::Value;

use super::{FIGURES, of_stack};

/// Names of figures, as in [`FIGURES`], and words of the stack's counters.
const ERRORS: &str = "
driver_rx_dropped driver_tx_dropped driver_lost_at_stopped_queue refused_programs refused_rows refused_windows
lost_log_lines tcp_retrans_segs tcp_attempt_fails tcp_estab_resets tcp_in_errs tcp_in_csum_errors tcp_out_rsts
listen_overflows listen_drops syn_queue_overflows syn_cookies_failed fast_open_active_fail fast_open_passive_fail
fast_open_listen_overflows fast_open_blackholes time_wait_overflows orphans_aborted interrupted udp_no_ports
udp_in_errors udp_in_csum_errors udp_rcvbuf_errors ip_in_hdr_errors ip_in_addr_errors ip_in_unknown_protos
ip_out_discards ip_out_no_routes ip_reasm_timeout ip_reasm_fails reasm_overlaps ip6_in_hdr_errors ip6_in_addr_errors
ip6_reasm_timeout ip6_reasm_fails icmp_in_errors icmp_out_dest_unreachs icmp_in_unmatched icmp6_in_errors
icmp6_out_errors ndp_in_errors duplicate_addresses igmp_in_errors mld_in_errors arp_in_errors arp_conflicts
neighbour_failures neighbour_table_full frame_errors
";

fn is_error(name: &str) -> bool {
    ERRORS.split_ascii_whitespace().any(|error| error == name)
}

/// A kind of error of an engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// Its name as a metric, without prefix.
    pub name: &'static str,
    /// What is counted.
    pub help: &'static str,
    /// Since the engine started.
    pub count: u64,
}

/// Those that a report tells of, with how often; those that never happened too.
pub fn errors(status: &Value) -> Vec<Error> {
    let own = FIGURES.iter().filter_map(|figure| {
        let count = figure.of(status)?;
        Some((figure.metric, figure.help, count))
    });
    let of_stack = of_stack(status).map(|(word, _, help, count)| (word, help, count));
    let known = own.chain(of_stack);
    let errors = known.filter(|(name, ..)| is_error(name));
    errors
        .map(|(name, help, count)| Error { name, help, count })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_counter_whose_name_tells_of_an_error_is_one() {
        let own = FIGURES.iter().map(|figure| figure.metric);
        let stack = stack::Counters::DESCRIPTIONS.iter().map(|(word, ..)| *word);
        let names: Vec<&str> = own.chain(stack).collect();
        for name in ERRORS.split_ascii_whitespace() {
            assert!(names.contains(&name), "{name}");
        }
        let signs = [
            "error", "errs", "drop", "fail", "overflow", "lost", "refused", "discard", "conflict",
        ];
        for name in &names {
            let is_sign = signs.iter().any(|sign| name.contains(sign));
            assert!(!is_sign || is_error(name), "{name}");
        }
    }

    #[test]
    fn an_error_is_told_with_what_it_is() {
        let status = json!({
            "driver_counters": { "rx_dropped": 3, "rx_frames": 9 }, "stack_counters": { "TcpInCsumErrors": 2, "TcpInSegs": 8 },
        });
        let found = errors(&status);
        let told: Vec<_> = found.iter().map(|one| (one.name, one.count)).collect();
        assert_eq!(told, [("driver_rx_dropped", 3), ("tcp_in_csum_errors", 2)]);
        assert!(found.iter().all(|one| one.help.ends_with('.')), "{found:?}");
    }
}
