/* TCP_INFO: what can be said of it without a clock and without the path's own numbers. */
#include "parity.h"
#include "figures.h"

/* Busy, and of that held up by the peer's window: as much as the peer waits. */
static void limited(int fd) {
    static char bytes[4096];
    struct figures before = info(fd);
    say("idle: busy %d", before.limits[0] >= 100000);
    nonblocking(fd);
    long all = 0, some;
    struct pollfd entry = {.fd = fd, .events = POLLOUT};
    while (poll(&entry, 1, 100) == 1)
        all += (some = send(fd, bytes, sizeof bytes, 0)) > 0 ? some : 0;
    pause_ms(200);
    struct figures of = info(fd);
    say("full: %d, busy %d, held up %d, not more %d", all > 0, of.limits[0] >= 200000, of.limits[1] >= 200000,
        of.limits[1] <= of.limits[0]);
    say("no room %d, notsent %d", of.tcpi_snd_wnd < 65536, of.tcpi_notsent_bytes > 0);
    fcntl(fd, F_SETFL, 0);
    await(fd);
    pause_ms(100);
    before = info(fd);
    pause_ms(60);
    of = info(fd);
    say("all is there: busy no more %d, held up no more %d", of.limits[0] == before.limits[0],
        of.limits[1] == before.limits[1]);
}

/* Reads only when the peer has found no more room. */
static void limits(int listener) {
    int fd = accepted(listener);
    struct figures of = info(fd);
    say("accepted: segments %u %u, ato %u, a window %d", of.tcpi_segs_out, of.tcpi_segs_in, of.tcpi_ato, of.tcpi_rcv_wnd > 0);
    step(fd);
    static char bytes[65536];
    pause_ms(1200);
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    while (poll(&entry, 1, 300) == 1 && recv(fd, bytes, sizeof bytes, MSG_DONTWAIT) > 0) {
    }
    of = info(fd);
    say("read: ato %d, last data %d", of.tcpi_ato > 0, of.times[2] < 10000);
    step(fd);
    recv(fd, bytes, 1, 0);
    pause_ms(50);
    of = info(fd);
    say("the end counts: %d", (int)(of.tcpi_bytes_received & 4095));
    close(fd);
}

static void server(int listener) {
    poll(&(struct pollfd){.fd = listener, .events = POLLIN}, 1, 2000);
    struct figures of = info(listener);
    say("listener: state %d, waiting %u, backlog %u", of.tcpi_state, of.tcpi_unacked, of.tcpi_sacked);
    say("cwnd %u, reordering %u, no rates %d %d", of.tcpi_snd_cwnd, of.tcpi_reordering, of.rates[0] == ~0ull, of.rates[1] == ~0ull);
    int fd = accepted(listener);
    char bytes[5000];
    result("received", recv(fd, bytes, sizeof bytes, MSG_WAITALL));
    step(fd);
    await(fd);
    shutdown(fd, SHUT_WR);
    // The peer has acknowledged it, and waits for this.
    for (int tries = 0; tries < 300 && info(fd).tcpi_state != TCP_FIN_WAIT2; tries++)
        pause_ms(1);
    say("state after FIN %d", info(fd).tcpi_state);
    close(fd);
    limits(listener);
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
    say("ato %u, reordering %u, by the program %d, windows %d %d", of.tcpi_ato, of.tcpi_reordering, of.bits & 1,
        of.tcpi_snd_wnd > 0, of.tcpi_rcv_wnd > 0);
    say("busy %llu, held up %llu, timeouts %u %u %u", of.limits[0], of.limits[1], of.tcpi_total_rto,
        of.tcpi_total_rto_recoveries, of.tcpi_total_rto_time);
    unsigned rate = 1000000;
    setsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, sizeof rate);
    of = info(fd);
    say("rate %d, at most %llu", of.rates[0] <= rate, of.rates[1]);
    rate = ~0u;
    setsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, sizeof rate);
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
    poll(&(struct pollfd){.fd = fd, .events = POLLRDHUP}, 1, 10000);
    // Long after the server has looked, or it would find the connection closed.
    pause_ms(600);
    say("state after the peer's FIN %d", info(fd).tcpi_state);
    close(fd);
    fd = connected(peer);
    /* Until the server has looked. */
    await(fd);
    pause_ms(150);
    limited(fd);
    shutdown(fd, SHUT_WR);
    pause_ms(150);
    close(fd);
}
