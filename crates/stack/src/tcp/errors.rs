//! ICMP errors about segments that this host has sent. They are believed only if they quote something that a connection
//! has in flight (RFC 5927 §4.1).

use super::Tcp;
use super::quote::Quote;
use crate::containers::intrusive::at;
use crate::host::Host;
use crate::ip::Ip;
use crate::ip::icmp_meaning::{Report, connection_error};
use crate::ip::path::{PATH_MTU_LIFETIME, cannot_be_a_link, path_mtu_min};
use core::net::IpAddr;
use tcp::{Events, Instant};

impl Tcp<'_> {
    /// The connection that sent what is quoted, if it is in flight.
    pub(crate) fn quoted_connection(&mut self, ip: &mut Ip, quote: Option<&Quote>) -> Option<u32> {
        let found = quote.and_then(|quote| {
            let index = self
                .demux
                .find(&quote.tuple)
                .filter(|index| at(*index) < self.connections.len())?;
            self.record(index)
                .tcp
                .is_quote_plausible(quote.seq)
                .then_some(index)
        });
        if found.is_none() {
            ip.link.counters.icmp_in_unmatched += 1;
        }
        found
    }

    /// An error about a segment (RFC 1122 §4.2.3.9, RFC 4443 §2.4 (d)). Never hard: RFC 5927 §5.2 has even "hard"
    /// errors only end a connection that is not established.
    pub(crate) fn handle_unreachable(
        &mut self,
        ip: &mut Ip,
        now: Instant,
        report: &Report<'_>,
        host: &mut dyn Host,
    ) {
        let quote = Quote::parse(report.quoted, report.offender, report.interface);
        let index = self.quoted_connection(ip, quote.as_ref());
        if let (Some(index), Some(error)) = (index, connection_error(report)) {
            self.run(ip, now, index, host, |tcp| {
                tcp.handle_unreachable(error, false)
            });
        }
    }

    /// A router could not forward a packet of the quoted size (RFC 1191 §4, RFC 8201 §4); it names the MTU of the next
    /// hop, or nothing.
    pub(crate) fn handle_too_big(&mut self, ip: &mut Ip, now: Instant, report: &Report<'_>) {
        let quote = Quote::parse(report.quoted, report.offender, report.interface);
        let Some(quote) = quote else {
            ip.link.counters.icmp_in_unmatched += u64::from(report.offender.is_ipv4());
            return;
        };
        let named = match report.next_hop_mtu {
            0 if report.offender.is_ipv4() => plateau_below(quote.total_len),
            named => named,
        };
        let Some(index) = self.quoted_connection(ip, Some(&quote)) else {
            return;
        };
        if cannot_be_a_link(quote.tuple.remote(), named) {
            return;
        }
        let least = path_mtu_min(quote.tuple.remote());
        let mtu = named.max(least);
        let record = self.record(index);
        // A router that could not forward a packet has a smaller MTU than the packet (RFC 5927 §7.2).
        let lowers = (record.path_mtu == 0 || mtu < record.path_mtu)
            && (mtu < quote.total_len || mtu == least);
        if !lowers {
            return;
        }
        let mss = mtu.saturating_sub(headers_len(quote.tuple.remote()));
        let is_next_step = self.may_be_of_another_router(now, index);
        let events = self.fly(index, |record, blocks| {
            record.path_mtu = mtu;
            record.path_mtu_until = now + PATH_MTU_LIFETIME;
            if is_next_step {
                record.tcp.handle_packet_too_big(now, mss, blocks)
            } else {
                Events::empty()
            }
        });
        ip.link.counters.pmtu_lowered += 1;
        if events.contains(Events::TRANSMIT) && !ip.flows.is_waiting(at(index)) {
            ip.flows.senders.push(index);
        }
    }

    /// Whether what connection `index` has sent since its path MTU was lowered last can have met a smaller link. Until
    /// then another message makes the next segments smaller and sends nothing again: a ladder of forged ones would have
    /// the whole flight sent for each step (RFC 5927 §7). What is lost meanwhile is found as any loss is.
    fn may_be_of_another_router(&self, now: Instant, index: u32) -> bool {
        let record = self.record(index);
        let round_trip_us = record.tcp.info().srtt_us;
        let lowered_at = record.path_mtu_until - PATH_MTU_LIFETIME;
        record.path_mtu == 0 || now.since(lowered_at).as_us() >= round_trip_us / 4
    }
}

/// Bytes of the headers of IP and TCP without options.
const fn headers_len(address: IpAddr) -> u16 {
    match address {
        IpAddr::V4(_) => 40,
        IpAddr::V6(_) => 60,
    }
}

/// RFC 1191 §7: the next usual MTU below a packet that did not fit, for routers that name none.
fn plateau_below(total_len: u16) -> u16 {
    const PLATEAUS: [u16; 8] = [32_000, 17_914, 8_166, 4_352, 2_002, 1_492, 1_006, 508];
    PLATEAUS
        .into_iter()
        .find(|plateau| *plateau < total_len)
        .unwrap_or(68)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plateaus_descend_to_the_minimum() {
        assert_eq!(plateau_below(1_500), 1_492);
        assert_eq!(plateau_below(1_492), 1_006);
        assert_eq!(plateau_below(100), 68);
    }
}
