/* Options that are set, told, inherited by accepted connections, and refused. */
#include "parity.h"

static int told(int fd, int level, int name) {
    int value = -1;
    socklen_t len = sizeof value;
    if (getsockopt(fd, level, name, &value, &len) < 0)
        return -errno;
    return value;
}

static void server(int listener) {
    int on = 1, idle = 77;
    struct linger linger = {1, 3};
    socklen_t len = sizeof linger;
    say("SO_ACCEPTCONN %d", told(listener, SOL_SOCKET, SO_ACCEPTCONN));
    setsockopt(listener, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(listener, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(listener, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(listener, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
    int fd = accepted(listener);
    /* What comes after this has a listener with these options. */
    step(fd);
    await(fd);
    close(fd);
    fd = accepted(listener);
    say("inherited %d %d %d", told(fd, IPPROTO_TCP, TCP_NODELAY), told(fd, SOL_SOCKET, SO_KEEPALIVE),
        told(fd, IPPROTO_TCP, TCP_KEEPIDLE));
    memset(&linger, 0, sizeof linger);
    getsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, &len);
    say("linger %d %d", linger.l_onoff, linger.l_linger);
    say("SO_ACCEPTCONN %d", told(fd, SOL_SOCKET, SO_ACCEPTCONN));
    result("FIONREAD of a listener", ioctl(listener, FIONREAD, &on));
    await(fd);
    close(fd);
}

static void client(address_t peer) {
    int fd = connected(peer), value = 1;
    await(fd);
    step(fd);
    int second = connected(peer);
    say("type %d, protocol %d, domain %d", told(fd, SOL_SOCKET, SO_TYPE),
        told(fd, SOL_SOCKET, SO_PROTOCOL), told(fd, SOL_SOCKET, SO_DOMAIN));
    say("SO_ERROR %d", told(fd, SOL_SOCKET, SO_ERROR));
    say("TCP_NODELAY %d", told(second, IPPROTO_TCP, TCP_NODELAY));
    result("set", setsockopt(second, IPPROTO_TCP, TCP_NODELAY, &value, sizeof value));
    say("TCP_NODELAY %d", told(second, IPPROTO_TCP, TCP_NODELAY));
    result("unknown option", setsockopt(second, IPPROTO_TCP, 9999, &value, sizeof value));
    result("unknown level", setsockopt(second, 9999, 1, &value, sizeof value));
    result("short", setsockopt(second, IPPROTO_TCP, TCP_NODELAY, &value, 2));
    value = 0;
    result("keep idle of 0", setsockopt(second, IPPROTO_TCP, TCP_KEEPIDLE, &value, sizeof value));
    struct tcp_info info = {0};
    socklen_t len = sizeof info;
    worked("TCP_INFO", getsockopt(second, IPPROTO_TCP, TCP_INFO, &info, &len));
    say("state %d", info.tcpi_state);
    len = 1;
    unsigned char state = 0;
    result("one byte of it", getsockopt(second, IPPROTO_TCP, TCP_INFO, &state, &len));
    say("len %d, state %d", (int)len, state);
    step(second);
    pause_ms(50);
    int queued = -1;
    ioctl(second, TIOCOUTQ, &queued);
    say("SIOCOUTQ %d", queued);
    value = 1;
    result("FIONBIO", ioctl(second, FIONBIO, &value));
    say("O_NONBLOCK %d", !!(fcntl(second, F_GETFL) & O_NONBLOCK));
    close(second);
    close(fd);
}
