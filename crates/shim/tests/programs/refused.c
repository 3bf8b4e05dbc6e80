/* A connect to a port where nobody listens, also port 0: blocking, and non-blocking with poll and SO_ERROR. */
#include "parity.h"

static void server(int listener) {
    int fd = accepted(listener);
    close(listener);
    step(fd);
    await(fd);
    close(fd);
}

static void client(address_t peer) {
    int guide = connected(peer);
    await(guide);
    pause_ms(50);
    int fd = socket(FAMILY, SOCK_STREAM, 0);
    result("connect", connect(fd, (struct sockaddr *)&peer, sizeof peer));
    say("SO_ERROR after: %s", error_name(socket_error(fd)));
    result("connect again", connect(fd, (struct sockaddr *)&peer, sizeof peer));
    close(fd);

    fd = socket(FAMILY, SOCK_STREAM | SOCK_NONBLOCK, 0);
    result("connect, non-blocking", connect(fd, (struct sockaddr *)&peer, sizeof peer));
    struct pollfd entry = {.fd = fd, .events = POLLIN | POLLOUT | POLLRDHUP};
    result("poll", poll(&entry, 1, 2000));
    events("refused", (unsigned)entry.revents);
    say("SO_ERROR: %s", error_name(socket_error(fd)));
    poll_now("fetched", fd, 0);
    result("connect after SO_ERROR", connect(fd, (struct sockaddr *)&peer, sizeof peer));
    /* Whoever has been told may try again with the same socket, and now somebody listens. */
    int on = 1, listener = socket(FAMILY, SOCK_STREAM, 0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    result("bind", bind(listener, (struct sockaddr *)&peer, sizeof peer));
    result("listen", listen(listener, 1));
    result("connect once more", connect(fd, (struct sockaddr *)&peer, sizeof peer));
    entry.events = POLLOUT;
    result("poll", poll(&entry, 1, 2000));
    result("connected", connect(fd, (struct sockaddr *)&peer, sizeof peer));
    result("send", send(fd, "x", 1, 0));
    int taken = accepted(listener);
    await(taken);
    close(taken);
    close(listener);
    close(fd);

    peer.PORT = 0;
    fd = socket(FAMILY, SOCK_STREAM, 0);
    result("connect to port 0", connect(fd, (struct sockaddr *)&peer, sizeof peer));
    close(fd);
    step(guide);
    close(guide);
}
