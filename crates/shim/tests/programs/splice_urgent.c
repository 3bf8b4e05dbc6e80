/* splice(2) before an urgent byte, which is no byte of the stream: nothing moves, and nobody waits. */
#include "parity.h"

static int pipe_ends[2];

static void one(const char *what, int fd, size_t len) {
    result(what, splice(fd, NULL, pipe_ends[1], NULL, len, 0));
}

static void server(int listener) {
    for (int in_line = 0; in_line < 2; in_line++) {
        int fd = accepted(listener);
        send(fd, "abc", 3, 0);
        send(fd, "d", 1, MSG_OOB);
        send(fd, "efg", 3, 0);
        await(fd);
        send(fd, "hi", 2, 0);
        await(fd);
        send(fd, "j", 1, MSG_OOB);
        shutdown(fd, SHUT_WR);
        await(fd);
        close(fd);
    }
}

/* Until so many bytes are there. Where splice has taken some of them too early, they never are. */
static void wait_for(int fd, int bytes) {
    char text[16];
    for (double start = now(); now() - start < 3 && recv(fd, text, sizeof text, MSG_PEEK | MSG_DONTWAIT) < bytes;)
        pause_ms(1);
}

static void wait_for_event(int fd, short event) {
    struct pollfd entry = {.fd = fd, .events = event};
    poll(&entry, 1, 30000);
}

static void urgent(address_t peer, int in_line) {
    int fd = connected(peer), at_mark = -1;
    char text[16] = {0}, byte;
    say("in line %d", in_line);
    setsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &in_line, sizeof in_line);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){.tv_sec = 2}, sizeof(struct timeval));
    wait_for(fd, 3);
    wait_for_event(fd, POLLPRI);
    /* And what follows it. */
    pause_ms(50);
    one("before it", fd, 10);
    one("at it", fd, 10);
    one("at it", fd, 1);
    ioctl(fd, SIOCATMARK, &at_mark);
    say("mark %d", at_mark);
    nonblocking(fd);
    one("at it, not waiting", fd, 10);
    fcntl(fd, F_SETFL, 0);
    result("out of band", recv(fd, &byte, 1, MSG_OOB | MSG_DONTWAIT));
    one("it was received", fd, 10);
    result("past it", recv(fd, text, 2, MSG_WAITALL));
    say("text %s", text);
    step(fd);
    wait_for(fd, in_line ? 4 : 3);
    one("behind it", fd, 10);
    step(fd);
    wait_for_event(fd, POLLRDHUP);
    one("before the next", fd, 10);
    one("the last", fd, 10);
    nonblocking(fd);
    one("the last, not waiting", fd, 10);
    fcntl(fd, F_SETFL, 0);
    result("the end", recv(fd, text, sizeof text, 0));
    step(fd);
    close(fd);
}

static void client(address_t peer) {
    if (pipe(pipe_ends) < 0)
        exit(1);
    urgent(peer, 0);
    urgent(peer, 1);
}
