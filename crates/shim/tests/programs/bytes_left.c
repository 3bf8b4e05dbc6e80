/* TCP_INQ: each recvmsg tells how many bytes are left, and one for the end of the stream. */
#include "parity.h"
#include <netinet/tcp.h>

#ifndef TCP_CM_INQ
#define TCP_CM_INQ TCP_INQ
#endif

static void received(int fd, size_t most) {
    char bytes[64], space[256];
    struct iovec place = {bytes, most};
    struct msghdr message = {
        .msg_iov = &place, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    ssize_t got = recvmsg(fd, &message, 0);
    say("received %d of %d, flags %d", (int)got, (int)most, message.msg_flags);
    for (struct cmsghdr *one = CMSG_FIRSTHDR(&message); one; one = CMSG_NXTHDR(&message, one)) {
        int left = -1;
        memcpy(&left, CMSG_DATA(one), sizeof left);
        say("level %d, kind %d, len %d, left %d", one->cmsg_level, one->cmsg_type, (int)one->cmsg_len, left);
    }
}

static void server(int listener) {
    int on = 1, off = 0, told = -1;
    socklen_t len = sizeof told;
    int fd = accepted(listener);
    result("TCP_INQ", setsockopt(fd, IPPROTO_TCP, TCP_INQ, &on, sizeof on));
    result("asked", getsockopt(fd, IPPROTO_TCP, TCP_INQ, &told, &len));
    say("is %d", told);
    on = 7;
    result("TCP_INQ 7", setsockopt(fd, IPPROTO_TCP, TCP_INQ, &on, sizeof on));
    step(fd);
    char first;
    recv(fd, &first, 1, 0);
    while (ioctl(fd, FIONREAD, &told) == 0 && told < 10)
        pause_ms(1);
    received(fd, 4);
    received(fd, 6);
    step(fd);
    struct pollfd entry = {.fd = fd, .events = POLLRDHUP};
    poll(&entry, 1, 5000);
    received(fd, 1);
    received(fd, 1);
    received(fd, 1);
    setsockopt(fd, IPPROTO_TCP, TCP_INQ, &off, sizeof off);
    received(fd, 1);

    /* An accepted connection has it from its listener, who has it before the client connects. */
    on = 1;
    setsockopt(listener, IPPROTO_TCP, TCP_INQ, &on, sizeof on);
    close(fd);
    fd = accepted(listener);
    received(fd, 2);
    close(fd);
}

static void client(address_t peer) {
    int fd = connected(peer);
    await(fd);
    send(fd, "12345678901", 11, 0);
    await(fd);
    send(fd, "ab", 2, 0);
    shutdown(fd, SHUT_WR);
    char byte;
    recv(fd, &byte, 1, 0);
    close(fd);
    fd = connected(peer);
    send(fd, "xy", 2, 0);
    recv(fd, &byte, 1, 0);
    close(fd);
}
