/* At the limit of open files, and nothing has waited yet: who has a socket connects, waits, sets options, sends and receives. */
#include "parity.h"
#include <stdatomic.h>
#include <sys/resource.h>

enum { OPEN = 64 };

static atomic_int is_over;

static void server(int listener) {
    /* accept would have no number. */
    while (!is_over)
        pause_ms(5);
    int fd = accepted(listener);
    char bytes[8] = "";
    result("received", recv(fd, bytes, 5, MSG_WAITALL));
    say("%s", bytes);
    close(fd);
}

static void client(address_t peer) {
    struct rlimit before, limit;
    int fd = socket(FAMILY, SOCK_STREAM | SOCK_NONBLOCK, 0), set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLOUT | EPOLLET};
    epoll_ctl(set, EPOLL_CTL_ADD, fd, &event);
    epoll_wait(set, &event, 1, 0);
    getrlimit(RLIMIT_NOFILE, &before);
    limit = before;
    /* poll(2) takes no more entries than there may be descriptors. */
    int next = 0;
    while (next < OPEN)
        next = dup(0);
    close(next);
    limit.rlim_cur = (rlim_t)next;
    worked("a limit", setrlimit(RLIMIT_NOFILE, &limit));
    worked("one more", dup(0));
    result("connect", connect(fd, (struct sockaddr *)&peer, sizeof peer));
    result("epoll_wait", epoll_wait(set, &event, 1, 5000));
    events("event", event.events);
    int one = 1;
    socklen_t len = sizeof one;
    result("TCP_NODELAY", setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one));
    result("TCP_MAXSEG", getsockopt(fd, IPPROTO_TCP, TCP_MAXSEG, &one, &len));
    result("send", send(fd, "hello", 5, 0));
    event.events = EPOLLIN;
    epoll_ctl(set, EPOLL_CTL_MOD, fd, &event);
    result("nothing comes", epoll_wait(set, &event, 1, 50));
    result("shutdown", shutdown(fd, SHUT_WR));
    setrlimit(RLIMIT_NOFILE, &before);
    is_over = 1;
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    result("poll", poll(&entry, 1, 5000));
    char byte;
    result("the end", recv(fd, &byte, 1, 0));
    close(set);
    close(fd);
}
