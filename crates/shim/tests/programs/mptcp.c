/*
 * Sockets that ask for MPTCP, as Go's listeners do since 1.24, and for plain TCP where there is none: each kind of end
 * reaches each kind of listener.
 */
#include "parity.h"
#ifndef IPPROTO_MPTCP
#define IPPROTO_MPTCP 262
#endif

/* A socket that asks for it; the kernel may have been built without. */
static int multipath(int flags) {
    int fd = socket(FAMILY, SOCK_STREAM | flags, IPPROTO_MPTCP);
    return fd < 0 ? socket(FAMILY, SOCK_STREAM | flags, 0) : fd;
}

static int option(int fd, int level, int name) {
    int value = -1;
    socklen_t len = sizeof value;
    if (getsockopt(fd, level, name, &value, &len) < 0)
        say("option %d: %s", name, error_name(errno));
    return value;
}

static int kind_of(int fd) { return option(fd, SOL_SOCKET, SO_TYPE); }

/* Says back what comes, until the end. */
static void answer(int fd) {
    char text[64];
    ssize_t got;
    while ((got = recv(fd, text, sizeof text, 0)) > 0)
        send(fd, text, (size_t)got, 0);
    result("end", got);
    close(fd);
}

/* A listener of its own beside the given one. */
static int listener_at(address_t address) {
    int fd = multipath(SOCK_CLOEXEC), on = 1;
    result("reuse", setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
    result("bind", bind(fd, (struct sockaddr *)&address, sizeof address));
    result("listen", listen(fd, 8));
    say("kind %d, listens %d", kind_of(fd) == SOCK_STREAM, option(fd, SOL_SOCKET, SO_ACCEPTCONN));
    return fd;
}

static void server(int listener) {
    address_t address;
    socklen_t len = sizeof address;
    getsockname(listener, (struct sockaddr *)&address, &len);
    address.PORT = 0;
    int second = listener_at(address);
    len = sizeof address;
    getsockname(second, (struct sockaddr *)&address, &len);
    int first = accepted(listener);
    send(first, &address.PORT, sizeof address.PORT, 0);
    address_t name;
    for (int i = 0; i < 2; i++) {
        len = sizeof name;
        int fd = accept4(second, (struct sockaddr *)&name, &len, SOCK_CLOEXEC);
        worked("accept", fd);
        say("name of %u bytes, family %d", len, name.KIND == FAMILY);
        int on = 1;
        result("nodelay", setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on));
        answer(fd);
    }
    answer(first);
    close(second);
}

static void client(address_t peer) {
    int first = multipath(0);
    result("connect", connect(first, (struct sockaddr *)&peer, sizeof peer));
    recv(first, &peer.PORT, sizeof peer.PORT, MSG_WAITALL);
    for (int i = 0; i < 2; i++) {
        int fd = i ? multipath(SOCK_CLOEXEC) : socket(FAMILY, SOCK_STREAM, 0);
        say("kind %d, cloexec %d", kind_of(fd) == SOCK_STREAM, fcntl(fd, F_GETFD));
        result("connect", connect(fd, (struct sockaddr *)&peer, sizeof peer));
        address_t name;
        socklen_t len = sizeof name;
        result("getpeername", getpeername(fd, (struct sockaddr *)&name, &len));
        say("same %d", same_host(name, peer) && name.PORT == peer.PORT);
        char text[8] = {0};
        result("send", send(fd, "hello", 5, 0));
        result("recv", recv(fd, text, 5, MSG_WAITALL));
        say("text %s", text);
        poll_now("poll", fd, 0);
        result("shutdown", shutdown(fd, SHUT_WR));
        result("end", recv(fd, text, sizeof text, 0));
        close(fd);
    }
    result("wrong type", socket(FAMILY, SOCK_DGRAM, IPPROTO_MPTCP));
    close(first);
}
