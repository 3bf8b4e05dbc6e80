/* Two programs that have one bound socket, one of them from a message, listen on it at the same time: both do, and each accepts. */
#define PARITY_ROLE
#include "parity.h"
#include "rights.h"

/* Where the executed program finds the channel. */
/* PLACE is above every number that the program gets by itself. */
enum { PLACE = 90, ROUNDS = 40 };

/* A call's result, by the channel. */
static void tell(int channel, int result) {
    int told = result < 0 ? errno : 0;
    send(channel, &told, sizeof told, 0);
}

static int told(int channel) {
    int value = -1;
    recv(channel, &value, sizeof value, MSG_WAITALL);
    return value;
}

static int role(const char *name) {
    (void)name;
    for (int fd; (fd = taken(PLACE)) >= 0; close(fd)) {
        step(PLACE);
        await(PLACE);
        tell(PLACE, listen(fd, 8));
        await(PLACE);
        int one = accept(fd, NULL, NULL);
        tell(PLACE, one);
        close(one);
    }
    return 0;
}

static void server(int listener) {
    close(accepted(listener));
}

static void client(address_t peer) {
    int pair[2], listened = 0, both = 0, accepted_by_both = 0;
    int before = connected(peer);
    socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair);
    pid_t child = fork();
    if (child == 0) {
        dup2(pair[1], PLACE);
        fcntl(PLACE, F_SETFD, 0);
        execl("/proc/self/exe", "parity", "as", "other", (char *)NULL);
        _exit(99);
    }
    close(pair[1]);
    for (int i = 0; i < ROUNDS; i++) {
        address_t own = where;
        socklen_t len = sizeof own;
        own.PORT = 0;
        int fd = socket(FAMILY, SOCK_STREAM, 0);
        bind(fd, (struct sockaddr *)&own, sizeof own);
        getsockname(fd, (struct sockaddr *)&own, &len);
        give(pair[0], fd);
        await(pair[0]);
        step(pair[0]);
        int result = listen(fd, 8);
        listened += result == 0;
        both += told(pair[0]) == 0;
        int first = connected(own), second = connected(own);
        int one = accept(fd, NULL, NULL);
        step(pair[0]);
        accepted_by_both += told(pair[0]) == 0 && one >= 0;
        close(one);
        close(first);
        close(second);
        close(fd);
    }
    say("listened: %d, the other: %d, accepted by both: %d", listened, both, accepted_by_both);
    close(pair[0]);
    waitpid(child, NULL, 0);
    close(before);
}
