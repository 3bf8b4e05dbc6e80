/* UDP: a socket of AF_INET6 speaks IPv4, by mapped addresses and by names of AF_INET. */
#define PARITY_UDP
#include "parity.h"

static void server(int fd) {
    struct sockaddr_in peer;
    char text[16];
    for (int n = 0; n < 4; n++) {
        socklen_t len = sizeof peer;
        long got = result("recvfrom", recvfrom(fd, text, sizeof text, 0, (struct sockaddr *)&peer, &len));
        say("%.*s from a name of %d", (int)got, text, (int)len);
        result("answer", sendto(fd, "answer", 6, 0, (struct sockaddr *)&peer, len));
    }
}

static struct sockaddr_in6 mapped(struct sockaddr_in address) {
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = address.sin_port};
    six.sin6_addr.s6_addr[10] = six.sin6_addr.s6_addr[11] = 0xff;
    memcpy(&six.sin6_addr.s6_addr[12], &address.sin_addr, 4);
    return six;
}

static void name(const char *what, struct sockaddr_in6 address, socklen_t len) {
    say("%s: %d bytes, family %d, %s, port %s", what, (int)len, address.sin6_family,
        IN6_IS_ADDR_V4MAPPED(&address.sin6_addr)       ? "mapped"
        : IN6_IS_ADDR_UNSPECIFIED(&address.sin6_addr) ? "any"
                                                      : "IPv6",
        address.sin6_port ? "set" : "0");
}

static void hear(int fd, const char *what) {
    char text[16], control[256];
    struct sockaddr_in6 from = {0};
    struct iovec part = {text, sizeof text};
    struct msghdr message = {.msg_name = &from, .msg_namelen = sizeof from, .msg_iov = &part, .msg_iovlen = 1,
                             .msg_control = control, .msg_controllen = sizeof control};
    result(what, recvmsg(fd, &message, 0));
    name("from", from, message.msg_namelen);
    for (struct cmsghdr *one = CMSG_FIRSTHDR(&message); one; one = CMSG_NXTHDR(&message, one))
        say("level %d type %d of %d", one->cmsg_level, one->cmsg_type, (int)one->cmsg_len);
}

static void client(struct sockaddr_in peer) {
    int fd = socket(AF_INET6, SOCK_DGRAM, 0), on = 1, off = 0;
    struct sockaddr_in6 six = mapped(peer), here = {0};
    socklen_t len = sizeof here;
    setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    setsockopt(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, &on, sizeof on);
    setsockopt(fd, IPPROTO_IPV6, IPV6_RECVHOPLIMIT, &on, sizeof on);
    result("IP_RECVTTL", setsockopt(fd, IPPROTO_IP, IP_RECVTTL, &on, sizeof on));
    result("to a mapped address", sendto(fd, "mapped", 6, 0, (struct sockaddr *)&six, sizeof six));
    hear(fd, "answer");
    getsockname(fd, (struct sockaddr *)&here, &len);
    name("bound", here, len);
    result("to a name of AF_INET", sendto(fd, "plain", 5, 0, (struct sockaddr *)&peer, sizeof peer));
    hear(fd, "answer");
    result("connect", connect(fd, (struct sockaddr *)&six, sizeof six));
    len = sizeof here;
    getsockname(fd, (struct sockaddr *)&here, &len);
    name("connected", here, len);
    len = sizeof here;
    result("getpeername", getpeername(fd, (struct sockaddr *)&here, &len));
    name("peer", here, len);
    result("send", send(fd, "sent", 4, 0));
    hear(fd, "answer");
    struct sockaddr_in6 nobody = {.sin6_family = AF_UNSPEC};
    result("disconnect", connect(fd, (struct sockaddr *)&nobody, sizeof nobody));
    result("send without a peer", send(fd, "x", 1, 0));
    result("connect by AF_INET", connect(fd, (struct sockaddr *)&peer, sizeof peer));
    result("send", send(fd, "again", 5, 0));
    hear(fd, "answer");
    close(fd);

    int server = socket(AF_INET6, SOCK_DGRAM, 0), asker = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in6 any = {.sin6_family = AF_INET6};
    result("bind", bind(server, (struct sockaddr *)&any, sizeof any));
    len = sizeof here;
    getsockname(server, (struct sockaddr *)&here, &len);
    struct sockaddr_in to = peer;
    to.sin_port = here.sin6_port;
    result("IPv4 to a dual socket", sendto(asker, "four", 4, 0, (struct sockaddr *)&to, sizeof to));
    hear(server, "dual");
    close(server);
    server = socket(AF_INET6, SOCK_DGRAM, 0);
    setsockopt(server, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    result("bind", bind(server, (struct sockaddr *)&any, sizeof any));
    len = sizeof here;
    getsockname(server, (struct sockaddr *)&here, &len);
    to.sin_port = here.sin6_port;
    result("connect", connect(asker, (struct sockaddr *)&to, sizeof to));
    result("IPv4 to one for IPv6 alone", send(asker, "four", 4, 0));
    struct pollfd entry = {.fd = asker, .events = POLLIN};
    poll(&entry, 1, 2000);
    events("refused", (unsigned)entry.revents);
    result("send", send(asker, "four", 4, 0));
    six.sin6_port = here.sin6_port;
    result("bind to a mapped address", bind(server = socket(AF_INET6, SOCK_DGRAM, 0), (struct sockaddr *)&six, sizeof six));
    len = sizeof here;
    getsockname(server, (struct sockaddr *)&here, &len);
    name("bound", here, len);
    result("IPv4 to it", send(asker, "four", 4, 0));
    result("IPv4 to it", send(asker, "four", 4, 0));
    entry.fd = server;
    poll(&entry, 1, 2000);
    char text[8];
    result("recv", recv(server, text, sizeof text, MSG_DONTWAIT));
    close(server);
    close(asker);
}
