/* What is sent on a connection with an address, by each call that takes one: TCP does not look at it, as clients of DNS over TCP rely on. */
#include "parity.h"

static void read_all(int fd) {
    char text[64];
    size_t length = 0;
    ssize_t count;
    while ((count = recv(fd, text + length, sizeof text - 1 - length, 0)) > 0)
        length += (size_t)count;
    result("the last recv", count);
    text[length] = 0;
    say("read: %s", text);
}

static void server(int listener) {
    int fd = accepted(listener);
    struct iovec piece = {"no", 2};
    address_t nobody = address_of(STRANGER);
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_name = &nobody, .msg_namelen = sizeof nobody};
    result("sendmsg of a listener", sendmsg(listener, &message, MSG_NOSIGNAL));
    message.msg_namelen = sizeof nobody;
    result("recvmsg of a listener", recvmsg(listener, &message, MSG_DONTWAIT));
    read_all(fd);
    result("send back", send(fd, "back", 4, 0));
    close(fd);
}

static void named(const char *what, int fd, const char *text, void *name, socklen_t name_len) {
    struct iovec pieces[] = {{(char *)text, 1}, {(char *)text + 1, strlen(text) - 1}};
    struct msghdr message = {.msg_iov = pieces, .msg_iovlen = 2, .msg_name = name, .msg_namelen = name_len};
    say("%s", what);
    result("sendmsg", sendmsg(fd, &message, MSG_NOSIGNAL));
    result("sendto", sendto(fd, text, strlen(text), MSG_NOSIGNAL, name, name_len));
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
}
