/* MSG_MORE and TCP_CORK hold a partial segment back; TCP_NODELAY and the next write let it go. */
#include "parity.h"

static void waiting(const char *what, int fd, int timeout_ms) {
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    char bytes[64];
    int ready = poll(&entry, 1, timeout_ms);
    say("%s: %d, %ld", what, ready, ready ? (long)recv(fd, bytes, sizeof bytes, 0) : 0L);
}

static void server(int listener) {
    int fd = accepted(listener);
    step(fd);
    waiting("MSG_MORE", fd, 80);
    step(fd);
    waiting("with the next", fd, 2000);
    step(fd);
    waiting("corked", fd, 80);
    step(fd);
    waiting("uncorked", fd, 2000);
    step(fd);
    waiting("for ever is 200 ms", fd, 2000);
    await(fd);
    close(fd);
}

static void client(address_t peer) {
    int fd = connected(peer), on = 1, off = 0;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    await(fd);
    result("more", send(fd, "ab", 2, MSG_MORE));
    await(fd);
    result("the rest", send(fd, "cd", 2, 0));
    await(fd);
    setsockopt(fd, IPPROTO_TCP, TCP_CORK, &on, sizeof on);
    result("corked", send(fd, "efg", 3, 0));
    await(fd);
    setsockopt(fd, IPPROTO_TCP, TCP_CORK, &off, sizeof off);
    await(fd);
    result("more", send(fd, "hijk", 4, MSG_MORE));
    pause_ms(400);
    step(fd);
    close(fd);
}
