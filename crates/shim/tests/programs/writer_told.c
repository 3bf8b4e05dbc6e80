/* Whoever writes on and on is told that the peer has gone, however full everything is: who waits in write, who polls for room, and who
 * asks select(2), which tells of no hang-up. A reset comes at once, or after the peer's FIN, as chance has it. */
#include "parity.h"

enum { ROUNDS = 120 };

static char bytes[1024 * 1024];

static void server(int listener) {
    for (int round = 0; round < ROUNDS; round++) {
        int fd = accepted(listener);
        /* Many a program shuts down what it closes then. */
        if (round % 2)
            shutdown(fd, SHUT_RDWR);
        close(fd);
    }
    say("closed %d", ROUNDS);
}

static ssize_t write_polling(int fd) {
    struct pollfd room = {.fd = fd, .events = POLLOUT};
    ssize_t written;
    fcntl(fd, F_SETFL, O_NONBLOCK);
    do {
        written = write(fd, bytes, sizeof bytes);
        if (written < 0 && errno == EAGAIN)
            written = poll(&room, 1, 10000);
    } while (written > 0);
    return written;
}

/* Little room, and more in each write. */
static ssize_t write_selecting(int fd) {
    int room = 4096;
    ssize_t written;
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    do {
        struct timeval time = {10, 0};
        fd_set set;
        FD_ZERO(&set);
        FD_SET(fd, &set);
        written = write(fd, bytes, 64 * 1024);
        if (written < 0 && errno == EAGAIN)
            written = select(fd + 1, NULL, &set, NULL, &time);
    } while (written > 0);
    return written;
}

static ssize_t write_waiting(int fd) {
    ssize_t written;
    do
        written = write(fd, bytes, sizeof bytes);
    while (written > 0);
    return written;
}

static void client(address_t peer) {
    int told = 0, other = 0;
    signal(SIGPIPE, SIG_IGN);
    for (int round = 0; round < ROUNDS; round++) {
        int fd = connected(peer);
        ssize_t last = round % 3 == 2 ? write_selecting(fd) : round % 3 ? write_polling(fd) : write_waiting(fd);
        if (last < 0 && (errno == EPIPE || errno == ECONNRESET))
            told++;
        else
            other++;
        close(fd);
    }
    say("told %d, otherwise %d", told, other);
}
