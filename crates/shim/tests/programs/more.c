/*
 * MSG_MORE and TCP_CORK hold a partial segment back; TCP_NODELAY and the next write let it go. What is held back for 200 ms leaves
 * whatever happens: where a half was kept from its processor for longer, it shows nothing, and both begin anew.
 */
#include "parity.h"

#define HELD_S 0.19
#define TRIES 50

struct seen {
    int ready;
    long got;
};

static struct seen waiting(int fd, int timeout_ms) {
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    char bytes[64];
    struct seen seen = {poll(&entry, 1, timeout_ms), 0};
    if (seen.ready)
        seen.got = recv(fd, bytes, sizeof bytes, 0);
    return seen;
}

/* Whether it took no longer since then. */
static int in_time(double since, double most_s) { return now() - since < most_s; }

static void tell(const char *what, struct seen seen) { say("%s: %d, %ld", what, seen.ready, seen.got); }

static void server(int listener) {
    int control = accepted(listener);
    char fits = 0, theirs = 0, byte;
    step(control);
    for (int tries = 1; !fits; tries++) {
        int fd = accepted(listener);
        step(fd);
        double start = now();
        struct seen held = waiting(fd, 80);
        fits = in_time(start, HELD_S);
        step(fd);
        struct seen next = waiting(fd, 2000);
        step(fd);
        start = now();
        struct seen corked = waiting(fd, 80);
        fits &= in_time(start, HELD_S);
        step(fd);
        struct seen uncorked = waiting(fd, 2000);
        step(fd);
        start = now();
        struct seen last = waiting(fd, 2000);
        fits &= in_time(start, 2 * HELD_S);
        recv(fd, &byte, 1, 0);
        close(fd);
        recv(control, &theirs, 1, 0);
        fits = (fits && theirs) || tries == TRIES;
        send(control, &fits, 1, MSG_NOSIGNAL);
        if (!fits)
            continue;
        tell("MSG_MORE", held);
        tell("with the next", next);
        tell("corked", corked);
        tell("uncorked", uncorked);
        tell("for ever is 200 ms", last);
    }
    close(control);
}

static void client(address_t peer) {
    int control = connected(peer), on = 1, off = 0;
    char fits = 0;
    await(control);
    while (!fits) {
        int fd = connected(peer);
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        await(fd);
        double start = now();
        long more = send(fd, "ab", 2, MSG_MORE);
        await(fd);
        long rest = send(fd, "cd", 2, 0);
        fits = in_time(start, HELD_S);
        await(fd);
        setsockopt(fd, IPPROTO_TCP, TCP_CORK, &on, sizeof on);
        start = now();
        long corked = send(fd, "efg", 3, 0);
        await(fd);
        setsockopt(fd, IPPROTO_TCP, TCP_CORK, &off, sizeof off);
        fits &= in_time(start, HELD_S);
        await(fd);
        long again = send(fd, "hijk", 4, MSG_MORE);
        pause_ms(400);
        step(fd);
        close(fd);
        send(control, &fits, 1, MSG_NOSIGNAL);
        if (recv(control, &fits, 1, 0) != 1)
            break;
        if (!fits)
            continue;
        result("more", more);
        result("the rest", rest);
        result("corked", corked);
        result("more", again);
    }
    close(control);
}
