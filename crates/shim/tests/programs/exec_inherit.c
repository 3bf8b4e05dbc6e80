/* Sockets that a program has from the one that executed it: connections, as standard input too, and listeners. */
#define PARITY_ROLE
#include "parity.h"
#include <spawn.h>

extern char **environ;

/* Where an executed program finds its socket. */
/* Above every number that the program gets by itself. */
enum { PLACE = 90 };

/* What the executed program prints goes where the result of its parent goes: it tells by its exit status. */
static int ends_well(pid_t child) {
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static void execute(const char *name) {
    execl("/proc/self/exe", "parity", "as", name, (char *)NULL);
    _exit(99);
}

/* A child that executes this program with `fd` at PLACE. */
static pid_t start(const char *name, int fd) {
    pid_t child = fork();
    if (child == 0) {
        dup2(fd, PLACE);
        execute(name);
    }
    return child;
}

static int echo(int from, int to) {
    char text[256];
    long count;
    while ((count = read(from, text, sizeof text)) > 0)
        if (write(to, text, (size_t)count) != count)
            return 2;
    return count < 0 ? 1 : 0;
}

/* How the socket looks that another program connected: 0 is as it should be. */
static int examine(int fd) {
    address_t name;
    socklen_t size = sizeof name;
    int wrong = 0, value = 0;
    wrong |= getpeername(fd, (struct sockaddr *)&name, &size) != 0 ? 1 : 0;
    size = sizeof name;
    wrong |= getsockname(fd, (struct sockaddr *)&name, &size) != 0 ? 2 : 0;
    size = sizeof value;
    wrong |= getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &value, &size) != 0 || value != 1 ? 4 : 0;
    struct timeval time = {0, 0};
    size = sizeof time;
    wrong |= getsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, &size) != 0 || time.tv_usec == 0 ? 8 : 0;
    char byte;
    wrong |= recv(fd, &byte, 1, 0) != -1 || errno != EAGAIN ? 16 : 0;
    wrong |= send(fd, "x", 1, MSG_NOSIGNAL) != -1 || errno != EPIPE ? 32 : 0;
    return wrong;
}

static int role(const char *name) {
    if (!strcmp(name, "echo"))
        return echo(PLACE, PLACE);
    if (!strcmp(name, "say"))
        return write(PLACE, "child", 5) == 5 ? 0 : 1;
    if (!strcmp(name, "examine"))
        return examine(PLACE);
    if (!strcmp(name, "accept")) {
        int fd = accept(PLACE, NULL, NULL);
        return fd < 0 ? 1 : echo(fd, fd);
    }
    if (!strcmp(name, "try")) {
        int flags = fcntl(PLACE, F_GETFL);
        int fd = accept(PLACE, NULL, NULL);
        return (fd < 0 && errno == EAGAIN ? 0 : 1) | (flags & O_NONBLOCK ? 0 : 2);
    }
    if (!strcmp(name, "wait")) {
        char byte;
        return read(STDIN_FILENO, &byte, 1) == 0 ? 0 : 1;
    }
    return 98;
}

/* A pipe whose writing end the caller has: a child reads the other as its standard input. */
static pid_t start_waiting(int *gate) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        exit(1);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[0], STDIN_FILENO);
        execute("wait");
    }
    close(ends[0]);
    *gate = ends[1];
    return child;
}

static void connections(int listener) {
    int fd = accepted(listener);
    pid_t child = start("echo", fd);
    close(fd);
    say("echo: %d", ends_well(child));

    /* Unread bytes wait for the executed program; the same process executes. */
    fd = accepted(listener);
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    poll(&entry, 1, -1);
    child = fork();
    if (child == 0) {
        close(listener);
        pid_t inner = fork();
        if (inner != 0)
            _exit(ends_well(inner));
        dup2(fd, PLACE);
        close(fd);
        execute("echo");
    }
    close(fd);
    say("unread: %d", ends_well(child));

    /* Both use it. */
    fd = accepted(listener);
    child = start("say", fd);
    say("child: %d", ends_well(child));
    result("parent sends", send(fd, "parent", 6, 0));
    close(fd);

    /* As inetd does. */
    fd = accepted(listener);
    child = fork();
    if (child == 0) {
        dup2(fd, 0);
        dup2(fd, 1);
        dup2(fd, 2);
        close(fd);
        execl("/bin/cat", "cat", (char *)NULL);
        _exit(99);
    }
    close(fd);
    say("cat: %d", ends_well(child));
}

static void options(int listener) {
    int fd = accepted(listener), on = 1;
    struct timeval time = {0, 20000};
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
    shutdown(fd, SHUT_WR);
    pid_t child = start("examine", fd);
    say("examined: %d", ends_well(child));
    close(fd);
    int other = accepted(listener);
    step(other);
    close(other);
}

static void ends(int listener) {
    /* The executed program does not have it: the last close is the parent's. */
    int gate, fd = accepted(listener);
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    pid_t child = start_waiting(&gate);
    await(fd);
    close(fd);
    int other = accepted(listener);
    await(other);
    close(gate);
    say("without: %d", ends_well(child));
    close(other);

    /* It has it, and does nothing with it: its end is the connection's. */
    fd = accepted(listener);
    child = start_waiting(&gate);
    await(fd);
    close(fd);
    other = accepted(listener);
    await(other);
    close(gate);
    say("with: %d", ends_well(child));
    close(other);
}

static void spawned(int listener) {
    int fd = accepted(listener);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, fd, PLACE);
    char *words[] = {"parity", "as", "echo", NULL};
    pid_t child;
    say("spawn: %d", posix_spawn(&child, "/proc/self/exe", &actions, NULL, words, environ));
    close(fd);
    say("spawned: %d", ends_well(child));
    posix_spawn_file_actions_destroy(&actions);

    fd = accepted(listener);
    child = vfork();
    if (child == 0) {
        dup2(fd, PLACE);
        execute("echo");
    }
    close(fd);
    say("after vfork: %d", ends_well(child));
}

static void listeners(int listener) {
    int control = accepted(listener);
    nonblocking(listener);
    pid_t child = start("try", listener);
    say("tried: %d", ends_well(child));
    fcntl(listener, F_SETFL, fcntl(listener, F_GETFL) & ~O_NONBLOCK);
    child = start("accept", listener);
    step(control);
    say("accepted: %d", ends_well(child));
    step(control);
    int fd = accepted(listener);
    result("still its own", send(fd, "own", 3, 0));
    close(fd);
    close(control);
}

static void server(int listener) {
    fflush(NULL);
    connections(listener);
    options(listener);
    ends(listener);
    spawned(listener);
    listeners(listener);
}

static void client(address_t peer) {
    char text[16] = {0};
    echoed("echo", peer);
    echoed("unread", peer);
    int fd = connected(peer);
    result("both wrote", recv(fd, text, 11, MSG_WAITALL));
    say("text %s", text);
    result("end", recv(fd, text, sizeof text, 0));
    close(fd);
    echoed("cat", peer);

    fd = connected(peer);
    result("half closed", recv(fd, text, sizeof text, 0));
    int other = connected(peer);
    await(other);
    close(other);
    close(fd);

    fd = connected(peer);
    step(fd);
    result("end without the other", recv(fd, text, sizeof text, 0));
    other = connected(peer);
    step(other);
    result("other", recv(other, text, sizeof text, 0));
    close(fd);
    close(other);

    fd = connected(peer);
    step(fd);
    other = connected(peer);
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    result("open while it is held", poll(&entry, 1, 50));
    step(other);
    result("end with the other", recv(fd, text, sizeof text, 0));
    result("other", recv(other, text, sizeof text, 0));
    close(fd);
    close(other);

    echoed("spawned", peer);
    echoed("after vfork", peer);
    int control = connected(peer);
    await(control);
    echoed("accepted", peer);
    await(control);
    fd = connected(peer);
    memset(text, 0, sizeof text);
    result("own", recv(fd, text, sizeof text, 0));
    close(fd);
    close(control);
}
