/* A handler leaves calls that sleep, and calls that move bytes, by siglongjmp; afterwards all goes on at once. */
#include "parity.h"
#include <setjmp.h>

enum { TIMES = 12, ROUNDS = 20, ATTEMPTS = 100 };

static sigjmp_buf back;
static volatile sig_atomic_t jumps;

static void on_alarm(int number) {
    (void)number;
    siglongjmp(back, 1);
}

static void ring(long us) {
    struct itimerval timer = {.it_value = {0, us}};
    setitimer(ITIMER_REAL, &timer, NULL);
}

/* Calls `body` until it was left so often. */
static void leave(const char *what, void (*body)(int), int fd) {
    jumps = 0;
    for (volatile int i = 0; jumps < TIMES && i < ATTEMPTS; i++) {
        if (sigsetjmp(back, 1)) {
            jumps++;
            continue;
        }
        ring(15000);
        body(fd);
        ring(0);
    }
    say("%s: left %d times", what, (int)jumps);
}

static address_t full;

static void connects(int fd) {
    (void)fd;
    /* Stays open, with its place in the queue, if it has got one. */
    fd = socket(FAMILY, SOCK_STREAM, 0);
    connect(fd, (struct sockaddr *)&full, sizeof full);
}

static void accepts(int fd) { accept(fd, NULL, NULL); }

static void receives(int fd) {
    char byte;
    recv(fd, &byte, 1, 0);
}

static void sends(int fd) {
    static const char bytes[1 << 16];
    send(fd, bytes, sizeof bytes, 0);
}

static void polls(int fd) {
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    poll(&entry, 1, -1);
}

static void waits(int fd) {
    static int epoll;
    if (!epoll) {
        struct epoll_event wish = {.events = EPOLLIN};
        epoll = epoll_create1(0);
        epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &wish);
    }
    struct epoll_event found;
    epoll_wait(epoll, &found, 1, -1);
}

static void selects(int fd) {
    fd_set set;
    FD_ZERO(&set);
    FD_SET(fd, &set);
    select(fd + 1, &set, NULL, NULL, NULL);
}

static void server(int listener) {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    static char bytes[1 << 16];
    int quiet = accepted(listener);
    step(quiet);
    int fd = accepted(listener);
    long got;
    while ((got = recv(fd, bytes, sizeof bytes, 0)) > 0)
        send(fd, bytes, (size_t)got, 0);
    close(fd);
    /* Of what is sent to nobody enough is read that the other half can go on. */
    fd = accepted(listener);
    while (recv(fd, bytes, sizeof bytes, 0) > 0) {
    }
    close(fd);
    close(quiet);
}

static void echo_at_once(int fd) {
    char bytes[100];
    int good = 0;
    double start = now();
    for (int i = 0; i < ROUNDS; i++)
        good += send(fd, bytes, sizeof bytes, 0) == sizeof bytes
                && recv(fd, bytes, sizeof bytes, MSG_WAITALL) == sizeof bytes;
    say("good rounds %d, at once: %d", good, now() - start < 8);
}

/* Jumps out of the middle of a long send, where the bytes are copied, at whatever moment. */
static void leave_copying(int fd) {
    jumps = 0;
    for (volatile int i = 0; jumps < 5 * TIMES; i++) {
        if (sigsetjmp(back, 1)) {
            jumps++;
            continue;
        }
        ring(200 + i * 7 % 1000);
        for (;;)
            sends(fd);
    }
    say("left %d times", (int)jumps);
}

static void client(address_t peer) {
    sigset_t alarm_only;
    sigemptyset(&alarm_only);
    sigaddset(&alarm_only, SIGALRM);
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    /* In turn: an engine of several cores accepts what came together core by core. */
    int quiet = connected(peer);
    await(quiet);
    int fd = connected(peer);
    leave("recv", receives, quiet);
    leave("poll", polls, quiet);
    leave("epoll_wait", waits, quiet);
    leave("select", selects, quiet);
    leave("send", sends, quiet);
    echo_at_once(fd);
    full = where;
    full.PORT = 0;
    int listener = listening(full);
    socklen_t len = sizeof full;
    getsockname(listener, (struct sockaddr *)&full, &len);
    leave("accept", accepts, listener);
    listen(listener, 0);
    leave("connect", connects, -1);
    close(listener);
    echo_at_once(fd);
    shutdown(fd, SHUT_WR);
    char byte;
    result("end", recv(fd, &byte, 1, 0));
    close(fd);
    fd = connected(peer);
    leave_copying(fd);
    shutdown(fd, SHUT_WR);
    result("end", recv(fd, &byte, 1, 0));
    close(fd);
    close(quiet);
}
