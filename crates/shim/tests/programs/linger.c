/* SO_LINGER: a close that waits, one whose time runs out, one that resets, and a descriptor that does
   not block. */
#include "parity.h"

static void with_linger(int fd, int on, int seconds) {
    struct linger linger = {on, seconds};
    if (setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger) < 0)
        say("SO_LINGER: %s", error_name(errno));
}

static int about(double seconds, double since) {
    double took = now() - since;
    return took > seconds - 0.3 && took < seconds + 0.7;
}

static void server(int listener) {
    char bytes[1 << 16];
    int fd = accepted(listener);
    pause_ms(20);
    result("delivered before close returns", recv(fd, bytes, sizeof bytes, 0));
    result("then the end", recv(fd, bytes, sizeof bytes, 0));
    close(fd);
    int stuck = accepted(listener);
    int reset = accepted(listener);
    step(reset);
    result("reset", recv(reset, bytes, sizeof bytes, 0));
    close(reset);
    int unread = accepted(listener);
    await(unread);
    send(unread, "unread", 6, 0);
    step(unread);
    pause_ms(100);
    result("reset by unread data", recv(unread, bytes, sizeof bytes, 0));
    close(unread);
    close(stuck);
}

static void client(address_t peer) {
    static char bytes[1 << 20];
    int fd = connected(peer);
    with_linger(fd, 1, 5);
    send(fd, "hello", 5, 0);
    double since = now();
    result("close", close(fd));
    say("at once %d", about(0, since));

    fd = connected(peer);
    nonblocking(fd);
    while (send(fd, bytes, sizeof bytes, 0) > 0) {
    }
    pause_ms(100);
    while (send(fd, bytes, sizeof bytes, 0) > 0) {
    }
    with_linger(fd, 1, 1);
    since = now();
    result("close of what does not block", close(fd));
    say("after a second %d", about(1, since));

    fd = connected(peer);
    await(fd);
    with_linger(fd, 1, 0);
    result("close", close(fd));

    fd = connected(peer);
    with_linger(fd, 1, 5);
    step(fd);
    char byte;
    recv(fd, &byte, 1, MSG_PEEK);
    pause_ms(50);
    since = now();
    result("close with unread data", close(fd));
    say("at once %d", about(0, since));
    pause_ms(150);
}
