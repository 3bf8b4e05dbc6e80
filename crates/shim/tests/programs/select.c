/* select over a socket and a pipe; timeout; closed descriptor; the time that is left. */
#include "parity.h"

static void server(int listener) {
    fd_set read;
    FD_ZERO(&read);
    FD_SET(listener, &read);
    struct timeval limit = {3, 0};
    result("select listener", select(listener + 1, &read, NULL, NULL, &limit));
    say("acceptable %d", !!FD_ISSET(listener, &read));
    int fd = accepted(listener);
    await(fd);
    send(fd, "x", 1, 0);
    await(fd);
    close(fd);
}

static void client(address_t peer) {
    int fd = connected(peer), tube[2];
    char text[4];
    if (pipe(tube) < 0)
        exit(1);
    int top = (fd > tube[1] ? fd : tube[1]) + 1;
    fd_set read, write, except;
    struct timeval limit = {0, 50000};
    FD_ZERO(&read);
    FD_SET(fd, &read);
    FD_SET(tube[0], &read);
    result("nothing", select(top, &read, NULL, NULL, &limit));
    say("left %ld.%06ld, sets %d%d", (long)limit.tv_sec, (long)limit.tv_usec, !!FD_ISSET(fd, &read),
        !!FD_ISSET(tube[0], &read));
    FD_ZERO(&write);
    FD_ZERO(&except);
    FD_SET(fd, &write);
    FD_SET(fd, &except);
    FD_SET(tube[1], &write);
    result("writable", select(top, NULL, &write, &except, NULL));
    say("sets %d%d%d", !!FD_ISSET(fd, &write), !!FD_ISSET(tube[1], &write), !!FD_ISSET(fd, &except));
    step(fd);
    FD_SET(fd, &read);
    FD_SET(tube[0], &read);
    limit.tv_sec = 5;
    result("readable", select(top, &read, NULL, NULL, &limit));
    say("sets %d%d, time left %d", !!FD_ISSET(fd, &read), !!FD_ISSET(tube[0], &read),
        limit.tv_sec >= 4);
    recv(fd, text, 1, 0);
    step(fd);
    struct timespec time = {5, 0};
    FD_SET(fd, &read);
    FD_CLR(tube[0], &read);
    result("pselect", pselect(top, &read, NULL, NULL, &time, NULL));
    result("end", recv(fd, text, 1, 0));
    FD_SET(fd, &read);
    FD_SET(tube[0], &read);
    close(tube[0]);
    limit.tv_sec = 0;
    limit.tv_usec = 0;
    result("closed descriptor", select(top, &read, NULL, NULL, &limit));
    close(fd);
}
