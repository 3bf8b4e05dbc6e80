/* SO_RCVLOWAT and TCP_NOTSENT_LOWAT in poll, recv and send. */
#include "parity.h"

static void readable(const char *what, int fd, int timeout_ms) {
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    say("%s: %d", what, poll(&entry, 1, timeout_ms));
}

static int unread(int fd) {
    int count = 0;
    ioctl(fd, FIONREAD, &count);
    return count;
}

static void server(int listener) {
    int fd = accepted(listener), bytes = 10;
    char buffer[64];
    setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof bytes);
    step(fd);
    readable("four of ten", fd, 200);
    step(fd);
    readable("twelve of ten", fd, 2000);
    result("received", recv(fd, buffer, sizeof buffer, 0));
    step(fd);
    /* The mark holds poll back, so what has come is counted. */
    for (double end = now() + 20; now() < end && unread(fd) < 3;)
        pause_ms(1);
    result("what there is, not blocking", recv(fd, buffer, sizeof buffer, MSG_DONTWAIT));
    bytes = 1;
    setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof bytes);
    step(fd);
    /* The client fills the path; nobody reads until it has looked. */
    await(listener >= 0 ? accepted(listener) : -1);
    static char sink[1 << 20];
    while (recv(fd, sink, sizeof sink, 0) > 0) {
    }
    close(fd);
}

static void client(address_t peer) {
    int fd = connected(peer), bytes = 4096;
    await(fd);
    send(fd, "1234", 4, 0);
    await(fd);
    send(fd, "56789012", 8, 0);
    await(fd);
    send(fd, "abc", 3, 0);
    await(fd);
    setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &bytes, sizeof bytes);
    nonblocking(fd);
    static char data[1 << 20];
    poll_now("empty", fd, 0);
    /* The path takes a while to fill. */
    struct pollfd room = {.fd = fd, .events = POLLOUT};
    while (poll(&room, 1, 300) == 1) {
        while (send(fd, data, sizeof data, 0) > 0) {
        }
    }
    say("full: %s", error_name(errno));
    int go = connected(peer);
    step(go);
    struct pollfd entry = {.fd = fd, .events = POLLOUT};
    poll(&entry, 1, 5000);
    events("drained", (unsigned)entry.revents);
    close(fd);
    close(go);
}
