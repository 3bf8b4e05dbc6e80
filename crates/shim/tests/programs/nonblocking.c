/* A non-blocking connect, its states, a full send window and its room. */
#include "parity.h"

static void server(int listener) {
    int fd = accepted(listener);
    pause_ms(1500);
    char *block = malloc(1 << 16);
    long count, total = 0;
    while ((count = recv(fd, block, 1 << 16, 0)) > 0)
        total += count;
    say("received something: %s", total > 1000 ? "yes" : "no");
    free(block);
    close(fd);
}

static void client(address_t peer) {
    int fd = socket(FAMILY, SOCK_STREAM | SOCK_NONBLOCK, 0);
    char text[8];
    poll_now("before connect", fd, 0);
    result("connect", connect(fd, (struct sockaddr *)&peer, sizeof peer));
    struct pollfd entry = {.fd = fd, .events = POLLOUT};
    result("poll", poll(&entry, 1, 2000));
    events("connected", (unsigned)entry.revents);
    say("SO_ERROR: %s", error_name(socket_error(fd)));
    result("connect", connect(fd, (struct sockaddr *)&peer, sizeof peer));
    result("connect", connect(fd, (struct sockaddr *)&peer, sizeof peer));
    result("recv", recv(fd, text, sizeof text, 0));
    say("O_NONBLOCK %d", !!(fcntl(fd, F_GETFL) & O_NONBLOCK));

    char *block = calloc(1, 1 << 16);
    long sent = 0, count;
    for (;;) {
        while ((count = send(fd, block, 1 << 16, 0)) > 0)
            sent += count;
        if (errno != EAGAIN || poll(&entry, 1, 100) == 0)
            break;
    }
    result("full", count);
    poll_now("full", fd, 0);
    /* The server starts to read late. */
    result("poll for room", poll(&entry, 1, 5000));
    events("room", (unsigned)entry.revents);
    free(block);
    close(fd);
}
