/* SO_PEEK_OFF of UDP: MSG_PEEK passes over whole datagrams, begins in the middle of one, and moves on; empty ones are seen once. */
#define PARITY_UDP
#include "parity.h"

static void offset(int fd) {
    int value = 77;
    socklen_t len = sizeof value;
    getsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &value, &len);
    say("at %d", value);
}

static void seek(int fd, int value) { result("SO_PEEK_OFF", setsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &value, sizeof value)); }

static void one(const char *what, int fd, size_t room, int flags) {
    char text[32] = {0};
    struct iovec part = {text, room};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    long got = result(what, recvmsg(fd, &message, flags | MSG_DONTWAIT));
    if (got >= 0)
        say("text %s, flags %#x", text, message.msg_flags);
    offset(fd);
}

static void *late(void *peer) {
    pause_ms(200);
    int fd = socket(FAMILY, SOCK_DGRAM, 0);
    sendto(fd, "late", 4, 0, peer, sizeof(address_t));
    close(fd);
    return NULL;
}

static void server(int fd) { (void)fd; }

static void client(address_t peer) {
    address_t own = peer;
    socklen_t len = sizeof own;
    own.PORT = 0;
    int fd = socket(FAMILY, SOCK_DGRAM, 0), from = socket(FAMILY, SOCK_DGRAM, 0);
    bind(fd, (struct sockaddr *)&own, sizeof own);
    getsockname(fd, (struct sockaddr *)&own, &len);
    offset(fd);
    seek(fd, 0);
    static const char *const TEXTS[] = {"abcde", "", "fgh", "", "ijklmn"};
    for (int i = 0; i < 5; i++)
        sendto(from, TEXTS[i], strlen(TEXTS[i]), 0, (struct sockaddr *)&own, sizeof own);
    pause_ms(300);
    one("two", fd, 2, MSG_PEEK);
    one("three, all that is left", fd, 3, MSG_PEEK);
    one("none of it", fd, 9, MSG_PEEK);
    one("the next", fd, 9, MSG_PEEK);
    one("and on", fd, 9, MSG_PEEK);
    one("and on", fd, 2, MSG_PEEK | MSG_TRUNC);
    one("the end", fd, 9, MSG_PEEK);
    one("a datagram", fd, 9, 0);
    seek(fd, 1);
    one("from the second", fd, 9, MSG_PEEK);
    seek(fd, 4);
    one("from the next", fd, 2, MSG_PEEK);
    one("a short one", fd, 2, MSG_TRUNC);
    one("a datagram", fd, 9, 0);
    one("a datagram", fd, 9, 0);
    seek(fd, -1);
    one("off", fd, 9, MSG_PEEK);
    one("off", fd, 9, MSG_PEEK);
    seek(fd, 6);
    pthread_t thread;
    pthread_create(&thread, NULL, late, &own);
    char text[32] = {0};
    result("waits for more", recv(fd, text, sizeof text, MSG_PEEK));
    say("text %s", text);
    pthread_join(thread, NULL);
    offset(fd);
    one("a datagram", fd, 9, 0);
    one("a datagram", fd, 9, 0);
    one("nothing", fd, 9, 0);
    close(fd);
    close(from);
}
