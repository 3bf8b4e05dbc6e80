/* What Linux says in the corners of the calls on UDP sockets: datagrams put together of several calls, lengths of names and
   messages, what stays shut, and a port that is free again. */
#define PARITY_UDP
#include "parity.h"
#include <netinet/udp.h>

static char text[256];

static int receiver(address_t on) {
    address_t own = on;
    own.PORT = 0;
    return listening(own);
}

static address_t name_of(int fd) {
    address_t name;
    socklen_t len = sizeof name;
    getsockname(fd, (struct sockaddr *)&name, &len);
    return name;
}

static int to(int fd) {
    address_t name = name_of(fd);
    int sender = socket(FAMILY, SOCK_DGRAM, 0);
    if (connect(sender, (struct sockaddr *)&name, sizeof name) < 0)
        perror("connect");
    return sender;
}

/* Waits for the next one, and takes it. */
static void next(const char *what, int fd) {
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    poll(&entry, 1, 5000);
    long got = recv(fd, text, sizeof text, MSG_DONTWAIT);
    say("%s: %ld %.*s", what, got, (int)(got < 0 ? 0 : got), text);
}

static void put_together(address_t on) {
    int heard = receiver(on), sender = to(heard), yes = 1, no = 0;
    result("more", send(sender, "ab", 2, MSG_MORE));
    result("more", send(sender, "cd", 2, MSG_MORE));
    result("all", send(sender, "e", 1, 0));
    next("one", heard);
    result("cork", setsockopt(sender, IPPROTO_UDP, UDP_CORK, &yes, sizeof yes));
    result("some", send(sender, "fg", 2, 0));
    result("some", write(sender, "hi", 2));
    result("nothing yet", recv(heard, text, sizeof text, MSG_DONTWAIT));
    result("uncork", setsockopt(sender, IPPROTO_UDP, UDP_CORK, &no, sizeof no));
    next("one", heard);
    result("uncork", setsockopt(sender, IPPROTO_UDP, UDP_CORK, &no, sizeof no));
    static char large[60000];
    result("more", send(sender, large, sizeof large, MSG_MORE));
    result("too much", send(sender, large, sizeof large, MSG_MORE));
    result("anew", send(sender, "j", 1, 0));
    next("one", heard);
    result("only asked", send(sender, "xyz", 3, 0x10));
    result("sent", send(sender, "k", 1, 0));
    next("one", heard);
    close(sender);
    close(heard);
}

static void lengths(address_t on) {
    int heard = receiver(on), sender = to(heard);
    address_t name = name_of(heard);
    struct sockaddr *peer = (struct sockaddr *)&name;
    result("no length", sendto(sender, "x", 1, 0, peer, 0));
    result("below it", sendto(sender, "x", 1, 0, peer, (socklen_t)-1));
    result("above all", sendto(sender, "x", 1, 0, peer, 200));
    static const struct {
        int level, type, value;
    } KINDS[] = {
        {SOL_SOCKET, SO_PRIORITY, 3}, {SOL_SOCKET, SO_MARK, 0}, {SOL_SOCKET, SO_TIMESTAMP, 1},
        {IPPROTO_IP, IP_TOS, 8}, {IPPROTO_IP, IP_TTL, 8}, {IPPROTO_IP, 52, 17}, {IPPROTO_UDP, 103, 100}, {99, 1, 1},
    };
    char control[64];
    struct iovec part = {text, 2};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control};
    struct cmsghdr *one = (struct cmsghdr *)control;
    for (unsigned i = 0; i < sizeof KINDS / sizeof *KINDS; i++) {
        for (int len = 17; len <= 24; len++) {
            memset(control, 0, sizeof control);
            *one = (struct cmsghdr){.cmsg_len = (size_t)len, .cmsg_level = KINDS[i].level, .cmsg_type = KINDS[i].type};
            memcpy(CMSG_DATA(one), &KINDS[i].value, sizeof(int));
            message.msg_controllen = 24;
            say("level %d, type %d, length %d", KINDS[i].level, KINDS[i].type, len);
            if (result("sendmsg", sendmsg(sender, &message, 0)) == 2)
                next("came", heard);
        }
    }
    message.msg_controllen = 0;
    message.msg_name = peer;
    message.msg_namelen = (socklen_t)-1;
    result("a name", sendmsg(sender, &message, 0));
    part.iov_len = (size_t)-1;
    message.msg_name = NULL;
    result("too long a part", sendmsg(sender, &message, 0));
    send(sender, "l", 1, 0);
    struct pollfd entry = {.fd = heard, .events = POLLIN};
    poll(&entry, 1, 5000);
    socklen_t len = (socklen_t)-1;
    result("no room for a name", recvfrom(heard, text, 4, MSG_DONTWAIT, peer, &len));
    result("it is gone", recv(heard, text, 4, MSG_DONTWAIT));
    result("nothing is read", send(sender, "m", 1, 0));
    poll(&entry, 1, 5000);
    result("nothing is read", read(heard, text, 0));
    next("still there", heard);
    close(sender);
    close(heard);
}

/* Where a datagram was sent to, as the program wants to know it. */
static void destinations(address_t on) {
    int heard = receiver(on), sender = to(heard), yes = 1;
    address_t name = name_of(heard), said;
#ifdef PARITY_V6
    result("IPV6_RECVORIGDSTADDR", setsockopt(heard, IPPROTO_IPV6, 74, &yes, sizeof yes));
#else
    result("IP_RECVORIGDSTADDR", setsockopt(heard, IPPROTO_IP, IP_RECVORIGDSTADDR, &yes, sizeof yes));
#endif
    send(sender, "n", 1, 0);
    char control[256];
    struct iovec part = {text, 2};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    result("recvmsg", recvmsg(heard, &message, MSG_CMSG_CLOEXEC));
    say("flags %x", (unsigned)message.msg_flags);
    for (struct cmsghdr *one = CMSG_FIRSTHDR(&message); one; one = CMSG_NXTHDR(&message, one)) {
        memcpy(&said, CMSG_DATA(one), sizeof said);
        say("level %d, type %d, length %d, right %d", one->cmsg_level, one->cmsg_type, (int)one->cmsg_len,
            !memcmp(&said, &name, sizeof name));
    }
    close(sender);
    close(heard);
}

static void stays_shut(address_t on) {
    struct sockaddr none = {.sa_family = AF_UNSPEC};
    int heard = receiver(on), sender = to(heard);
    poll_now("fresh", sender, 0);
    struct pollfd all = {.fd = sender, .events = 0x3c7};
    poll(&all, 1, 0);
    say("writable in every way: %x", (unsigned)all.revents);
    address_t name = name_of(heard);
    result("shutdown", shutdown(sender, SHUT_WR));
    result("send", send(sender, "x", 1, MSG_NOSIGNAL));
    result("connect", connect(sender, (struct sockaddr *)&name, sizeof name));
    result("send", send(sender, "x", 1, MSG_NOSIGNAL));
    result("shutdown", shutdown(sender, SHUT_RD));
    result("disconnect", connect(sender, &none, sizeof none));
    poll_now("then", sender, 0);
    result("connect", connect(sender, (struct sockaddr *)&name, sizeof name));
    poll_now("then", sender, 0);
    result("send", send(sender, "x", 1, MSG_NOSIGNAL));
    close(sender);
    close(heard);
}

/* A port is free when close returns. */
static void free_again(address_t on) {
    int bound = 0;
    for (int i = 0; i < 50; i++) {
        int fd = receiver(on);
        address_t name = name_of(fd);
        if (i % 2)
            memset(&name.ADDRESS, 0, sizeof name.ADDRESS);
        close(fd);
        fd = socket(FAMILY, SOCK_DGRAM, 0);
        bound += bind(fd, (struct sockaddr *)&name, sizeof name) == 0;
        close(fd);
    }
    say("bound again %d", bound);
    struct ip_mreqn nothing = {0};
    int fd = receiver(on);
    result("no group", setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &nothing, sizeof nothing));
    close(fd);
}

static void server(int listener) { close(listener); }

static void client(address_t peer) {
    put_together(peer);
    lengths(peer);
    destinations(peer);
    stays_shut(peer);
    free_again(peer);
}
