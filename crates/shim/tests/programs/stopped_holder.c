/* Two processes hold a connection, and one of them is stopped, wherever it is: the other goes on. */
#include "parity.h"

enum { ROUNDS = 40, PIECE = 2000 };

static void server(int listener) {
    static const char bytes[PIECE];
    int busy = accepted(listener);
    step(busy);
    int quiet = accepted(listener);
    char byte;
    while (recv(busy, &byte, 1, MSG_DONTWAIT) < 0)
        send(busy, bytes, sizeof bytes, 0);
    shutdown(busy, SHUT_WR);
    await(quiet);
    step(quiet);
    close(busy);
    close(quiet);
}

static pid_t reader(int fd) {
    pid_t child = fork();
    if (child == 0) {
        char bytes[100];
        while (recv(fd, bytes, sizeof bytes, 0) > 0) {
        }
        _exit(0);
    }
    return child;
}

static void stop(pid_t child) {
    int status;
    kill(child, SIGSTOP);
    waitpid(child, &status, WUNTRACED);
}

/* As much as it takes to see that nothing is in the way. */
static int reads(int fd) {
    static char bytes[PIECE];
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    return poll(&entry, 1, -1) == 1 && recv(fd, bytes, sizeof bytes, MSG_WAITALL) == sizeof bytes;
}

static void client(address_t peer) {
    /* In turn: an engine of several cores accepts what came together core by core. */
    int busy = connected(peer), good = 0;
    await(busy);
    int quiet = connected(peer);
    pid_t child = reader(busy);
    for (int i = 0; i < ROUNDS; i++) {
        pause_ms(1 + i % 5);
        stop(child);
        good += reads(busy) && reads(busy);
        kill(child, SIGCONT);
    }
    say("read beside a stopped reader: %d", good);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    step(busy);
    char bytes[PIECE];
    while (recv(busy, bytes, sizeof bytes, 0) > 0) {
    }
    close(busy);

    /* One that sleeps in a read. */
    char byte;
    child = reader(quiet);
    pause_ms(50);
    stop(child);
    step(quiet);
    result("read beside a stopped sleeper", recv(quiet, &byte, 1, 0));
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    close(quiet);
}
