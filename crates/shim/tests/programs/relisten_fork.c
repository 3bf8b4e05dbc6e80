/* A server that listens at the same address again after a child, which had the listener too, was killed. Another process may have to hear
 * of the child's end first, which a busy machine does not always manage: most rounds have to pass. */
#include "parity.h"

#define ROUNDS 100

static void server(int fd) { (void)fd; }

static int listening_again(address_t at) {
    int listener = socket(FAMILY, SOCK_STREAM, 0), on = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (!bind(listener, (struct sockaddr *)&at, sizeof at) && !listen(listener, 4))
        return listener;
    close(listener);
    return -1;
}

/* Of a process that is killed while it waits for its peer. */
static void killed_child(int listener, address_t at) {
    pid_t child = fork();
    char text[8];
    if (!child) {
        int fd = connected(at);
        send(fd, "x", 1, 0);
        recv(fd, text, sizeof text, 0);
        pause();
        _exit(0);
    }
    int fd = accepted(listener);
    await(fd);
    step(fd);
    close(fd);
    kill(child, SIGTERM);
    waitpid(child, NULL, 0);
}

static void client(address_t peer) {
    address_t at = peer;
    socklen_t len = sizeof at;
    at.PORT = 0;
    int listener = listening(at), passed = 0;
    getsockname(listener, (struct sockaddr *)&at, &len);
    fflush(stdout);
    for (int round = 0; round < ROUNDS; round++) {
        killed_child(listener, at);
        close(listener);
        listener = listening_again(at);
        passed += listener >= 0;
        double start = now();
        while (listener < 0 && now() - start < 10) {
            pause_ms(1);
            listener = listening_again(at);
        }
        if (listener < 0) {
            say("the port stays taken");
            return;
        }
    }
    say("most rounds: %d", passed >= ROUNDS * 8 / 10);
    close(listener);
}
