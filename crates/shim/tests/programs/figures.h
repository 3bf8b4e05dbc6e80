/* What TCP_INFO tells: the structure of linux/tcp.h, which cannot be included beside netinet/tcp.h. */
struct figures {
    unsigned char tcpi_state, tcpi_ca_state, tcpi_retransmits, tcpi_probes, tcpi_backoff, tcpi_options;
    unsigned char tcpi_snd_wscale : 4, tcpi_rcv_wscale : 4, bits;
    unsigned tcpi_rto, tcpi_ato, tcpi_snd_mss, tcpi_rcv_mss, tcpi_unacked, tcpi_sacked, tcpi_lost, tcpi_retrans,
        tcpi_fackets, times[4], tcpi_pmtu, tcpi_rcv_ssthresh, tcpi_rtt, tcpi_rttvar, tcpi_snd_ssthresh,
        tcpi_snd_cwnd, tcpi_advmss, tcpi_reordering, tcpi_rcv_rtt, tcpi_rcv_space, tcpi_total_retrans;
    unsigned long long rates[2], tcpi_bytes_acked, tcpi_bytes_received;
    unsigned tcpi_segs_out, tcpi_segs_in, tcpi_notsent_bytes, tcpi_min_rtt, tcpi_data_segs_in,
        tcpi_data_segs_out;
    unsigned long long delivery_rate, limits[3];
    unsigned delivered[2];
    unsigned long long tcpi_bytes_sent, tcpi_bytes_retrans;
    unsigned tcpi_dsack_dups, tcpi_reord_seen, tcpi_rcv_ooopack, tcpi_snd_wnd, tcpi_rcv_wnd, tcpi_rehash;
    unsigned short tcpi_total_rto, tcpi_total_rto_recoveries;
    unsigned tcpi_total_rto_time;
};

static struct figures info(int fd) {
    struct figures info;
    socklen_t len = sizeof info;
    memset(&info, 0xff, sizeof info);
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) < 0)
        say("TCP_INFO: %s", error_name(errno));
    return info;
}
