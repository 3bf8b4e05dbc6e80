/* Edge-triggered and one-shot epoll, and a socket that is added before it connects. */
#include "parity.h"

static void server(int listener) {
    int fd = accepted(listener);
    for (int i = 0; i < 4; i++) {
        await(fd);
        send(fd, "data", 4, 0);
    }
    await(fd);
    close(fd);
}

static void wait_and_say(const char *what, int epoll, int timeout_ms) {
    struct epoll_event ready[4];
    long count = result(what, epoll_wait(epoll, ready, 4, timeout_ms));
    for (int i = 0; i < count; i++)
        events("  events", ready[i].events);
}

static void client(address_t peer) {
    int epoll = epoll_create(1), fd = socket(FAMILY, SOCK_STREAM | SOCK_NONBLOCK, 0);
    char text[16];
    struct epoll_event wish = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.fd = fd};
    result("add before connect", epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &wish));
    wait_and_say("not connected", epoll, 0);
    result("connect", connect(fd, (struct sockaddr *)&peer, sizeof peer));
    wait_and_say("connected", epoll, 2000);
    wait_and_say("no news", epoll, 50);
    /* Not of room: epoll_room is about that. */
    wish.events = EPOLLIN | EPOLLRDHUP | EPOLLET;
    result("no interest in room", epoll_ctl(epoll, EPOLL_CTL_MOD, fd, &wish));
    step(fd);
    wait_and_say("data", epoll, 2000);
    wait_and_say("not read, no news", epoll, 50);
    step(fd);
    wait_and_say("more data", epoll, 2000);
    result("recv 1", recv(fd, text, 1, 0));
    wait_and_say("partly read, no news", epoll, 50);
    result("recv", recv(fd, text, sizeof text, 0));
    result("empty", recv(fd, text, sizeof text, 0));

    wish.events = EPOLLIN | EPOLLONESHOT;
    result("one-shot", epoll_ctl(epoll, EPOLL_CTL_MOD, fd, &wish));
    step(fd);
    wait_and_say("shot", epoll, 2000);
    wait_and_say("spent", epoll, 50);
    step(fd);
    pause_ms(50);
    wait_and_say("still spent", epoll, 50);
    result("armed", epoll_ctl(epoll, EPOLL_CTL_MOD, fd, &wish));
    wait_and_say("shot again", epoll, 2000);
    wish.events = EPOLLIN | EPOLLRDHUP | EPOLLET;
    result("edge", epoll_ctl(epoll, EPOLL_CTL_MOD, fd, &wish));
    wait_and_say("told at once", epoll, 2000);
    step(fd);
    wait_and_say("end", epoll, 2000);
    wish.events = EPOLLIN | EPOLLEXCLUSIVE;
    result("mod to exclusive", epoll_ctl(epoll, EPOLL_CTL_MOD, fd, &wish));
    close(fd);
    close(epoll);
}
