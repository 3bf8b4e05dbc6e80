/* What is sent on a connection with an address, by each call that takes one: TCP does not look at it, as clients of DNS over TCP rely on. */
#include "parity.h"

#define LONG (256 * 1024)
#define MANY 8

static void read_all(int fd) {
    char text[256];
    size_t length = 0;
    ssize_t count;
    while ((count = recv(fd, text + length, sizeof text - 1 - length, 0)) > 0)
        length += (size_t)count;
    result("the last recv", count);
    text[length] = 0;
    say("read: %s", text);
}

static void count_all(int fd, long told) {
    static char bytes[1 << 16];
    long total = 0;
    ssize_t count;
    while ((count = recv(fd, bytes, sizeof bytes, 0)) > 0)
        total += count;
    result("the last recv", count);
    say("%s", total == told ? "as many bytes as were told" : "other bytes than were told");
}

static void server(int listener) {
    int fd = accepted(listener);
    struct iovec piece = {"no", 2};
    address_t nobody = address_of(STRANGER);
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_name = &nobody, .msg_namelen = sizeof nobody};
    result("sendmsg of a listener", sendmsg(listener, &message, MSG_NOSIGNAL));
    message.msg_namelen = sizeof nobody;
    result("recvmsg of a listener", recvmsg(listener, &message, MSG_DONTWAIT));
    struct mmsghdr several[2] = {{.msg_hdr = message}, {.msg_hdr = message}};
    result("sendmmsg of a listener", sendmmsg(listener, several, 2, MSG_NOSIGNAL));
    read_all(fd);
    result("send back", send(fd, "back", 4, 0));
    close(fd);
    fd = accepted(listener);
    int beside = accepted(listener);
    long told = 0;
    result("told", recv(beside, &told, sizeof told, MSG_WAITALL));
    count_all(fd, told);
    close(beside);
    close(fd);
}

static void named(const char *what, int fd, const char *text, void *name, socklen_t name_len) {
    struct iovec pieces[] = {{(char *)text, 1}, {(char *)text + 1, strlen(text) - 1}};
    struct msghdr message = {.msg_iov = pieces, .msg_iovlen = 2, .msg_name = name, .msg_namelen = name_len};
    say("%s", what);
    result("sendmsg", sendmsg(fd, &message, MSG_NOSIGNAL));
    result("sendto", sendto(fd, text, strlen(text), MSG_NOSIGNAL, name, name_len));
    struct mmsghdr several[] = {{.msg_hdr = message}, {.msg_hdr = message}, {.msg_hdr = message}};
    several[0].msg_hdr.msg_name = NULL;
    several[0].msg_hdr.msg_namelen = 0;
    result("sendmmsg", sendmmsg(fd, several, 3, MSG_NOSIGNAL));
    say("lengths %u %u %u", several[0].msg_len, several[1].msg_len, several[2].msg_len);
}

/* Until nothing more fits: what was told of each message arrives, also of one of which a part was sent. */
static void more_than_fits(address_t peer) {
    int fd = connected(peer);
    static char bytes[LONG];
    struct iovec piece = {bytes, sizeof bytes};
    struct mmsghdr several[MANY];
    long total = 0;
    int count;
    nonblocking(fd);
    do {
        for (int i = 0; i < MANY; i++)
            several[i] = (struct mmsghdr){.msg_hdr = {.msg_iov = &piece, .msg_iovlen = 1, .msg_name = &peer, .msg_namelen = sizeof peer}};
        count = sendmmsg(fd, several, MANY, MSG_NOSIGNAL);
        for (int i = 0; i < count; i++)
            total += several[i].msg_len;
    } while (count > 0);
    result("sendmmsg that finds no room", count);
    /* One that waits: its messages are sent whole. */
    fcntl(fd, F_SETFL, 0);
    int beside = connected(peer);
    total += 2 * LONG;
    send(beside, &total, sizeof total, 0);
    several[0].msg_len = several[1].msg_len = 0;
    result("sendmmsg that waits", sendmmsg(fd, several, 2, MSG_NOSIGNAL));
    say("lengths %u %u", several[0].msg_len, several[1].msg_len);
    close(beside);
    close(fd);
}

static void client(address_t peer) {
    int fd = connected(peer);
    address_t nobody = address_of(STRANGER);
    char garbage[16] = "\377\377garbage";
    named("the peer", fd, "to", &peer, sizeof peer);
    named("somebody else", fd, "who", &nobody, sizeof nobody);
    named("no address", fd, "bad", garbage, sizeof garbage);
    named("a short one", fd, "cut", &peer, 3);
    named("an empty one", fd, "nil", &peer, 0);
    result("shutdown", shutdown(fd, SHUT_WR));
    named("after the end", fd, "end", &peer, sizeof peer);

    char text[8];
    address_t from;
    struct iovec room = {text, sizeof text};
    struct msghdr message = {.msg_iov = &room, .msg_iovlen = 1, .msg_name = &from, .msg_namelen = sizeof from};
    result("recvmsg", recvmsg(fd, &message, 0));
    say("name of %d bytes", (int)message.msg_namelen);
    close(fd);
    more_than_fits(peer);
}
