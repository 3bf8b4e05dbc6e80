/* Functions of libc that put another file at a number of a connection: freopen(3), login_tty(3), daemon(3). What is written there
 * afterwards is not the connection's any more. And posix_spawn(3), which gives a child its numbers in the parent's memory. */
#include "parity.h"
#include <pty.h>
#include <spawn.h>
#include <utmp.h>

static void server(int listener) {
    for (int round = 0; round < 4; round++) {
        int fd = accepted(listener);
        char text[64];
        size_t len = 0;
        for (ssize_t got; len < sizeof text - 1 && (got = recv(fd, text + len, sizeof text - 1 - len, 0)) > 0;)
            len += (size_t)got;
        text[len] = 0;
        say("round %d: %s", round, text);
        close(fd);
    }
}

/* Three numbers of a child as inetd(8) and its kin leave them. */
static void as_standard(int fd) {
    for (int number = 0; number < 3; number++)
        if (dup2(fd, number) < 0)
            _exit(9);
    close(fd);
}

static void ended(const char *what, pid_t child) {
    int status = -1;
    waitpid(child, &status, 0);
    say("%s: %d", what, WIFEXITED(status) ? WEXITSTATUS(status) : -1);
}

/* What somebody has said at the other end. */
static void heard(int from) {
    char text[32] = {0};
    ssize_t len = 0, more;
    /* A terminal may give a line in parts. */
    do {
        more = read(from, text + len, sizeof text - 1 - len);
        len += more > 0 ? more : 0;
    } while (more > 0 && !strchr(text, '\n'));
    say("%zd bytes: %s", len, text);
}

static pid_t forked(void) {
    fflush(stdout);
    return fork();
}

static void reopened(address_t peer) {
    int fd = connected(peer), tube[2];
    if (pipe(tube) < 0)
        exit(1);
    pid_t child = forked();
    if (!child) {
        char path[32];
        as_standard(fd);
        printf("peer\n");
        fflush(stdout);
        snprintf(path, sizeof path, "/proc/self/fd/%d", tube[1]);
        if (!freopen(path, "w", stdout))
            _exit(1);
        printf("file\n");
        fflush(stdout);
        _exit(write(1, "same\n", 5) == 5 ? 0 : 2);
    }
    close(fd);
    close(tube[1]);
    ended("freopen", child);
    heard(tube[0]);
    close(tube[0]);
}

static void logged_in(address_t peer) {
    int fd = connected(peer), master, slave;
    if (openpty(&master, &slave, NULL, NULL, NULL) < 0)
        exit(1);
    pid_t child = forked();
    if (!child) {
        as_standard(fd);
        if (write(1, "peer\n", 5) != 5 || login_tty(slave) < 0)
            _exit(1);
        printf("terminal\n");
        fflush(stdout);
        _exit(isatty(0) && isatty(1) ? 0 : 2);
    }
    close(fd);
    heard(master);
    ended("login_tty", child);
    close(master);
    close(slave);
}

static void in_background(address_t peer) {
    int fd = connected(peer), tube[2];
    if (pipe(tube) < 0)
        exit(1);
    pid_t child = forked();
    if (!child) {
        as_standard(fd);
        if (write(1, "peer\n", 5) != 5 || daemon(1, 0) < 0)
            _exit(1);
        char byte;
        int is_quiet = write(1, "lost\n", 5) == 5 && read(0, &byte, 1) == 0;
        _exit(write(tube[1], is_quiet ? "y" : "n", 1) == 1 ? 0 : 2);
    }
    close(fd);
    close(tube[1]);
    ended("daemon", child);
    char answer = '?';
    result("its child", read(tube[0], &answer, 1));
    say("is quiet: %c", answer);
    close(tube[0]);
}

static void spawned(address_t peer) {
    int fd = connected(peer), file = open("/dev/null", O_WRONLY);
    char *line[] = {"true", NULL};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    /* In the child alone: the number stays the connection's here. */
    posix_spawn_file_actions_adddup2(&actions, file, fd);
    posix_spawn_file_actions_adddup2(&actions, fd, 1);
    pid_t child;
    extern char **environ;
    result("posix_spawn", posix_spawnp(&child, "true", &actions, NULL, line, environ));
    ended("its child", child);
    result("peer", send(fd, "peer\n", 5, 0));
    say("standard output");
    posix_spawn_file_actions_destroy(&actions);
    close(file);
    close(fd);
}

static void client(address_t peer) {
    reopened(peer);
    logged_in(peer);
    in_background(peer);
    spawned(peer);
}
