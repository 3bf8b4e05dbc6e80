/* A lingering close while a child has the connection: it ends nothing, and waits for nothing (socket(7)). */
#include "parity.h"

/* Once the parent has closed its descriptor. */
static void child(int fd, int parent) {
    char byte;
    struct sockaddr_storage peer;
    socklen_t len = sizeof peer;
    while (read(parent, &byte, 1) > 0) {
    }
    int is_connected = getpeername(fd, (struct sockaddr *)&peer, &len) == 0;
    int has_sent = send(fd, "hello", 5, MSG_NOSIGNAL) == 5;
    _exit(is_connected | has_sent << 1);
}

static void serve(int listener, int seconds) {
    int fd = accepted(listener), ends[2], status = 0;
    struct linger linger = {1, seconds};
    worked("SO_LINGER", setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger));
    worked("pipe", pipe(ends));
    pid_t pid = fork();
    if (pid == 0) {
        close(ends[1]);
        child(fd, ends[0]);
    }
    close(ends[0]);
    struct timespec before, after;
    clock_gettime(CLOCK_MONOTONIC, &before);
    close(fd);
    clock_gettime(CLOCK_MONOTONIC, &after);
    say("the close waits: %d", after.tv_sec - before.tv_sec > 4);
    close(ends[1]);
    waitpid(pid, &status, 0);
    say("the child is connected and sends: %d", WEXITSTATUS(status));
}

static void server(int listener) {
    serve(listener, 6);
    serve(listener, 0);
}

static void client(address_t peer) {
    for (int n = 0; n < 2; n++) {
        int fd = connected(peer);
        char text[16] = "";
        result("received", recv(fd, text, sizeof text, 0));
        say("%s", text);
        result("the end", recv(fd, text, sizeof text, 0));
        close(fd);
    }
}
