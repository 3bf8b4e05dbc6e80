/* A server that gives up its listener and listens at the same address at once, as some do for each client. */
#include "parity.h"

static int again(address_t own) {
    int listener = socket(FAMILY, SOCK_STREAM, 0), on = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listener, (struct sockaddr *)&own, sizeof own) < 0 || listen(listener, 4) < 0) {
        say("again: %s", error_name(errno));
        close(listener);
        return -1;
    }
    return listener;
}

static void server(int listener) {
    address_t own;
    socklen_t len = sizeof own;
    getsockname(listener, (struct sockaddr *)&own, &len);
    int fd = accepted(listener);
    int rounds = 0;
    close(listener);
    while ((listener = again(own)) >= 0 && ++rounds < 100)
        close(listener);
    say("rounds: %d", rounds);
    step(fd);
    if (listener >= 0) {
        int next = accepted(listener);
        await(next);
        close(next);
        close(listener);
    }
    close(fd);
}

static void client(address_t peer) {
    int fd = connected(peer);
    await(fd);
    int next = connected(peer);
    step(next);
    char byte;
    result("end", recv(next, &byte, 1, 0));
    close(next);
    close(fd);
}
