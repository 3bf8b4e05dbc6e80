/* The order of events: epoll_wait(2) reports sockets in the order in which something happened to them, accept(2) connections as they came. */
#include "parity.h"

enum { PAIRS = 4, ROUNDS = 100, BURSTS = 20 };

/* A different order in each round. */
static int turn_of(int round, int n) { return round / 2 % 2 ? (round + PAIRS - n) % PAIRS : (round + n) % PAIRS; }

static void server(int listener) {
    int control = accepted(listener), fds[PAIRS], in_order = 0, on = 1;
    for (int n = 0; n < PAIRS; n++) {
        fds[n] = accepted(listener);
        setsockopt(fds[n], IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    }
    for (int round = 0; round < 2 * ROUNDS; round++) {
        await(control);
        pause_ms(1);
        for (int n = 0; n < PAIRS; n++)
            step(fds[turn_of(round, n)]);
    }
    await(control);
    for (int n = 0; n < PAIRS; n++)
        close(fds[n]);
    for (int burst = 0; burst < BURSTS; burst++) {
        int right = 1;
        await(control);
        for (int n = 0; n < PAIRS; n++) {
            char name = -1;
            int fd = accepted(listener);
            recv(fd, &name, 1, 0);
            right &= name == n;
            close(fd);
        }
        in_order += right;
        step(control);
    }
    say("accepted in the order of their SYNs: %d of %d", in_order, BURSTS);
    close(control);
}

static int is_in_order(int epoll, const int *fds, int round) {
    struct epoll_event ready[PAIRS];
    int seen = 0, right = 1;
    while (seen < PAIRS) {
        int count = epoll_wait(epoll, ready, PAIRS, 5000);
        if (count <= 0)
            return 0;
        for (int n = 0; n < count; n++, seen++) {
            right &= seen < PAIRS && (int)ready[n].data.u32 == turn_of(round, seen);
            await(fds[ready[n].data.u32]);
        }
    }
    /* What is level-triggered stays on the kernel's list until it is found not to be ready. */
    while (epoll_wait(epoll, ready, PAIRS, 0) > 0)
        right = 0;
    return right;
}

static void client(address_t peer) {
    int control = connected(peer), fds[PAIRS];
    for (int n = 0; n < PAIRS; n++)
        fds[n] = connected(peer);
    for (unsigned edge = 0; edge < 2; edge++) {
        int epoll = epoll_create1(0), in_order = 0;
        for (int n = 0; n < PAIRS; n++) {
            struct epoll_event wish = {.events = EPOLLIN | (edge ? EPOLLET : 0), .data.u32 = (unsigned)n};
            epoll_ctl(epoll, EPOLL_CTL_ADD, fds[n], &wish);
        }
        for (int round = 0; round < ROUNDS; round++) {
            step(control);
            in_order += is_in_order(epoll, fds, round + (int)edge * ROUNDS);
        }
        say("%s-triggered, reported in order: %d of %d", edge ? "edge" : "level", in_order, ROUNDS);
        close(epoll);
    }
    step(control);
    for (int n = 0; n < PAIRS; n++)
        close(fds[n]);
    for (int burst = 0; burst < BURSTS; burst++) {
        for (int n = 0; n < PAIRS; n++) {
            fds[n] = socket(FAMILY, SOCK_STREAM | SOCK_NONBLOCK, 0);
            if (connect(fds[n], (struct sockaddr *)&peer, sizeof peer) < 0 && errno != EINPROGRESS)
                say("connect: %s", error_name(errno));
        }
        for (int n = 0; n < PAIRS; n++) {
            char name = (char)n;
            struct pollfd entry = {.fd = fds[n], .events = POLLOUT};
            poll(&entry, 1, 5000);
            send(fds[n], &name, 1, MSG_NOSIGNAL);
        }
        step(control);
        await(control);
        for (int n = 0; n < PAIRS; n++)
            close(fds[n]);
    }
    close(control);
}
