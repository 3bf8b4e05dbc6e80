/* Whoever waits for room to send goes on when another thread makes the send buffer larger. */
#include "parity.h"
#include <linux/sockios.h>
#include <pthread.h>

enum { PIECE = 1 << 20, SMALL = 8192, LARGE = 100000 };

static char data[PIECE];

static void server(int listener) {
    int fd = accepted(listener);
    /* Of two that wait either may be taken first where cores serve them. */
    step(fd);
    int control = accepted(listener);
    step(control);
    /* Nobody reads until the client has seen it. */
    await(control);
    long all = 0, got;
    while ((got = recv(fd, data, sizeof data, 0)) > 0)
        all += got;
    say("all: %ld", all);
    close(fd);
    close(control);
}

static void *sends(void *fd) {
    long all = 0, sent;
    while (all < 32L * PIECE && (sent = send(*(int *)fd, data, sizeof data, 0)) > 0)
        all += sent;
    shutdown(*(int *)fd, SHUT_WR);
    return NULL;
}

static int waiting(int fd) {
    int bytes = 0;
    ioctl(fd, SIOCOUTQ, &bytes);
    return bytes;
}

/* What waits once it grows no longer. */
static int settled(int fd) {
    int before = -1, now = waiting(fd);
    while (now == 0 || now != before) {
        before = now;
        pause_ms(300);
        now = waiting(fd);
    }
    return now;
}

static void client(address_t peer) {
    int size = SMALL;
    int fd = socket(FAMILY, SOCK_STREAM, 0);
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    worked("connect", connect(fd, (struct sockaddr *)&peer, sizeof peer));
    await(fd);
    int control = connected(peer);
    await(control);
    pthread_t thread;
    pthread_create(&thread, NULL, sends, &fd);
    int before = settled(fd);
    size = LARGE;
    result("a larger buffer", setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size));
    int grown = 0;
    for (int i = 0; i < 300 && !grown; i++) {
        pause_ms(10);
        grown = waiting(fd) >= before + LARGE / 2;
    }
    say("more waits: %d", grown);
    step(control);
    pthread_join(thread, NULL);
    close(control);
    close(fd);
}
