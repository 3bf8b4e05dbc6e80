/*
 * shutdown(2) of UDP sockets: it wakes whoever receives or waits, without a peer too, and says ENOTCONN then. Bound to one
 * address, to all, and with a peer.
 */
#define PARITY_UDP
#include "parity.h"

enum way { RECV, RECVMSG, RECVMMSG, READ, POLL, SELECT, EPOLL, WAYS };
static const char *const names[] = {"recv", "recvmsg", "recvmmsg", "read", "poll", "select", "epoll"};

struct waiter {
    int fd;
    enum way way;
    long got;
    int error;
    unsigned events;
    pthread_t thread;
    pid_t tid;
};

static long wait_by(struct waiter *waiter) {
    int fd = waiter->fd;
    char text[64];
    struct iovec part = {text, sizeof text};
    struct mmsghdr message = {.msg_hdr = {.msg_iov = &part, .msg_iovlen = 1}};
    struct pollfd entry = {.fd = fd, .events = POLLIN | POLLRDHUP};
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP};
    fd_set set;
    long got = -1;
    switch (waiter->way) {
    case RECV:
        return recv(fd, text, sizeof text, 0);
    case RECVMSG:
        return recvmsg(fd, &message.msg_hdr, 0);
    case RECVMMSG:
        return recvmmsg(fd, &message, 1, 0, NULL);
    case READ:
        return read(fd, text, sizeof text);
    case POLL:
        got = poll(&entry, 1, 20000);
        waiter->events = (unsigned)entry.revents;
        return got;
    case SELECT:
        FD_ZERO(&set);
        FD_SET(fd, &set);
        return select(fd + 1, &set, NULL, NULL, &(struct timeval){20, 0});
    case EPOLL: {
        int waits = epoll_create1(EPOLL_CLOEXEC);
        epoll_ctl(waits, EPOLL_CTL_ADD, fd, &event);
        got = epoll_wait(waits, &event, 1, 20000);
        waiter->events = event.events;
        close(waits);
        return got;
    }
    default:
        return -1;
    }
}

static void *run(void *argument) {
    struct waiter *waiter = argument;
    __atomic_store_n(&waiter->tid, gettid(), __ATOMIC_RELEASE);
    waiter->got = wait_by(waiter);
    waiter->error = waiter->got < 0 ? errno : 0;
    return NULL;
}

/* Waits until a thread sleeps. */
static void asleep(struct waiter *waiter) {
    pid_t tid;
    while (!(tid = __atomic_load_n(&waiter->tid, __ATOMIC_ACQUIRE)))
        pause_ms(1);
    char path[64], line[512], state = 0;
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", tid);
    for (int tries = 0, in_a_row = 0; tries < 5000 && in_a_row < 20; tries++) {
        FILE *file = fopen(path, "r");
        if (file && fgets(line, sizeof line, file) && strrchr(line, ')'))
            state = strrchr(line, ')')[2];
        if (file)
            fclose(file);
        in_a_row = state == 'S' ? in_a_row + 1 : 0;
        pause_ms(1);
    }
}

static int make(int kind, address_t peer) {
    int fd = socket(FAMILY, SOCK_DGRAM, 0);
    address_t own = peer;
    own.PORT = 0;
    if (kind == 1)
        memset(&own.ADDRESS, 0, sizeof own.ADDRESS);
    if (kind < 2)
        worked("bind", bind(fd, (struct sockaddr *)&own, sizeof own));
    else
        worked("connect", connect(fd, (struct sockaddr *)&peer, sizeof peer));
    return fd;
}

static void woken(int kind, enum way way, int how, address_t peer) {
    struct waiter waiter = {.fd = make(kind, peer), .way = way};
    pthread_create(&waiter.thread, NULL, run, &waiter);
    asleep(&waiter);
    result("shutdown", shutdown(waiter.fd, how));
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 5;
    if (pthread_timedjoin_np(waiter.thread, NULL, &until)) {
        say("%s, socket %d, how %d: still waits", names[way], kind, how);
        exit(1);
    }
    say("%s, socket %d, how %d: %ld %s", names[way], kind, how, waiter.got, error_name(waiter.error));
    if (way == POLL || way == EPOLL)
        events("told", waiter.events);
    char text[8];
    result("again", recv(waiter.fd, text, sizeof text, 0));
    result("not waiting", recv(waiter.fd, text, sizeof text, MSG_DONTWAIT));
    poll_now("then", waiter.fd, 0);
    const struct sockaddr *to = kind < 2 ? (struct sockaddr *)&peer : NULL;
    result("send", sendto(waiter.fd, "x", 1, MSG_NOSIGNAL, to, to ? sizeof peer : 0));
    close(waiter.fd);
}

static void server(int fd) {
    char text[8];
    while (recv(fd, text, sizeof text, 0) > 0)
        ;
}

static void client(address_t peer) {
    for (int kind = 0; kind < 3; kind++) {
        for (int way = 0; way < WAYS; way++)
            woken(kind, way, SHUT_RD, peer);
        woken(kind, RECV, SHUT_RDWR, peer);
        woken(kind, POLL, SHUT_RDWR, peer);
        woken(kind, EPOLL, SHUT_RDWR, peer);
    }
    int fd = make(2, peer);
    result("half", shutdown(fd, SHUT_WR));
    result("send", send(fd, "x", 1, MSG_NOSIGNAL));
    poll_now("then", fd, 0);
    result("nothing", recv(fd, &(char){0}, 1, MSG_DONTWAIT));
    close(fd);
    fd = make(2, peer);
    result("end", send(fd, "", 0, 0));
    close(fd);
}
