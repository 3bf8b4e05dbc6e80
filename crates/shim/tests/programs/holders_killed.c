/* Connections whose holders are killed: programs that have them over exec or from a message, and a message under way. */
#define PARITY_ROLE
#include "parity.h"
#include "rights.h"

/* Where an executed program finds its socket, or the one by which it gets it. */
/* Above every number that the program gets by itself. */
enum { PLACE = 90 };

static void for_ever(void) {
    for (;;)
        pause();
}

static int role(const char *name) {
    int fd = PLACE;
    if (!strcmp(name, "take"))
        fd = taken(PLACE);
    /* Known to be used here. */
    if (strcmp(name, "idle") && write(fd, ".", 1) != 1)
        return 1;
    char byte;
    if (!strcmp(name, "echo"))
        while (read(fd, &byte, 1) == 1 && write(fd, &byte, 1) == 1) {
        }
    for_ever();
    return 0;
}

/* A child that executes this program with `fd` at PLACE. */
static pid_t start(const char *name, int fd) {
    pid_t child = fork();
    if (child == 0) {
        dup2(fd, PLACE);
        execl("/proc/self/exe", "parity", "as", name, (char *)NULL);
        _exit(99);
    }
    return child;
}

static void killed(pid_t child) {
    int status = 0;
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    say("killed: %d", WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

/* `control` says when the client has seen what it was to see. */
static void server(int listener) {
    int control = accepted(listener);
    step(control);

    int fd = accepted(listener);
    pid_t child = start("hold", fd);
    await(control);
    close(fd);
    killed(child);
    await(control);

    fd = accepted(listener);
    child = start("hold", fd);
    await(control);
    pid_t other = start("echo", fd);
    await(control);
    close(fd);
    killed(child);
    step(control);
    await(control);
    killed(other);
    await(control);

    int pair[2];
    socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair);
    fd = accepted(listener);
    child = start("take", pair[1]);
    give(pair[0], fd);
    close(fd);
    await(control);
    killed(child);
    await(control);

    /* Nobody takes it: the message dies with the last end of the pair. */
    fd = accepted(listener);
    child = start("idle", pair[1]);
    close(pair[1]);
    give(pair[0], fd);
    close(fd);
    step(control);
    await(control);
    close(pair[0]);
    killed(child);
    await(control);
    close(control);
}

/* The holder is there: it has sent a byte. */
static int held(address_t peer, int control) {
    int fd = connected(peer);
    await(fd);
    step(control);
    return fd;
}

static void ends(const char *what, int fd, int control) {
    char byte;
    result(what, recv(fd, &byte, 1, 0));
    close(fd);
    step(control);
}

static void client(address_t peer) {
    char byte;
    int control = connected(peer);
    /* Of two that wait an engine of two cores may give out either first. */
    await(control);
    ends("the program that had it is killed", held(peer, control), control);

    int fd = held(peer, control);
    await(fd);
    step(control);
    await(control);
    result("to the other", send(fd, "x", 1, 0));
    result("back", recv(fd, &byte, 1, 0));
    say("byte %c", byte);
    step(control);
    ends("the other is killed too", fd, control);

    ends("who had it from a message is killed", held(peer, control), control);

    fd = connected(peer);
    await(control);
    result("nothing", recv(fd, &byte, 1, MSG_DONTWAIT));
    step(control);
    ends("the message is gone", fd, control);
    close(control);
}
