/* UDP on ANY: datagrams of loopback and of the host's own address reach one socket, answers go back. */
#define PARITY_UDP /* and PARITY_V6 */
#include "parity.h"

static void server(int fd) { (void)fd; }

static void client(address_t peer) {
    int fd = socket(FAMILY, SOCK_DGRAM, 0), sender = socket(FAMILY, SOCK_DGRAM, 0);
    address_t any = address_of(FAMILY == AF_INET ? "0.0.0.0" : "::"), here, from;
    socklen_t len = sizeof here;
    result("bind", bind(fd, (struct sockaddr *)&any, sizeof any));
    getsockname(fd, (struct sockaddr *)&here, &len);
    address_t loopback = here, own = here;
    loopback.ADDRESS = address_of(LOOPBACK).ADDRESS;
    own.ADDRESS = peer.ADDRESS;
    int epoll = epoll_create1(0);
    struct epoll_event wish = {.events = EPOLLIN | EPOLLOUT, .data.u64 = 7}, event = {0};
    result("epoll", epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &wish));
    result("writable", epoll_wait(epoll, &event, 1, 0));
    events("idle", event.events);
    wish.events = EPOLLIN;
    epoll_ctl(epoll, EPOLL_CTL_MOD, fd, &wish);
    result("idle", epoll_wait(epoll, &event, 1, 0));
    char text[16] = {0};
    for (int turn = 0; turn < 4; turn++) {
        address_t to = turn % 2 ? own : loopback;
        result("sendto", sendto(sender, "ask", 3, 0, (struct sockaddr *)&to, sizeof to));
        event.events = 0;
        result("epoll", epoll_wait(epoll, &event, 1, 2000));
        events("there", event.events);
        poll_now("poll", fd, 2000);
        int bytes = 0;
        ioctl(fd, FIONREAD, &bytes);
        say("FIONREAD %d", bytes);
        len = sizeof from;
        result("recvfrom", recvfrom(fd, text, sizeof text, 0, (struct sockaddr *)&from, &len));
        say("by loopback %d", same_host(from, address_of(LOOPBACK)) && !(turn % 2));
        result("answer", sendto(fd, "answer", 6, 0, (struct sockaddr *)&from, len));
        result("recv", recv(sender, text, sizeof text, 0));
    }
    for (int turn = 0; turn < 40; turn++) {
        address_t to = turn % 2 ? own : loopback;
        sendto(sender, "many", 4, 0, (struct sockaddr *)&to, sizeof to);
    }
    int count = 0;
    struct timeval limit = {1, 0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    while (count < 40 && recv(fd, text, sizeof text, 0) == 4)
        count++;
    say("received %d", count);
    result("nothing left", recv(fd, text, sizeof text, MSG_DONTWAIT));
    close(fd);
    close(sender);
    close(epoll);
}
