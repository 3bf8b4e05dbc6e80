/* UDP over IPv6: control messages both ways, hops and traffic class by socket and by message (RFC 3542). */
#define PARITY_UDP
#include "parity.h"

static struct sockaddr_in6 own;

static void show(struct msghdr *message) {
    for (struct cmsghdr *one = CMSG_FIRSTHDR(message); one; one = CMSG_NXTHDR(message, one)) {
        if (one->cmsg_level == IPPROTO_IPV6 && one->cmsg_type == IPV6_PKTINFO) {
            struct in6_pktinfo *info = (void *)CMSG_DATA(one);
            say("PKTINFO of %d: interface %s, own address %d", (int)one->cmsg_len, info->ipi6_ifindex ? "set" : "0",
                !memcmp(&info->ipi6_addr, &own.sin6_addr, 16));
        } else if (one->cmsg_level == IPPROTO_IPV6 && one->cmsg_type == IPV6_HOPLIMIT) {
            say("HOPLIMIT of %d: %d", (int)one->cmsg_len, *(int *)CMSG_DATA(one));
        } else if (one->cmsg_level == IPPROTO_IPV6 && one->cmsg_type == IPV6_TCLASS) {
            say("TCLASS of %d: %d", (int)one->cmsg_len, *(int *)CMSG_DATA(one));
        } else {
            say("level %d type %d of %d", one->cmsg_level, one->cmsg_type, (int)one->cmsg_len);
        }
    }
}

static void take(int fd, size_t room) {
    char text[64] = {0}, control[256] = {0};
    struct iovec part = {text, sizeof text};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = room};
    result("recvmsg", recvmsg(fd, &message, 0));
    say("%s: control of %d%s", text, (int)message.msg_controllen, message.msg_flags & MSG_CTRUNC ? ", cut" : "");
    show(&message);
}

static void server(int fd) {
    int on = 1;
    socklen_t len = sizeof own;
    getsockname(fd, (struct sockaddr *)&own, &len);
    struct sockaddr_in6 peer;
    char byte;
    len = sizeof peer;
    result("hello", recvfrom(fd, &byte, 1, 0, (struct sockaddr *)&peer, &len));
    result("RECVPKTINFO", setsockopt(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, &on, sizeof on));
    result("RECVHOPLIMIT", setsockopt(fd, IPPROTO_IPV6, IPV6_RECVHOPLIMIT, &on, sizeof on));
    result("RECVTCLASS", setsockopt(fd, IPPROTO_IPV6, IPV6_RECVTCLASS, &on, sizeof on));
    result("TIMESTAMP", setsockopt(fd, SOL_SOCKET, SO_TIMESTAMP, &on, sizeof on));
    sendto(fd, "go", 2, 0, (struct sockaddr *)&peer, len);
    for (int n = 0; n < 6; n++)
        take(fd, 256);
    take(fd, 60);
}

static void told(struct msghdr *message, int type, const void *value, size_t len) {
    struct cmsghdr *one = CMSG_FIRSTHDR(message);
    one->cmsg_level = IPPROTO_IPV6;
    one->cmsg_type = type;
    one->cmsg_len = CMSG_LEN(len);
    memcpy(CMSG_DATA(one), value, len);
    message->msg_controllen = CMSG_SPACE(len);
}

static void client(struct sockaddr_in6 peer) {
    int fd = socket(AF_INET6, SOCK_DGRAM, 0);
    char text[8];
    result("hello", sendto(fd, "h", 1, 0, (struct sockaddr *)&peer, sizeof peer));
    result("go", recv(fd, text, sizeof text, 0));
    result("plain", sendto(fd, "plain", 5, 0, (struct sockaddr *)&peer, sizeof peer));
    int hops = 9, class = 0x20, too_many = 256, none = -1;
    result("UNICAST_HOPS", setsockopt(fd, IPPROTO_IPV6, IPV6_UNICAST_HOPS, &hops, sizeof hops));
    result("TCLASS", setsockopt(fd, IPPROTO_IPV6, IPV6_TCLASS, &class, sizeof class));
    result("too many hops", setsockopt(fd, IPPROTO_IPV6, IPV6_UNICAST_HOPS, &too_many, sizeof too_many));
    result("by the socket", sendto(fd, "socket", 6, 0, (struct sockaddr *)&peer, sizeof peer));

    char control[CMSG_SPACE(sizeof(struct in6_pktinfo))];
    memset(control, 0, sizeof control);
    struct iovec part = {"message", 7};
    struct msghdr message = {.msg_name = &peer, .msg_namelen = sizeof peer, .msg_iov = &part, .msg_iovlen = 1,
                             .msg_control = control, .msg_controllen = sizeof control};
    hops = 33;
    told(&message, IPV6_HOPLIMIT, &hops, sizeof hops);
    result("hops by the message", sendmsg(fd, &message, 0));
    told(&message, IPV6_HOPLIMIT, &none, sizeof none);
    result("the socket's hops", sendmsg(fd, &message, 0));
    told(&message, IPV6_HOPLIMIT, &too_many, sizeof too_many);
    result("too many hops", sendmsg(fd, &message, 0));
    class = 0x40;
    told(&message, IPV6_TCLASS, &class, sizeof class);
    result("class by the message", sendmsg(fd, &message, 0));
    struct in6_pktinfo info = {.ipi6_addr = peer.sin6_addr};
    told(&message, IPV6_PKTINFO, &info, sizeof info);
    result("source by the message", sendmsg(fd, &message, 0));
    inet_pton(AF_INET6, "2001:db8::77", &info.ipi6_addr);
    told(&message, IPV6_PKTINFO, &info, sizeof info);
    result("a source that is not ours", sendmsg(fd, &message, 0));
    told(&message, 99, &hops, sizeof hops);
    result("nonsense", sendmsg(fd, &message, 0));
    message.msg_controllen = 0;
    result("to a small buffer", sendmsg(fd, &message, 0));

    struct sockaddr_in six_in_four = {.sin_family = AF_INET, .sin_port = htons(9), .sin_addr.s_addr = htonl(0x7f000001)};
    int only = 1, fresh = socket(AF_INET6, SOCK_DGRAM, 0);
    result("V6ONLY", setsockopt(fresh, IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof only));
    result("IPv4 with V6ONLY", sendto(fresh, "x", 1, 0, (struct sockaddr *)&six_in_four, sizeof six_in_four));
    result("port 0", (peer.sin6_port = 0, sendto(fd, "x", 1, 0, (struct sockaddr *)&peer, sizeof peer)));
    result("short name", sendto(fd, "x", 1, 0, (struct sockaddr *)&peer, 16));
    close(fresh);
    close(fd);
}
