/* splice(2) of every pair of ends of a pipe, sockets of TCP and UDP in several states, and files, as far as it does not
   wait for ever: which error comes, and that none waits. */
#include "parity.h"

static int pipe_ends[2];

static void one(const char *what, int from, loff_t *from_offset, int to, loff_t *to_offset, size_t len, unsigned flags) {
    alarm(10);
    result(what, splice(from, from_offset, to, to_offset, len, flags));
    alarm(0);
}

/* The pipe is empty and has room; `fd` has nothing to read unless that is said. */
static void with_pipe(const char *state, int fd) {
    loff_t offset = 0;
    say("%s", state);
    one("into the reading end", fd, NULL, pipe_ends[0], NULL, 10, 0);
    one("out of the writing end", pipe_ends[1], NULL, fd, NULL, 10, 0);
    one("into the reading end at once", fd, NULL, pipe_ends[0], NULL, 10, SPLICE_F_NONBLOCK);
    one("out of the writing end at once", pipe_ends[1], NULL, fd, NULL, 10, SPLICE_F_NONBLOCK);
    one("nothing", pipe_ends[0], NULL, fd, NULL, 0, 0);
    one("nothing", fd, NULL, pipe_ends[1], NULL, 0, 0);
    one("unknown flags", fd, NULL, pipe_ends[1], NULL, 10, 0x100);
    one("an offset of the pipe", pipe_ends[0], &offset, fd, NULL, 10, 0);
    one("an offset of the socket", pipe_ends[0], NULL, fd, &offset, 10, 0);
    one("an offset of the pipe", fd, NULL, pipe_ends[1], &offset, 10, 0);
    one("an offset of the socket", fd, &offset, pipe_ends[1], NULL, 10, 0);
    one("an empty pipe at once", pipe_ends[0], NULL, fd, NULL, 10, SPLICE_F_NONBLOCK);
    one("to itself", fd, NULL, fd, NULL, 10, 0);
    int file = open("/dev/null", O_RDWR);
    one("without a pipe", fd, NULL, file, NULL, 10, 0);
    one("without a pipe", file, NULL, fd, NULL, 10, 0);
    one("no descriptor", fd, NULL, -1, NULL, 10, 0);
    one("no descriptor", -1, NULL, fd, NULL, 10, 0);
    close(file);
}

static void server(int listener) {
    int fd = accepted(listener);
    char text[64] = "";
    long got;
    step(fd);
    await(fd);
    send(fd, "from afar", 9, 0);
    long all = 0;
    while ((got = recv(fd, text, sizeof text, 0)) > 0)
        all += got;
    say("all %ld", all);
    close(fd);
}

static void client(address_t peer) {
    if (pipe(pipe_ends) < 0)
        exit(1);
    int fresh = socket(FAMILY, SOCK_STREAM, 0), datagrams = socket(FAMILY, SOCK_DGRAM, 0);
    with_pipe("a socket of TCP", fresh);
    one("not connected", fresh, NULL, pipe_ends[1], NULL, 10, 0);
    close(fresh);
    with_pipe("a socket of UDP", datagrams);
    connect(datagrams, (struct sockaddr *)&peer, sizeof peer);
    with_pipe("with a peer", datagrams);
    close(datagrams);
    int fd = connected(peer);
    await(fd);
    with_pipe("a connection", fd);
    struct timeval time = {0, 50000};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
    one("nothing there", fd, NULL, pipe_ends[1], NULL, 10, 0);
    nonblocking(fd);
    one("nothing there at once", fd, NULL, pipe_ends[1], NULL, 10, SPLICE_F_NONBLOCK);
    fcntl(fd, F_SETFL, 0);
    step(fd);
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    poll(&entry, 1, 5000);
    one("something there", fd, NULL, pipe_ends[1], NULL, 64, 0);
    one("and back", pipe_ends[0], NULL, fd, NULL, 64, SPLICE_F_MORE);
    one("no more in it", pipe_ends[0], NULL, fd, NULL, 64, SPLICE_F_NONBLOCK);
    close(pipe_ends[1]);
    one("the end of the pipe", pipe_ends[0], NULL, fd, NULL, 64, 0);
    shutdown(fd, SHUT_WR);
    result("the end", recv(fd, (char[1]){0}, 1, 0));
    close(fd);
}
