/* SO_RCVTIMEO on recv and accept, SO_SNDTIMEO on send, and what getsockopt says of them. */
#include "parity.h"

static void server(int listener) {
    int fd = accepted(listener);
    struct timeval limit = {0, 100000};
    setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    double start = now();
    result("accept", accept(listener, NULL, NULL));
    say("waited %s", now() - start > 0.09 && now() - start < 1 ? "yes" : "no");
    await(fd);
    close(fd);
}

static void client(address_t peer) {
    int fd = connected(peer);
    struct timeval limit = {0, 100000}, told;
    socklen_t len = sizeof told;
    char text[8];
    result("set", setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit));
    getsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &told, &len);
    say("told %ld.%06ld", (long)told.tv_sec, (long)told.tv_usec);
    double start = now();
    result("recv", recv(fd, text, sizeof text, 0));
    say("waited %s", now() - start > 0.09 && now() - start < 1 ? "yes" : "no");
    result("send timeout", setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit));
    char *block = calloc(1, 1 << 20);
    long count;
    do
        count = send(fd, block, 1 << 20, 0);
    while (count > 0);
    result("send", count);
    struct timeval wrong = {0, 2000000};
    result("wrong", setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wrong, sizeof wrong));
    result("short", setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, 3));
    free(block);
    close(fd);
}
