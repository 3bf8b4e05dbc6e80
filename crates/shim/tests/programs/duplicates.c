/* dup, dup2, dup3, F_DUPFD: one connection behind many numbers; the last close ends it. */
#include "parity.h"

static void server(int listener) {
    int fd = accepted(listener);
    step(fd);
    char text[64] = {0};
    long total = 0, count;
    while ((count = recv(fd, text + total, sizeof text - 1 - (size_t)total, 0)) > 0)
        total += count;
    result("end", count);
    say("text %s", text);
    close(fd);
}

static void client(address_t peer) {
    int fd = connected(peer);
    /* The server's half is of this process: once its accept is over, nobody else takes or frees numbers. */
    await(fd);
    int twin = dup(fd), third = fcntl(fd, F_DUPFD, 100), fourth = fcntl(fd, F_DUPFD_CLOEXEC, 100);
    say("numbers %d %d", third, fourth);
    say("CLOEXEC %d %d", fcntl(third, F_GETFD), fcntl(fourth, F_GETFD));
    result("send", send(fd, "a", 1, 0));
    result("close", close(fd));
    result("send on a closed number", send(fd, "b", 1, 0));
    result("send on the twin", send(twin, "c", 1, 0));
    result("dup2", dup2(twin, 120));
    result("send", send(120, "d", 1, 0));
    result("dup2 onto itself", dup2(120, 120));
    result("dup3 onto itself", dup3(120, 120, 0));
    result("dup3", dup3(120, 121, O_CLOEXEC));
    result("write", write(121, "e", 1));
    int other = open("/dev/null", O_WRONLY);
    result("dup2 of a file onto it", dup2(other, 121));
    result("write to the file", write(121, "f", 1));
    nonblocking(twin);
    say("O_NONBLOCK is shared: %d", !!(fcntl(120, F_GETFL) & O_NONBLOCK));
    char byte;
    result("recv", recv(120, &byte, 1, 0));
    result("dup of nothing", dup(999));
    close(twin);
    close(third);
    close(fourth);
    result("send on the last", send(120, "g", 1, 0));
    close(120);
    close(121);
    int low = socket(FAMILY, SOCK_STREAM, 0);
    say("the lowest number is free again: %d", low == fd);
    close(low);
    close(other);
}
