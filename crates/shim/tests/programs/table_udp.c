/* Every call in every state of a datagram socket: one line per case, and a fresh socket for each. */
#define PARITY_UDP
#include "parity.h"
#include <netinet/udp.h>

/* What the server's half is asked to do: the first byte of a datagram. */
enum { SEND = 's', OVER = 'o' };

static void server(int fd) {
    address_t from;
    for (;;) {
        char wish = 0;
        socklen_t len = sizeof from;
        if (recvfrom(fd, &wish, 1, 0, (struct sockaddr *)&from, &len) < 0)
            say("no wish: %s", error_name(errno));
        if (wish == SEND)
            sendto(fd, "0123456789", 10, 0, (struct sockaddr *)&from, len);
        if (wish == OVER)
            return;
    }
}

/* The server's half, and a port of its host where nobody listens. */
static address_t there, nobody;
/* Another end, closed after the case: never here. */
static int extra = -1;
/* No state of ours is of a kind. */
enum { ENDED = 1, GONE = 2 };

static int fresh(void) { return socket(FAMILY, SOCK_DGRAM | SOCK_NONBLOCK, 0); }

static int bound(void) {
    address_t own = there;
    own.PORT = 0;
    int fd = fresh();
    bind(fd, (struct sockaddr *)&own, sizeof own);
    return fd;
}

static int joined(void) {
    int fd = fresh();
    connect(fd, (struct sockaddr *)&there, sizeof there);
    return fd;
}

static void awaits(int fd, short events) {
    struct pollfd entry = {.fd = fd, .events = events};
    poll(&entry, 1, 5000);
}

static int data_waits(void) {
    int fd = bound();
    char wish = SEND;
    sendto(fd, &wish, 1, 0, (struct sockaddr *)&there, sizeof there);
    awaits(fd, POLLIN);
    return fd;
}

static int joined_data(void) {
    int fd = joined();
    char wish = SEND;
    send(fd, &wish, 1, 0);
    awaits(fd, POLLIN);
    return fd;
}

static int refused(void) {
    int fd = fresh();
    connect(fd, (struct sockaddr *)&nobody, sizeof nobody);
    send(fd, "x", 1, 0);
    awaits(fd, 0);
    return fd;
}

static int dissolved(void) {
    int fd = joined();
    address_t none = there;
    none.KIND = AF_UNSPEC;
    connect(fd, (struct sockaddr *)&none, sizeof none);
    return fd;
}

static int after_shutdown(int how) {
    int fd = joined();
    shutdown(fd, how);
    return fd;
}

static int shut_rd(void) { return after_shutdown(SHUT_RD); }
static int shut_wr(void) { return after_shutdown(SHUT_WR); }
static int shut_both(void) { return after_shutdown(SHUT_RDWR); }

static const struct {
    const char *name;
    int (*make)(void);
    int kind;
} STATES[] = {
    {"fresh", fresh, 0},         {"bound", bound, 0},
    {"joined", joined, 0},       {"data waits", data_waits, 0},
    {"joined, data", joined_data, 0}, {"refused", refused, 0},
    {"dissolved", dissolved, 0}, {"shut rd", shut_rd, 0},
    {"shut wr", shut_wr, 0},     {"shut both", shut_both, 0},
};

#include "table.h"

CALL(sendto_nobody, return sendto(fd, "abc", 3, 0, (struct sockaddr *)&nobody, sizeof nobody);)
CALL(sendto_short, return sendto(fd, "abc", 3, 0, (struct sockaddr *)&there, 3);)
CALL(sendto_port_0, address_t zero = there; zero.PORT = 0; return sendto(fd, "abc", 3, 0, (struct sockaddr *)&zero, sizeof zero);)
CALL(send_too_long, static char much[70000]; return sendto(fd, much, sizeof much, 0, (struct sockaddr *)&there, sizeof there);)

static const struct call OWN_CALLS[] = {
    {"sendto nobody", sendto_nobody, 0}, {"sendto short", sendto_short, 0}, {"sendto port 0", sendto_port_0, 0},
    {"send too long", send_too_long, 0},
};

static const struct option OWN_OPTIONS[] = {
    {"UDP_CORK", IPPROTO_UDP, UDP_CORK, 1}, {"UDP_SEGMENT", IPPROTO_UDP, 103, 1}, {"UDP_GRO", IPPROTO_UDP, 104, 1},
    {"UDP unknown", IPPROTO_UDP, 9999, 1},
#ifndef PARITY_V6
    {"IP_TTL", IPPROTO_IP, IP_TTL, 1}, {"IP_TOS", IPPROTO_IP, IP_TOS, 1}, {"IP_PKTINFO", IPPROTO_IP, IP_PKTINFO, 1},
    {"IP_RECVTTL", IPPROTO_IP, IP_RECVTTL, 1}, {"IP_RECVTOS", IPPROTO_IP, IP_RECVTOS, 1},
    {"IP_RECVERR", IPPROTO_IP, IP_RECVERR, 1}, {"IP_MULTICAST_TTL", IPPROTO_IP, IP_MULTICAST_TTL, 1},
    {"IP_MULTICAST_LOOP", IPPROTO_IP, IP_MULTICAST_LOOP, 1}, {"IP_MULTICAST_ALL", IPPROTO_IP, 49, 1},
    {"IP_MTU_DISCOVER", IPPROTO_IP, IP_MTU_DISCOVER, 1}, {"IP unknown", IPPROTO_IP, 9999, 1},
#else
    {"IPV6_UNICAST_HOPS", IPPROTO_IPV6, IPV6_UNICAST_HOPS, 1}, {"IPV6_TCLASS", IPPROTO_IPV6, IPV6_TCLASS, 1},
    {"IPV6_RECVPKTINFO", IPPROTO_IPV6, IPV6_RECVPKTINFO, 1}, {"IPV6_RECVERR", IPPROTO_IPV6, IPV6_RECVERR, 1},
    {"IPV6_MULTICAST_HOPS", IPPROTO_IPV6, IPV6_MULTICAST_HOPS, 1}, {"IPV6_V6ONLY", IPPROTO_IPV6, IPV6_V6ONLY, 1},
    {"IPV6_MULTICAST_LOOP", IPPROTO_IPV6, IPV6_MULTICAST_LOOP, 1}, {"IPV6 unknown", IPPROTO_IPV6, 9999, 1},
#endif
};

#include "table_walk.h"

static void client(address_t peer) {
    there = nobody = peer;
    /* Discard (RFC 863), which nobody serves: of the ports that sockets get a socket could get that one, and be its own peer. */
    nobody.PORT = htons(9);
    walk();
    char wish = OVER;
    int fd = joined();
    send(fd, &wish, 1, 0);
    close(fd);
}
