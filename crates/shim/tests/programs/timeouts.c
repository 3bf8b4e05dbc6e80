/* SO_RCVTIMEO on recv and accept, SO_SNDTIMEO on send, and what getsockopt says of them. Neither half goes on
 * before the other's time-out is over, however slow the machine. */
#include "parity.h"

/* That a limit of 100 ms was waited for, and not for ever. */
static void waited(double start) { say("waited %s", now() - start > 0.09 && now() - start < 20 ? "yes" : "no"); }

static void server(int listener) {
    int fd = accepted(listener);
    struct timeval limit = {0, 100000}, none = {0, 0};
    setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    double start = now();
    result("accept", accept(listener, NULL, NULL));
    waited(start);
    setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &none, sizeof none);
    await(fd);
    step(fd);
    /* Nothing is read from here on. */
    int second = accepted(listener);
    close(second);
    close(fd);
}

static void client(address_t peer) {
    int fd = connected(peer);
    struct timeval limit = {0, 100000}, none = {0, 0}, told;
    socklen_t len = sizeof told;
    char text[8];
    result("set", setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit));
    getsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &told, &len);
    say("told %ld.%06ld", (long)told.tv_sec, (long)told.tv_usec);
    double start = now();
    result("recv", recv(fd, text, sizeof text, 0));
    waited(start);
    result("set", setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &none, sizeof none));
    step(fd);
    await(fd);
    result("send timeout", setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit));
    char *block = calloc(1, 1 << 20);
    long count;
    do {
        start = now();
        count = send(fd, block, 1 << 20, 0);
    } while (count > 0);
    result("send", count);
    waited(start);
    struct timeval wrong = {0, 2000000};
    result("wrong", setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wrong, sizeof wrong));
    result("short", setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, 3));
    free(block);
    close(connected(peer));
    close(fd);
}
