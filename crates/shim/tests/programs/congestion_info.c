/* TCP_CC_INFO: what BBR believes, and that others say nothing. */
#include "parity.h"

#ifndef TCP_CC_INFO
#define TCP_CC_INFO 26
#endif

/* struct tcp_bbr_info of linux/inet_diag.h. */
struct beliefs {
    unsigned bandwidth, bandwidth_high, min_rtt, pacing_gain, cwnd_gain;
};

static void choose(int fd, const char *name) {
    result(name, setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, strlen(name)));
}

static struct beliefs told(const char *when, int fd, socklen_t room) {
    struct beliefs of;
    memset(&of, 0xff, sizeof of);
    long done = getsockopt(fd, IPPROTO_TCP, TCP_CC_INFO, &of, &room);
    say("%s: %s, %u bytes", when, done < 0 ? error_name(errno) : "ok", (unsigned)room);
    return of;
}

static void all(int fd) {
    told("reno", fd, sizeof(struct beliefs));
    choose(fd, "cubic");
    told("cubic", fd, sizeof(struct beliefs));
    choose(fd, "bbr");
    told("bbr, little room", fd, 10);
    told("bbr, much room", fd, sizeof(struct beliefs));
}

static void server(int listener) {
    choose(listener, "bbr");
    struct beliefs of = told("a listener", listener, sizeof of);
    say("has not begun: %u %u %u", of.bandwidth, of.pacing_gain, of.cwnd_gain);
    int first = accepted(listener);
    step(first);
    int fd = accepted(listener);
    told("accepted", fd, sizeof of);
    choose(fd, "reno");
    all(fd);
    for (int round = 0; round < 20; round++) {
        await(fd);
        step(fd);
    }
    close(fd);
    close(first);
}

static void client(address_t peer) {
    int first = connected(peer), fd = socket(FAMILY, SOCK_STREAM, 0);
    await(first);
    choose(fd, "reno");
    all(fd);
    struct beliefs of = told("before connect", fd, sizeof of);
    say("has not begun: %u %u %u", of.bandwidth, of.pacing_gain, of.cwnd_gain);
    result("connect", connect(fd, (struct sockaddr *)&peer, sizeof peer));
    for (int round = 0; round < 20; round++) {
        step(fd);
        await(fd);
    }
    of = told("connected", fd, sizeof of);
    say("a bandwidth %d, a round trip %d, gains %d %d", of.bandwidth > 0, of.min_rtt > 0 && of.min_rtt < 1000000,
        of.pacing_gain > 64 && of.pacing_gain < 800, of.cwnd_gain >= 128 && of.cwnd_gain < 800);
    choose(fd, "reno");
    all(fd);
    close(fd);
    close(first);
}
