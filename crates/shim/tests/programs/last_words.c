/* What is sent directly before a close with bytes unread arrives before the reset. */
#include "parity.h"

enum { TIMES = 200 };

static void server(int listener) {
    for (int i = 0; i < TIMES; i++) {
        int fd = accepted(listener);
        struct pollfd entry = {.fd = fd, .events = POLLIN};
        poll(&entry, 1, 20000);
        send(fd, "last words", 10, MSG_NOSIGNAL);
        close(fd);
    }
}

static void client(address_t peer) {
    int arrived = 0, resets = 0;
    for (int i = 0; i < TIMES; i++) {
        char text[16];
        int fd = connected(peer);
        send(fd, "hello", 5, 0);
        struct pollfd entry = {.fd = fd};
        poll(&entry, 1, 20000);
        if (recv(fd, text, sizeof text, 0) == 10)
            arrived++;
        if (recv(fd, text, sizeof text, 0) < 0 && errno == ECONNRESET)
            resets++;
        close(fd);
    }
    say("arrived %d, resets %d", arrived, resets);
}
