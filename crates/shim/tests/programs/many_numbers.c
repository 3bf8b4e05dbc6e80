/* select(2) and poll(2) of more numbers than there are, and epoll_wait(2) of what is no epoll instance. */
#include "parity.h"

static void server(int listener) {
    int fd = accepted(listener);
    step(fd);
    await(fd);
    close(fd);
}

/* A set as programs have them, and behind it what is not theirs to change. */
struct guarded {
    fd_set set;
    unsigned char behind[65536];
};

static void selected(const char *what, int nfds, int fd, struct guarded *at) {
    struct timeval time = {5, 0};
    FD_ZERO(&at->set);
    FD_SET(fd, &at->set);
    memset(at->behind, 0xff, sizeof at->behind);
    result(what, select(nfds, &at->set, NULL, NULL, &time));
    size_t kept = 0;
    while (kept < sizeof at->behind && at->behind[kept] == 0xff)
        kept++;
    say("in the set: %d, behind it untouched: %d", FD_ISSET(fd, &at->set) != 0, kept == sizeof at->behind);
}

static void client(address_t peer) {
    static struct guarded guarded;
    int fd = connected(peer);
    selected("FD_SETSIZE", FD_SETSIZE, fd, &guarded);
    selected("getdtablesize", getdtablesize(), fd, &guarded);
    selected("200,000", 200000, fd, &guarded);
    selected("INT_MAX", 0x7fffffff, fd, &guarded);
    result("below zero", select(-1, &guarded.set, NULL, NULL, NULL));
    struct timespec moment = {0, 0};
    sigset_t none;
    sigemptyset(&none);
    FD_ZERO(&guarded.set);
    FD_SET(fd, &guarded.set);
    result("pselect", pselect(200000, &guarded.set, NULL, NULL, &moment, &none));

    struct pollfd entry = {.fd = fd, .events = POLLIN};
    result("poll", poll(&entry, 1u << 30, 0));
    result("ppoll", ppoll(&entry, 1u << 30, &moment, NULL));
    result("poll of one", poll(&entry, 1, 5000));

    struct epoll_event event = {.events = EPOLLIN};
    int epoll = epoll_create1(0);
    result("add", epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event));
    result("too many events", epoll_wait(epoll, &event, 0x7fffffff, 0));
    result("no events", epoll_wait(epoll, &event, 0, 0));
    result("one event", epoll_wait(epoll, &event, 1, 5000));
    result("wait of a connection", epoll_wait(fd, &event, 1, 0));
    result("pwait of a connection", epoll_pwait(fd, &event, 1, 0, NULL));
    await(fd);
    step(fd);
    close(epoll);
    close(fd);
}
