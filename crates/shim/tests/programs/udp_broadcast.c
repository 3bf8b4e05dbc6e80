/* UDP: datagrams for everybody on the link PARITY_LINK; who may send them, who hears them. */
#define PARITY_UDP
#include "parity.h"

static void server(int fd) { (void)fd; }

static void hear(const char *what, int fd) {
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    char text[16], control[128];
    struct sockaddr_in from;
    struct iovec part = {text, sizeof text};
    struct msghdr message = {.msg_name = &from, .msg_namelen = sizeof from, .msg_iov = &part, .msg_iovlen = 1,
                             .msg_control = control, .msg_controllen = sizeof control};
    if (poll(&entry, 1, 150) == 0) {
        say("%s: nothing", what);
        return;
    }
    long got = recvmsg(fd, &message, 0);
    say("%s: %.*s", what, (int)got, text);
    for (struct cmsghdr *one = CMSG_FIRSTHDR(&message); one; one = CMSG_NXTHDR(&message, one)) {
        struct in_pktinfo *info = (void *)CMSG_DATA(one);
        say("to everybody %d, spoken to the sender's address %d", (ntohl(info->ipi_addr.s_addr) & 0xff) == 0xff,
            info->ipi_spec_dst.s_addr == from.sin_addr.s_addr);
    }
}

static void client(struct sockaddr_in peer) {
    struct sockaddr_in any = {.sin_family = AF_INET}, everybody = peer;
    socklen_t len = sizeof any;
    int on = 1, off = 0, sender = socket(AF_INET, SOCK_DGRAM, 0), fd = socket(AF_INET, SOCK_DGRAM, 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    setsockopt(fd, IPPROTO_IP, IP_PKTINFO, &on, sizeof on);
    result("bind", bind(fd, (struct sockaddr *)&any, sizeof any));
    getsockname(fd, (struct sockaddr *)&any, &len);
    everybody.sin_addr.s_addr |= htonl(0xff);
    everybody.sin_port = any.sin_port;
#define SEND(text) result("sendto " text, sendto(sender, text, strlen(text), 0, (struct sockaddr *)&everybody, sizeof everybody))
    SEND("forbidden");
    result("connect", connect(sender, (struct sockaddr *)&everybody, sizeof everybody));
    result("SO_BROADCAST", setsockopt(sender, SOL_SOCKET, SO_BROADCAST, &on, sizeof on));
    SEND("allowed");
    hear("on ANY", fd);
    int second = socket(AF_INET, SOCK_DGRAM, 0), third = socket(AF_INET, SOCK_DGRAM, 0);
    setsockopt(second, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    setsockopt(third, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    result("bind to the broadcast address", bind(second, (struct sockaddr *)&everybody, sizeof everybody));
    struct sockaddr_in own = everybody;
    own.sin_addr = peer.sin_addr;
    result("bind to the own address", bind(third, (struct sockaddr *)&own, sizeof own));
    SEND("again");
    hear("on ANY", fd);
    hear("on the broadcast address", second);
    hear("on the own address", third);
    result("to the host", sendto(sender, "host", 4, 0, (struct sockaddr *)&own, sizeof own));
    hear("on ANY", fd);
    hear("on the broadcast address", second);
    hear("on the own address", third);
    result("connect", connect(sender, (struct sockaddr *)&everybody, sizeof everybody));
    result("send", send(sender, "connected", 9, 0));
    hear("on ANY", fd);
    result("SO_BROADCAST off", setsockopt(sender, SOL_SOCKET, SO_BROADCAST, &off, sizeof off));
    SEND("forbidden again");
    close(fd);
    close(second);
    close(third);
    close(sender);
}
