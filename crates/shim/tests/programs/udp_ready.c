/* UDP: poll, select, level- and edge-triggered epoll, shutdown, timeouts. */
#define PARITY_UDP /* and PARITY_V6 */
#include "parity.h"

/* Of this process's server; where that is another process nobody counts, and the client waits its longest. */
static volatile int echoes;

static void server(int fd) {
    address_t peer;
    char text[64];
    for (int n = 0; n < 7; n++) {
        socklen_t len = sizeof peer;
        long got = recvfrom(fd, text, sizeof text, 0, (struct sockaddr *)&peer, &len);
        pause_ms(20);
        sendto(fd, text, (size_t)got, 0, (struct sockaddr *)&peer, len);
        echoes++;
    }
    say("seven echoes");
}

static void wait_for(int epoll, const char *what, int timeout_ms) {
    struct epoll_event event = {0};
    int count = epoll_wait(epoll, &event, 1, timeout_ms);
    say("%s: %d", what, count);
    if (count > 0)
        events(what, event.events);
}

static void client(address_t peer) {
    int fd = socket(FAMILY, SOCK_DGRAM, 0);
    char text[64];
    poll_now("fresh", fd, 0);
    sendto(fd, "one", 3, 0, (struct sockaddr *)&peer, sizeof peer);
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    say("poll %d", poll(&entry, 1, 2000));
    events("readable", (unsigned)entry.revents);
    fd_set set;
    FD_ZERO(&set);
    FD_SET(fd, &set);
    struct timeval time = {2, 0};
    say("select %d %d", select(fd + 1, &set, NULL, NULL, &time), FD_ISSET(fd, &set) != 0);
    result("recv", recv(fd, text, sizeof text, 0));
    say("poll %d", poll(&entry, 1, 0));

    int epoll = epoll_create1(0);
    struct epoll_event wish = {.events = EPOLLIN, .data.fd = fd};
    result("add", epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &wish));
    wait_for(epoll, "nothing", 0);
    sendto(fd, "two", 3, 0, (struct sockaddr *)&peer, sizeof peer);
    wait_for(epoll, "level", 2000);
    wait_for(epoll, "level again", 0);
    result("recv", recv(fd, text, sizeof text, 0));
    wait_for(epoll, "drained", 0);
    wish.events = EPOLLIN | EPOLLET;
    result("mod", epoll_ctl(epoll, EPOLL_CTL_MOD, fd, &wish));
    wait_for(epoll, "nothing", 0);
    sendto(fd, "three", 5, 0, (struct sockaddr *)&peer, sizeof peer);
    wait_for(epoll, "edge", 2000);
    wait_for(epoll, "edge again", 0);
    sendto(fd, "four", 4, 0, (struct sockaddr *)&peer, sizeof peer);
    wait_for(epoll, "next edge", 2000);
    result("recv", recv(fd, text, sizeof text, 0));
    result("recv", recv(fd, text, sizeof text, 0));
    wish.events = EPOLLIN | EPOLLOUT | EPOLLONESHOT;
    result("mod", epoll_ctl(epoll, EPOLL_CTL_MOD, fd, &wish));
    wait_for(epoll, "one shot", 2000);
    wait_for(epoll, "one shot again", 0);

    result("connect", connect(fd, (struct sockaddr *)&peer, sizeof peer));
    wish.events = EPOLLIN;
    result("mod", epoll_ctl(epoll, EPOLL_CTL_MOD, fd, &wish));
    send(fd, "five", 4, 0);
    wait_for(epoll, "connected", 2000);
    result("recv", recv(fd, text, sizeof text, 0));

    struct timeval limit = {0, 50000};
    result("SO_RCVTIMEO", setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit));
    double start = now();
    result("recv", recv(fd, text, sizeof text, 0));
    say("waited %s", now() - start > 0.04 && now() - start < 1 ? "about that" : "otherwise");
    send(fd, "six", 3, 0);
    send(fd, "seven", 5, 0);
    for (int tries = 0; tries < 200 && echoes < 7; tries++)
        pause_ms(10);
    pause_ms(200);
    result("shutdown for reading", shutdown(fd, SHUT_RD));
    wait_for(epoll, "shut", 0);
    result("recv", recv(fd, text, sizeof text, 0));
    result("recv", recv(fd, text, sizeof text, 0));
    result("recv", recv(fd, text, sizeof text, 0));
    result("shutdown for writing", shutdown(fd, SHUT_WR));
    result("send", send(fd, "x", 1, 0));
    poll_now("shut", fd, 0);
    close(fd);
    close(epoll);
}
