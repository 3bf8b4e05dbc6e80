/* TCP_NOTSENT_LOWAT bounds what a connection keeps that has not left yet, in send and in poll. */
#include "parity.h"
#include <linux/sockios.h>

enum { LIMIT = 16384, PIECE = 1 << 20, BLOCKING = 8 << 20 };

static char data[PIECE];

static long drain(int fd, long most) {
    static char sink[PIECE];
    long all = 0, got;
    while (all < most && (got = recv(fd, sink, sizeof sink, 0)) > 0)
        all += got;
    return all;
}

static void server(int listener) {
    int fd = accepted(listener);
    step(fd);
    int go = accepted(listener);
    say("before: %ld", drain(fd, 200000));
    step(go);
    /* Nobody reads until the path is full. */
    await(go);
    long rest = drain(fd, 1L << 40);
    char text[32] = {0};
    recv(go, text, sizeof text - 1, 0);
    say("all that was sent: %d", rest == atol(text));
    close(fd);
    fd = accepted(listener);
    say("from a sender that waits: %ld", drain(fd, 1L << 40));
    close(fd);
    close(go);
}

static int unsent(int fd) {
    int bytes = -1;
    ioctl(fd, SIOCOUTQNSD, &bytes);
    return bytes;
}

static void client(address_t peer) {
    /* In turn: an engine of several cores accepts what came together core by core. */
    int fd = connected(peer), limit = LIMIT;
    await(fd);
    int go = connected(peer);
    long all = 0, sent;
    for (long left = 200000; left > 0; left -= sent)
        sent = send(fd, data, (size_t)(left < PIECE ? left : PIECE), 0);
    await(go);
    setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &limit, sizeof limit);
    poll_now("when all has left", fd, 2000);
    nonblocking(fd);
    struct pollfd room = {.fd = fd, .events = POLLOUT};
    while (poll(&room, 1, 400) == 1)
        while ((sent = send(fd, data, sizeof data, 0)) > 0)
            all += sent;
    say("less than 128 KiB has not left: %d", unsent(fd) < 131072);
    step(go);
    poll(&room, 1, 5000);
    events("when it drains", (unsigned)room.revents);
    char text[32];
    int len = snprintf(text, sizeof text, "%ld", all);
    shutdown(fd, SHUT_WR);
    send(go, text, (size_t)len, 0);
    close(fd);
    fd = connected(peer);
    limit = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &limit, sizeof limit);
    for (all = 0; all < BLOCKING; all += sent)
        if ((sent = send(fd, data, sizeof data, 0)) <= 0)
            break;
    say("sent: %ld", all);
    close(fd);
    close(go);
}
