/* Options of TCP and IP: values told, limits, what an accepted connection inherits, and their effect. */
#include "parity.h"

static int told(int fd, int level, int name) {
    int value = -1;
    socklen_t len = sizeof value;
    if (getsockopt(fd, level, name, &value, &len) < 0)
        return -errno;
    return value;
}

static void put(const char *what, int fd, int level, int name, int value) {
    int done = setsockopt(fd, level, name, &value, sizeof value);
    say("%s = %d: %s, then %d", what, value, done < 0 ? error_name(errno) : "ok", told(fd, level, name));
}

static void all(int fd) {
    put("TCP_CORK", fd, IPPROTO_TCP, TCP_CORK, 1);
    put("TCP_CORK", fd, IPPROTO_TCP, TCP_CORK, 0);
    put("TCP_QUICKACK", fd, IPPROTO_TCP, TCP_QUICKACK, 1);
    put("TCP_KEEPIDLE", fd, IPPROTO_TCP, TCP_KEEPIDLE, 40000);
    put("TCP_KEEPIDLE", fd, IPPROTO_TCP, TCP_KEEPIDLE, 60);
    put("TCP_KEEPINTVL", fd, IPPROTO_TCP, TCP_KEEPINTVL, 7);
    put("TCP_KEEPCNT", fd, IPPROTO_TCP, TCP_KEEPCNT, 128);
    put("TCP_KEEPCNT", fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
    put("TCP_NOTSENT_LOWAT", fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, 16384);
    put("TCP_LINGER2", fd, IPPROTO_TCP, TCP_LINGER2, 20);
    put("TCP_LINGER2", fd, IPPROTO_TCP, TCP_LINGER2, -5);
    put("TCP_LINGER2", fd, IPPROTO_TCP, TCP_LINGER2, 100000);
    put("TCP_SYNCNT", fd, IPPROTO_TCP, TCP_SYNCNT, 0);
    put("TCP_SYNCNT", fd, IPPROTO_TCP, TCP_SYNCNT, 4);
    put("TCP_SYNCNT", fd, IPPROTO_TCP, TCP_SYNCNT, 200);
    put("TCP_USER_TIMEOUT", fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 5000);
    put("TCP_USER_TIMEOUT", fd, IPPROTO_TCP, TCP_USER_TIMEOUT, -1);
    put("TCP_DEFER_ACCEPT", fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, 5);
    put("TCP_DEFER_ACCEPT", fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, 0);
    put("SO_KEEPALIVE", fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    put("SO_RCVLOWAT", fd, SOL_SOCKET, SO_RCVLOWAT, 10);
    put("SO_RCVLOWAT", fd, SOL_SOCKET, SO_RCVLOWAT, 0);
    put("SO_RCVBUF", fd, SOL_SOCKET, SO_RCVBUF, 50000);
    put("SO_RCVBUF", fd, SOL_SOCKET, SO_RCVBUF, 1);
    put("SO_SNDBUF", fd, SOL_SOCKET, SO_SNDBUF, 50000);
    put("SO_SNDBUF", fd, SOL_SOCKET, SO_SNDBUF, 1);
    put("SO_SNDBUF", fd, SOL_SOCKET, SO_SNDBUF, 1 << 30);
    put("SO_PRIORITY", fd, SOL_SOCKET, SO_PRIORITY, 5);
    put("SO_OOBINLINE", fd, SOL_SOCKET, SO_OOBINLINE, 1);
    put("SO_OOBINLINE", fd, SOL_SOCKET, SO_OOBINLINE, 0);
    put("SO_BUSY_POLL", fd, SOL_SOCKET, SO_BUSY_POLL, 0);
    put("IP_TOS", fd, IPPROTO_IP, IP_TOS, 0x10);
    put("IP_TTL", fd, IPPROTO_IP, IP_TTL, 0);
    put("IP_TTL", fd, IPPROTO_IP, IP_TTL, 31);
    put("TCP_MAXSEG", fd, IPPROTO_TCP, TCP_MAXSEG, 10);
}

static void server(int listener) {
    int on = 1, seconds = 5, mss = 500;
    unsigned char syn[256];
    socklen_t len = sizeof syn;
    setsockopt(listener, IPPROTO_TCP, TCP_SAVE_SYN, &on, sizeof on);
    put("TCP_MAXSEG of a listener", listener, IPPROTO_TCP, TCP_MAXSEG, mss);
    put("IP_TOS of a listener", listener, IPPROTO_IP, IP_TOS, 0x08);
    put("TCP_LINGER2 of a listener", listener, IPPROTO_TCP, TCP_LINGER2, 11);
    int first = accepted(listener);
    step(first);
    int fd = accepted(listener);
    say("inherited: TOS %d, LINGER2 %d, MAXSEG %d", told(fd, IPPROTO_IP, IP_TOS),
        told(fd, IPPROTO_TCP, TCP_LINGER2), told(fd, IPPROTO_TCP, TCP_MAXSEG));
    len = 4;
    result("a small buffer", getsockopt(fd, IPPROTO_TCP, TCP_SAVED_SYN, syn, &len));
    say("needs at least 40: %d", len >= 40);
    len = sizeof syn;
    result("TCP_SAVED_SYN", getsockopt(fd, IPPROTO_TCP, TCP_SAVED_SYN, syn, &len));
    int is_v6 = syn[0] >> 4 == 6, header = is_v6 ? 40 : (syn[0] & 15) * 4;
    say("version %d, protocol %d, SYN %d, as long as it says %d", syn[0] >> 4, syn[is_v6 ? 6 : 9],
        syn[header + 13], (int)len == header + (syn[header + 12] >> 4) * 4);
    len = sizeof syn;
    result("a second time", getsockopt(fd, IPPROTO_TCP, TCP_SAVED_SYN, syn, &len));
    say("nothing: %d", (int)len);
    await(fd);
    setsockopt(listener, IPPROTO_TCP, TCP_DEFER_ACCEPT, &seconds, sizeof seconds);
    step(fd);
    poll_now("no data, no connection", listener, 300);
    step(fd);
    poll_now("data", listener, 2000);
    int second = accepted(listener);
    await(second);
    await(fd);
    close(second);
    close(fd);
    close(first);
}

static void client(address_t peer) {
    int fd = socket(FAMILY, SOCK_STREAM, 0);
    say("-- before connect");
    put("TCP_WINDOW_CLAMP", fd, IPPROTO_TCP, TCP_WINDOW_CLAMP, 10);
    put("TCP_WINDOW_CLAMP", fd, IPPROTO_TCP, TCP_WINDOW_CLAMP, 0);
    all(fd);
    close(fd);
    int first = connected(peer);
    await(first);
    fd = connected(peer);
    say("-- connected, MAXSEG %d", told(fd, IPPROTO_TCP, TCP_MAXSEG));
    all(fd);
    step(fd);
    await(fd);
    int second = connected(peer);
    await(fd);
    step(second);
    step(fd);
    pause_ms(50);
    close(second);
    close(fd);
    close(first);
}
