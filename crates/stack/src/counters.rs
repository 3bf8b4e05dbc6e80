//! Counters, named as in the MIBs and Linux's `nstat` where a name exists (RFC 4293, RFC 4022).

/// Declares the counters with the names that `nstat` prints.
macro_rules! counters {
    ($($(#[doc = $doc:literal])* $field:ident => $name:literal,)*) => {
        /// What the stack has counted since it started.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Counters {
            $($(#[doc = $doc])* pub $field: u64,)*
        }

        impl Counters {
            /// Of each counter, in the order of [`Self::iter`]: its name as a word with underscores, its name as `nstat` prints
            /// it, and what it counts.
            pub const DESCRIPTIONS: &[(&str, &str, &str)] =
                &[$((stringify!($field), $name, concat!($($doc),*)),)*];

            /// Name and value of each counter.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$(($name, self.$field),)*].into_iter()
            }
        }
    };
}

counters! {
    /// IPv4 packets received.
    ip_in_receives => "IpInReceives",
    /// Dropped for a bad IPv4 header.
    ip_in_hdr_errors => "IpInHdrErrors",
    /// Dropped for an address: not ours, or not a possible source (martian).
    ip_in_addr_errors => "IpInAddrErrors",
    /// Answered with protocol unreachable (IPv6: parameter problem).
    ip_in_unknown_protos => "IpInUnknownProtos",
    /// Handed to a protocol.
    ip_in_delivers => "IpInDelivers",
    /// Packets sent, of both families.
    ip_out_requests => "IpOutRequests",
    /// Lost on our side: interface busy, or no neighbour.
    ip_out_discards => "IpOutDiscards",
    /// Lost because no route leads to the peer any more.
    ip_out_no_routes => "IpOutNoRoutes",
    /// IPv4 fragments received.
    ip_reasm_reqds => "IpReasmReqds",
    /// IPv4 packets put together.
    ip_reasm_oks => "IpReasmOKs",
    /// IPv4 packets whose fragments did not come in time.
    ip_reasm_timeout => "IpReasmTimeout",
    /// IPv4 packets given up before they were complete, for whatever reason.
    ip_reasm_fails => "IpReasmFails",
    /// Packets of either family discarded because fragments overlap or differ.
    reasm_overlaps => "IpExtReasmOverlaps",
    /// ICMP messages received.
    icmp_in_msgs => "IcmpInMsgs",
    /// ICMP messages with a bad checksum or form.
    icmp_in_errors => "IcmpInErrors",
    /// Destination unreachable received.
    icmp_in_dest_unreachs => "IcmpInDestUnreachs",
    /// Time exceeded received.
    icmp_in_time_excds => "IcmpInTimeExcds",
    /// Redirects received.
    icmp_in_redirects => "IcmpInRedirects",
    /// Echo requests received.
    icmp_in_echos => "IcmpInEchos",
    /// Echo replies sent.
    icmp_out_echo_reps => "IcmpOutEchoReps",
    /// Destination unreachable sent.
    icmp_out_dest_unreachs => "IcmpOutDestUnreachs",
    /// Time exceeded sent: fragments did not come in time.
    icmp_out_time_excds => "IcmpOutTimeExcds",
    /// ICMP errors not sent because of the rate limit.
    icmp_out_rate_limit => "IcmpOutRateLimitGlobal",
    /// ICMP errors whose quote belongs to nothing in flight (RFC 5927).
    icmp_in_unmatched => "TcpExtOutOfWindowIcmps",
    /// Path MTU lowered by ICMP.
    pmtu_lowered => "ShuntPmtuLowered",
    /// IPv6 packets received.
    ip6_in_receives => "Ip6InReceives",
    /// Dropped for a bad IPv6 header or extension header.
    ip6_in_hdr_errors => "Ip6InHdrErrors",
    /// Dropped for an IPv6 address: not ours, or not a possible source.
    ip6_in_addr_errors => "Ip6InAddrErrors",
    /// IPv6 packets handed to a protocol.
    ip6_in_delivers => "Ip6InDelivers",
    /// IPv6 fragments received.
    ip6_reasm_reqds => "Ip6ReasmReqds",
    /// IPv6 packets put together.
    ip6_reasm_oks => "Ip6ReasmOKs",
    /// IPv6 packets whose fragments did not come in time.
    ip6_reasm_timeout => "Ip6ReasmTimeout",
    /// IPv6 packets given up before they were complete, for whatever reason.
    ip6_reasm_fails => "Ip6ReasmFails",
    /// ICMPv6 messages received.
    icmp6_in_msgs => "Icmp6InMsgs",
    /// ICMPv6 messages with a bad checksum or form.
    icmp6_in_errors => "Icmp6InErrors",
    /// ICMPv6 destination unreachable received.
    icmp6_in_dest_unreachs => "Icmp6InDestUnreachs",
    /// ICMPv6 packet too big received.
    icmp6_in_pkt_too_bigs => "Icmp6InPktTooBigs",
    /// ICMPv6 time exceeded received.
    icmp6_in_time_excds => "Icmp6InTimeExcds",
    /// ICMPv6 redirects received.
    icmp6_in_redirects => "Icmp6InRedirects",
    /// Redirects of both families that were believed.
    redirects_taken => "ShuntRedirectsTaken",
    /// ICMPv6 echo requests received.
    icmp6_in_echos => "Icmp6InEchos",
    /// ICMPv6 echo replies sent.
    icmp6_out_echo_replies => "Icmp6OutEchoReplies",
    /// ICMPv6 errors sent.
    icmp6_out_errors => "ShuntIcmp6OutErrors",
    /// Neighbour solicitations received.
    icmp6_in_neighbor_solicits => "Icmp6InNeighborSolicits",
    /// Neighbour advertisements received.
    icmp6_in_neighbor_advertisements => "Icmp6InNeighborAdvertisements",
    /// Router advertisements received.
    icmp6_in_router_advertisements => "Icmp6InRouterAdvertisements",
    /// Neighbour solicitations sent.
    icmp6_out_neighbor_solicits => "Icmp6OutNeighborSolicits",
    /// Neighbour advertisements sent.
    icmp6_out_neighbor_advertisements => "Icmp6OutNeighborAdvertisements",
    /// Router solicitations sent.
    icmp6_out_router_solicits => "Icmp6OutRouterSolicits",
    /// Messages of neighbour discovery that must not be believed (RFC 4861 §6.1, §7.1).
    ndp_in_errors => "ShuntNdpInErrors",
    /// Somebody else has one of our IPv6 addresses (RFC 4862 §5.4).
    duplicate_addresses => "ShuntDuplicateAddresses",
    /// IGMP messages received.
    igmp_in_msgs => "ShuntIgmpInMsgs",
    /// IGMP messages with a bad checksum or form.
    igmp_in_errors => "ShuntIgmpInErrors",
    /// IGMP messages sent.
    igmp_out_msgs => "ShuntIgmpOutMsgs",
    /// Messages of multicast listener discovery received.
    mld_in_msgs => "ShuntMldInMsgs",
    /// Those with a bad form, or not from the link.
    mld_in_errors => "ShuntMldInErrors",
    /// Messages of multicast listener discovery sent.
    mld_out_msgs => "ShuntMldOutMsgs",
    /// UDP datagrams for which nobody listens.
    udp_no_ports => "UdpNoPorts",
    /// UDP datagrams given to a socket.
    udp_in_datagrams => "UdpInDatagrams",
    /// UDP datagrams with a bad checksum or form, or for which their socket had no space.
    udp_in_errors => "UdpInErrors",
    /// UDP datagrams with a bad checksum.
    udp_in_csum_errors => "UdpInCsumErrors",
    /// UDP datagrams for which their socket had no space.
    udp_rcvbuf_errors => "UdpRcvbufErrors",
    /// UDP datagrams sent.
    udp_out_datagrams => "UdpOutDatagrams",
    /// Connections opened by a program.
    tcp_active_opens => "TcpActiveOpens",
    /// Connections opened by a peer's SYN.
    tcp_passive_opens => "TcpPassiveOpens",
    /// Handshakes that failed.
    tcp_attempt_fails => "TcpAttemptFails",
    /// Resets of established connections, by either side.
    tcp_estab_resets => "TcpEstabResets",
    /// Segments received.
    tcp_in_segs => "TcpInSegs",
    /// Segments sent; what the device cuts counts once for each segment.
    tcp_out_segs => "TcpOutSegs",
    // Of connections that are gone: `Stack::counters_of_all` adds what the living have counted.
    /// Segments sent again.
    tcp_retrans_segs => "TcpRetransSegs",
    /// Segments with a bad checksum or form.
    tcp_in_errs => "TcpInErrs",
    /// Segments with a bad checksum.
    tcp_in_csum_errors => "TcpInCsumErrors",
    /// Resets sent for segments that belong to nothing.
    tcp_out_rsts => "TcpOutRsts",
    /// SYNs or final ACKs that found the accept queue full; `listen_drops` counts those that were dropped.
    listen_overflows => "TcpExtListenOverflows",
    /// SYNs dropped for any reason.
    listen_drops => "TcpExtListenDrops",
    /// SYNs that found the queue of handshakes full and were answered with a cookie.
    syn_queue_overflows => "TcpExtTCPReqQFullDoCookies",
    /// SYN cookies sent.
    syn_cookies_sent => "TcpExtSyncookiesSent",
    /// SYN cookies that came back.
    syn_cookies_received => "TcpExtSyncookiesRecv",
    /// ACKs with a wrong SYN cookie, or none where one was due.
    syn_cookies_failed => "TcpExtSyncookiesFailed",
    /// Connections whose SYN's data the peer has taken (RFC 7413).
    fast_open_active => "TcpExtTCPFastOpenActive",
    /// Those whose SYN's data it has not taken.
    fast_open_active_fail => "TcpExtTCPFastOpenActiveFail",
    /// Connections opened by a SYN with the right cookie.
    fast_open_passive => "TcpExtTCPFastOpenPassive",
    /// SYNs with a wrong cookie.
    fast_open_passive_fail => "TcpExtTCPFastOpenPassiveFail",
    /// SYNs that asked for a cookie.
    fast_open_cookie_requests => "TcpExtTCPFastOpenCookieReqd",
    /// SYNs whose listener had too many unfinished ones with data.
    fast_open_listen_overflows => "TcpExtTCPFastOpenListenOverflow",
    /// Paths that seem to swallow data in SYNs.
    fast_open_blackholes => "TcpExtTCPFastOpenBlackhole",
    /// Connections that entered TIME-WAIT.
    time_waits => "TcpExtTW",
    /// TIME-WAIT records that made room for newer ones.
    time_wait_overflows => "TcpExtTCPTimeWaitOverflow",
    /// TIME-WAIT records reopened by a SYN.
    time_wait_recycled => "TcpExtTWRecycled",
    /// Orphans reset because there were too many.
    orphans_aborted => "TcpExtTCPAbortOnMemory",
    /// ARP packets received.
    arp_in => "ShuntArpIn",
    /// ARP packets that made no sense.
    arp_in_errors => "ShuntArpInErrors",
    /// ARP requests sent.
    arp_out_requests => "ShuntArpOutRequests",
    /// ARP replies sent.
    arp_out_replies => "ShuntArpOutReplies",
    /// Somebody else claimed one of our addresses (RFC 5227).
    arp_conflicts => "ShuntArpConflicts",
    /// Neighbours that did not answer.
    neighbour_failures => "ShuntNeighbourFailures",
    /// Entries that the full neighbour cache did not take.
    neighbour_table_full => "ShuntNeighbourTableFull",
    /// Frames for another host or of an unknown protocol.
    frames_ignored => "ShuntFramesIgnored",
    /// Frames too short or with impossible addresses.
    frame_errors => "ShuntFrameErrors",
    /// Connections reset at take-over because a crash interrupted a change of their row.
    interrupted => "ShuntInterrupted",
}
