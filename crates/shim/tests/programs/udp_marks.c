/* SO_RCVMARK and SO_RCVPRIORITY: what is told with a datagram. */
#define PARITY_UDP
#include "parity.h"

#ifndef SO_RCVMARK
#define SO_RCVMARK 75
#endif
#ifndef SO_RCVPRIORITY
#define SO_RCVPRIORITY 82
#endif

static void take(const char *what, int fd, size_t room) {
    char control[200], text[16];
    struct iovec part = {text, sizeof text};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = room};
    result(what, recvmsg(fd, &message, 0));
    for (struct cmsghdr *header = CMSG_FIRSTHDR(&message); header; header = CMSG_NXTHDR(&message, header)) {
        int value = -1;
        memcpy(&value, CMSG_DATA(header), sizeof value);
        say("%d/%d: %zu bytes, %d", header->cmsg_level, header->cmsg_type, header->cmsg_len - CMSG_LEN(0),
            header->cmsg_level == SOL_SOCKET ? value : 0);
    }
    say("flags %#x", message.msg_flags);
}

static void server(int fd) {
    for (;;) {
        address_t peer;
        socklen_t len = sizeof peer;
        char text[16];
        if (recvfrom(fd, text, sizeof text, 0, (struct sockaddr *)&peer, &len) != 2)
            return;
        sendto(fd, "answer", 6, 0, (struct sockaddr *)&peer, len);
    }
}

static void option(const char *what, int fd, int name, int value) {
    result(what, setsockopt(fd, SOL_SOCKET, name, &value, sizeof value));
    int told = -1;
    socklen_t len = sizeof told;
    getsockopt(fd, SOL_SOCKET, name, &told, &len);
    say("is %d, %u bytes", told, len);
}

static void client(address_t peer) {
    int fd = socket(FAMILY, SOCK_DGRAM, 0), on = 1;
    connect(fd, (struct sockaddr *)&peer, sizeof peer);
    option("SO_RCVMARK", fd, SO_RCVMARK, 1);
    send(fd, "go", 2, 0);
    take("mark", fd, 200);
    option("SO_RCVPRIORITY", fd, SO_RCVPRIORITY, 5);
    setsockopt(fd, FAMILY == AF_INET ? IPPROTO_IP : IPPROTO_IPV6, FAMILY == AF_INET ? IP_PKTINFO : IPV6_RECVPKTINFO, &on, sizeof on);
    send(fd, "go", 2, 0);
    take("both and the way", fd, 200);
    send(fd, "go", 2, 0);
    take("little room", fd, CMSG_SPACE(4));
    option("SO_RCVMARK off", fd, SO_RCVMARK, 0);
    send(fd, "go", 2, 0);
    take("priority", fd, 200);
    option("SO_RCVPRIORITY off", fd, SO_RCVPRIORITY, 0);
    send(fd, "go", 2, 0);
    take("the way", fd, 200);
    send(fd, "the end", 7, 0);
    close(fd);
}
