/* A peer that resets: SO_LINGER of 0, and a close with bytes unread; while the program sends, too. */
#include "parity.h"

static void abort_with_linger(int fd) {
    struct linger linger = {1, 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
    close(fd);
}

static void server(int listener) {
    int fd = accepted(listener);
    await(fd);
    abort_with_linger(fd);
    fd = accepted(listener);
    await(fd);
    abort_with_linger(fd);
    fd = accepted(listener);
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    poll(&entry, 1, 2000);
    close(fd);
    fd = accepted(listener);
    send(fd, "last words", 10, 0);
    await(fd);
    abort_with_linger(fd);
    fd = accepted(listener);
    await(fd);
    /* Until nothing has come for three seconds: the client sleeps in send then. */
    int before = -1, queued = 0;
    for (int quiet = 0; quiet < 30; before = queued) {
        pause_ms(100);
        ioctl(fd, FIONREAD, &queued);
        quiet = queued == before ? quiet + 1 : 0;
    }
    abort_with_linger(fd);
}

static void client(address_t peer) {
    char text[16];
    int fd = connected(peer);
    step(fd);
    result("recv", recv(fd, text, sizeof text, 0));
    result("recv again", recv(fd, text, sizeof text, 0));
    result("send", send(fd, "x", 1, MSG_NOSIGNAL));
    poll_now("after the error", fd, 0);
    result("getpeername", getpeername(fd, (struct sockaddr *)&peer, &(socklen_t){sizeof peer}));
    close(fd);

    fd = connected(peer);
    step(fd);
    struct pollfd entry = {.fd = fd, .events = POLLIN | POLLRDHUP};
    poll(&entry, 1, 5000);
    entry.events |= POLLOUT;
    result("poll", poll(&entry, 1, 2000));
    events("reset", (unsigned)entry.revents);
    result("send", send(fd, "x", 1, MSG_NOSIGNAL));
    result("send again", send(fd, "x", 1, MSG_NOSIGNAL));
    say("SO_ERROR: %s", error_name(socket_error(fd)));
    result("recv", recv(fd, text, sizeof text, 0));
    close(fd);

    fd = connected(peer);
    result("send", send(fd, "unread", 6, 0));
    result("recv", recv(fd, text, sizeof text, 0));
    close(fd);

    fd = connected(peer);
    pause_ms(50);
    step(fd);
    pause_ms(100);
    result("words before the reset", recv(fd, text, sizeof text, 0));
    result("then", recv(fd, text, sizeof text, 0));
    close(fd);

    fd = connected(peer);
    char *block = calloc(1, 1 << 20);
    /* Until nothing goes in any more: the call that sleeps then has sent nothing. */
    nonblocking(fd);
    struct pollfd room = {.fd = fd, .events = POLLOUT};
    do
        while (send(fd, block, 1 << 20, MSG_NOSIGNAL) > 0) {
        }
    while ((poll(&room, 1, 1000) == 1 && room.revents == POLLOUT) || send(fd, block, 1, MSG_NOSIGNAL) == 1);
    fcntl(fd, F_SETFL, 0);
    result("sending", send(fd, block, 1 << 20, MSG_NOSIGNAL));
    result("sending again", send(fd, block, 1, MSG_NOSIGNAL));
    free(block);
    close(fd);
}
