/* A daemon's start: closes every descriptor it does not know, then goes on with new sockets. */
#include "parity.h"

static void server(int listener) {
    for (int i = 0; i < 2; i++) {
        int fd = accepted(listener);
        await(fd);
        send(fd, "x", 1, 0);
        char byte;
        result("end", recv(fd, &byte, 1, 0));
        close(fd);
    }
}

static void client(address_t peer) {
    int fd = connected(peer);
    step(fd);
    await(fd);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        for (int number = 3; number < 1024; number++)
            close(number);
        close_range(3, ~0U, 0);
        int again = connected(peer);
        step(again);
        await(again);
        shutdown(again, SHUT_WR);
        _exit(again);
    }
    /* Only the child's copy was closed by the child. */
    int status;
    shutdown(fd, SHUT_WR);
    waitpid(child, &status, 0);
    say("the child's first free number: %d", WEXITSTATUS(status));
    close(fd);
}
