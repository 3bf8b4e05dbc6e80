/* A full accept queue: who comes too late waits in connect until somebody was accepted. */
#include "parity.h"

static int start(address_t peer) {
    int fd = socket(FAMILY, SOCK_STREAM, 0);
    nonblocking(fd);
    if (connect(fd, (struct sockaddr *)&peer, sizeof peer) < 0 && errno != EINPROGRESS)
        say("connect: %s", error_name(errno));
    return fd;
}

static int connects(int fd, int timeout_ms) {
    struct pollfd entry = {.fd = fd, .events = POLLOUT};
    return poll(&entry, 1, timeout_ms) == 1 && !socket_error(fd);
}

static void server(int listener) {
    int fd = accepted(listener);
    result("a smaller backlog", listen(listener, 1));
    step(fd);
    await(fd);
    int first = accepted(listener);
    int second = accepted(listener);
    say("the third comes");
    int third = accepted(listener);
    close(first);
    close(second);
    close(third);
    close(fd);
}

static void client(address_t peer) {
    int fd = connected(peer), waiting[3];
    await(fd);
    for (int i = 0; i < 2; i++) {
        waiting[i] = start(peer);
        say("connection %d: %d", i, connects(waiting[i], 2000));
    }
    waiting[2] = start(peer);
    say("one too many: %d", connects(waiting[2], 300));
    step(fd);
    say("after an accept: %d", connects(waiting[2], 5000));
    for (int i = 0; i < 3; i++)
        close(waiting[i]);
    close(fd);
}
