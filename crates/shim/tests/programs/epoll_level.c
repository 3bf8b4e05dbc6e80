/* Level-triggered epoll over sockets and a pipe together, MOD and DEL, more sockets than room. */
#include "parity.h"

enum { PAIRS = 8 };

/* Connections are accepted in any order where an engine has several cores. */
static int await_any(const int *fds) {
    struct pollfd entries[PAIRS];
    for (int i = 0; i < PAIRS; i++)
        entries[i] = (struct pollfd){.fd = fds[i], .events = POLLIN};
    poll(entries, PAIRS, 5000);
    for (int i = 0; i < PAIRS; i++)
        if (entries[i].revents) {
            await(fds[i]);
            return fds[i];
        }
    return -1;
}

static void server(int listener) {
    int fds[PAIRS];
    for (int i = 0; i < PAIRS; i++)
        fds[i] = accepted(listener);
    int first = await_any(fds);
    for (int i = 0; i < PAIRS; i++)
        send(fds[i], "hello", 5, 0);
    await(first);
    for (int i = 0; i < PAIRS; i++)
        close(fds[i]);
}

static int compare(const void *a, const void *b) {
    const struct epoll_event *x = a, *y = b;
    return x->data.u64 < y->data.u64 ? -1 : x->data.u64 > y->data.u64;
}

enum { ROOM = 32 };

static void wait_and_say_of(const char *what, int epoll, int room, int timeout_ms) {
    struct epoll_event ready[ROOM];
    long count = result(what, epoll_wait(epoll, ready, room, timeout_ms));
    qsort(ready, count > 0 ? (size_t)count : 0, sizeof *ready, compare);
    for (int i = 0; i < count; i++) {
        char name[32];
        snprintf(name, sizeof name, "  %d", (int)ready[i].data.u64);
        events(name, ready[i].events);
    }
}

static void wait_and_say(const char *what, int epoll, int timeout_ms) {
    wait_and_say_of(what, epoll, ROOM, timeout_ms);
}

/* Waits until that has come on each: what several connections bring comes one after the other. */
static void await_on_each(const int *fds, short wanted) {
    for (int i = 0; i < PAIRS; i++) {
        struct pollfd entry = {.fd = fds[i], .events = wanted};
        /* One that is closed by now would be waited for in vain. */
        if (fds[i] >= 0)
            poll(&entry, 1, 20000);
    }
}

/* What poll(2) has seen epoll is told a moment later, in the kernel too: waits until it tells of so many at once. */
static void await_all(int epoll, int count) {
    struct epoll_event ready[ROOM];
    for (double end = now() + 20; now() < end && epoll_wait(epoll, ready, ROOM, 1000) < count;)
        sched_yield();
}

static void client(address_t peer) {
    int epoll = epoll_create1(EPOLL_CLOEXEC), fds[PAIRS], tube[2];
    char text[16];
    for (int i = 0; i < PAIRS; i++) {
        fds[i] = connected(peer);
        struct epoll_event wish = {.events = EPOLLIN | EPOLLRDHUP, .data.u64 = (unsigned)i};
        result("add", epoll_ctl(epoll, EPOLL_CTL_ADD, fds[i], &wish));
    }
    struct epoll_event wish = {.events = EPOLLIN, .data.u64 = 100};
    if (pipe(tube) < 0)
        exit(1);
    result("add pipe", epoll_ctl(epoll, EPOLL_CTL_ADD, tube[0], &wish));
    result("add again", epoll_ctl(epoll, EPOLL_CTL_ADD, fds[0], &wish));
    wait_and_say("nothing", epoll, 0);
    step(fds[0]);
    await_on_each(fds, POLLIN);
    await_all(epoll, PAIRS);
    wait_and_say_of("each once, whatever the room", epoll, 2 * PAIRS, 1000);
    worked("pipe", write(tube[1], "x", 1));
    wait_and_say_of("the pipe too", epoll, 2 * PAIRS, 1000);
    wait_and_say("all", epoll, 1000);
    struct epoll_event few[3];
    result("room for 3", epoll_wait(epoll, few, 3, 0));
    for (int i = 0; i < PAIRS; i++)
        result("recv", recv(fds[i], text, i == 3 ? 2 : sizeof text, 0));
    wait_and_say("one left and the pipe", epoll, 0);
    wish.events = EPOLLOUT;
    wish.data.u64 = 50;
    result("mod", epoll_ctl(epoll, EPOLL_CTL_MOD, fds[5], &wish));
    result("del", epoll_ctl(epoll, EPOLL_CTL_DEL, fds[3], NULL));
    result("del again", epoll_ctl(epoll, EPOLL_CTL_DEL, fds[3], NULL));
    result("mod of none", epoll_ctl(epoll, EPOLL_CTL_MOD, fds[3], &wish));
    wait_and_say("writable and the pipe", epoll, 0);
    result("close", close(fds[5]));
    fds[5] = -1;
    wait_and_say("closed", epoll, 0);
    step(fds[0]);
    await_on_each(fds, POLLRDHUP);
    await_all(epoll, PAIRS - 1);
    wait_and_say("ends", epoll, 1000);
    result("no room", epoll_wait(epoll, few, 0, 0));
    close(epoll);
}
