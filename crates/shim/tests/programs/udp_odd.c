/* Odd calls on UDP sockets: port 0, addresses of the other family, more messages than Linux takes at once. */
#define PARITY_UDP
#include "parity.h"

static void named(const char *what, int fd, int is_peer) {
    struct sockaddr_storage name;
    socklen_t len = sizeof name;
    struct sockaddr *at = (struct sockaddr *)&name;
    if (result(what, is_peer ? getpeername(fd, at, &len) : getsockname(fd, at, &len)) == 0)
        say("length %u, family %d", len, at->sa_family == FAMILY);
}

/* How getaddrinfo(3) asks which of its own addresses leads somewhere. */
static void to_port_nought(address_t peer) {
    int fd = socket(FAMILY, SOCK_DGRAM, 0);
    address_t nowhere = peer, own;
    nowhere.PORT = 0;
    result("connect to port 0", connect(fd, (struct sockaddr *)&nowhere, sizeof nowhere));
    named("own", fd, 0);
    socklen_t len = sizeof own;
    getsockname(fd, (struct sockaddr *)&own, &len);
    say("own: any %d, port %d", is_any(own), own.PORT != 0);
    named("peer", fd, 1);
    result("send to port 0", sendto(fd, "x", 1, 0, (struct sockaddr *)&nowhere, sizeof nowhere));
    result("connect", connect(fd, (struct sockaddr *)&peer, sizeof peer));
    named("peer", fd, 1);
    result("send", send(fd, "after", 5, 0));
    char text[16];
    result("back", recv(fd, text, sizeof text, 0));
    close(fd);
}

static void many(address_t peer) {
    enum { COUNT = 1025 };
    static struct mmsghdr messages[COUNT];
    static struct iovec part = {"m", 1};
    int fd = socket(FAMILY, SOCK_DGRAM, 0);
    for (int i = 0; i < COUNT; i++) {
        messages[i].msg_hdr.msg_iov = &part;
        messages[i].msg_hdr.msg_iovlen = i < 1000 ? 0 : 1;
        messages[i].msg_hdr.msg_name = &peer;
        messages[i].msg_hdr.msg_namelen = sizeof peer;
    }
    result("many", sendmmsg(fd, messages, COUNT, 0));
    result("none", sendmmsg(fd, messages, 0, 0));
    close(fd);
}

static void other_family(address_t peer) {
#ifdef PARITY_V6
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = peer.PORT};
    inet_pton(AF_INET, "127.0.0.1", &four.sin_addr);
    int only = 1, fd = socket(AF_INET6, SOCK_DGRAM, 0);
    result("IPv4", connect(fd, (struct sockaddr *)&four, sizeof four));
    named("own", fd, 0);
    named("peer", fd, 1);
    close(fd);
    fd = socket(AF_INET6, SOCK_DGRAM, 0);
    setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof only);
    result("IPv6 only", connect(fd, (struct sockaddr *)&four, sizeof four));
    result("send", sendto(fd, "x", 1, 0, (struct sockaddr *)&four, sizeof four));
    close(fd);
    fd = socket(AF_INET6, SOCK_STREAM, 0);
    result("TCP", connect(fd, (struct sockaddr *)&four, sizeof four));
    result("short", connect(fd, (struct sockaddr *)&four, 8));
    result("bind", bind(fd, (struct sockaddr *)&four, sizeof four));
    result("connect", connect(fd, (struct sockaddr *)&peer, sizeof peer));
    result("TCP again", connect(fd, (struct sockaddr *)&four, sizeof four));
    close(fd);
#else
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = peer.PORT, .sin6_addr = in6addr_loopback};
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    result("IPv6", connect(fd, (struct sockaddr *)&six, sizeof six));
    result("send", sendto(fd, "x", 1, 0, (struct sockaddr *)&six, sizeof six));
    result("bind", bind(fd, (struct sockaddr *)&six, sizeof six));
    close(fd);
    fd = socket(AF_INET, SOCK_STREAM, 0);
    result("TCP", connect(fd, (struct sockaddr *)&six, sizeof six));
    close(fd);
#endif
}

static void server(int fd) {
    char text[16];
    address_t from;
    ssize_t got;
    do {
        socklen_t len = sizeof from;
        got = recvfrom(fd, text, sizeof text, 0, (struct sockaddr *)&from, &len);
    } while (got != 5);
    result("answer", sendto(fd, text, (size_t)got, 0, (struct sockaddr *)&from, sizeof from));
}

static void client(address_t peer) {
    other_family(peer);
    to_port_nought(peer);
    many(peer);
}
