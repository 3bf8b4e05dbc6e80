/* What is sent, and an end that is told, directly before a close that is a reset arrive before the reset. */
#include "parity.h"

enum { TIMES = 100, WAYS = 3 };

/* Makes the close a reset: bytes are unread; they are, and the end was told; nothing lingers. */
static void close_by(int way, int fd) {
    char text[16];
    struct linger none = {1, 0};
    if (way == 1)
        shutdown(fd, SHUT_RDWR);
    if (way == 2) {
        recv(fd, text, sizeof text, 0);
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof none);
    }
    close(fd);
}

static void server(int listener) {
    for (int i = 0; i < WAYS * TIMES; i++) {
        int fd = accepted(listener);
        struct pollfd entry = {.fd = fd, .events = POLLIN};
        poll(&entry, 1, 20000);
        send(fd, "last words", 10, MSG_NOSIGNAL);
        close_by(i / TIMES, fd);
    }
}

static void client(address_t peer) {
    for (int way = 0; way < WAYS; way++) {
        int arrived = 0, ends = 0, resets = 0;
        for (int i = 0; i < TIMES; i++) {
            char text[16];
            int fd = connected(peer);
            send(fd, "hello", 5, 0);
            struct pollfd entry = {.fd = fd};
            poll(&entry, 1, 20000);
            arrived += recv(fd, text, sizeof text, 0) == 10;
            long next = recv(fd, text, sizeof text, 0);
            ends += next == 0;
            resets += next < 0 && errno == ECONNRESET;
            close(fd);
        }
        say("way %d: arrived %d, ends %d, resets %d", way, arrived, ends, resets);
    }
}
