/* TCP_INFO: what can be said of it without a clock and without the path's own numbers. */
#include "parity.h"

/* The structure of linux/tcp.h, which cannot be included beside netinet/tcp.h. */
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
};

static struct figures info(int fd) {
    struct figures info;
    socklen_t len = sizeof info;
    memset(&info, 0xff, sizeof info);
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) < 0)
        say("TCP_INFO: %s", error_name(errno));
    return info;
}

static void server(int listener) {
    poll(&(struct pollfd){.fd = listener, .events = POLLIN}, 1, 2000);
    struct figures of = info(listener);
    say("listener: state %d, waiting %u, backlog %u", of.tcpi_state, of.tcpi_unacked, of.tcpi_sacked);
    int fd = accepted(listener);
    char bytes[5000];
    result("received", recv(fd, bytes, sizeof bytes, MSG_WAITALL));
    step(fd);
    await(fd);
    shutdown(fd, SHUT_WR);
    pause_ms(50);
    say("state after FIN %d", info(fd).tcpi_state);
    close(fd);
}

static void client(address_t peer) {
    char bytes[5000] = "";
    unsigned char large[1024];
    socklen_t len = sizeof large;
    int fd = socket(FAMILY, SOCK_STREAM, 0);
    say("state %d", info(fd).tcpi_state);
    if (connect(fd, (struct sockaddr *)&peer, sizeof peer) < 0)
        say("connect: %s", error_name(errno));
    worked("a large buffer", getsockopt(fd, IPPROTO_TCP, TCP_INFO, large, &len));
    say("length %d", (int)len);
    struct figures of = info(fd);
    say("state %d, options %d, ca_state %d", of.tcpi_state, of.tcpi_options & 7, of.tcpi_ca_state);
    say("segments %u %u, unacked %u, window scales %d", of.tcpi_segs_out, of.tcpi_segs_in, of.tcpi_unacked,
        of.tcpi_snd_wscale > 0 && of.tcpi_rcv_wscale > 0);
    say("cwnd %d, ssthresh %u", of.tcpi_snd_cwnd > 0, of.tcpi_snd_ssthresh);
    say("bytes %llu %llu", of.tcpi_bytes_acked, of.tcpi_bytes_received);
    result("sent", send(fd, bytes, sizeof bytes, 0));
    await(fd);
    pause_ms(60);
    of = info(fd);
    say("acknowledged %llu, received %llu, unacked %u, notsent %u", of.tcpi_bytes_acked,
        of.tcpi_bytes_received, of.tcpi_unacked, of.tcpi_notsent_bytes);
    say("sent %llu, again %llu, retransmissions %u", of.tcpi_bytes_sent,
        of.tcpi_bytes_retrans, of.tcpi_total_retrans);
    say("a round trip was measured %d, rto %d", of.tcpi_rtt > 0, of.tcpi_rto >= 200000);
    say("ca_state %d, the least round trip %d, delivered %d, a rate %d", of.tcpi_ca_state,
        of.tcpi_min_rtt > 0 && of.tcpi_min_rtt <= of.tcpi_rtt + of.tcpi_rttvar, of.delivered[0] == of.tcpi_data_segs_out + 1,
        of.delivery_rate > 0);
    say("data segments in %u, out at least one %d", of.tcpi_data_segs_in, of.tcpi_data_segs_out > 0);
    step(fd);
    // Long after the server has looked, or it would find the connection closed.
    pause_ms(400);
    say("state after the peer's FIN %d", info(fd).tcpi_state);
    close(fd);
}
