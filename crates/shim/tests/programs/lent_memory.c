/* A child that runs in its parent's memory has descriptors of its own: what it closes, or puts something else in the place of, its
 * parent still has. vfork(2), clone(2) with CLONE_VM, posix_spawn(3). */
#include "parity.h"
#include <sched.h>
#include <spawn.h>

extern char **environ;

static int ends_well(pid_t child) {
    int status = -1;
    waitpid(child, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static int lose(void *place) {
    int fd = *(int *)place;
    return dup2(0, fd) == fd && close(fd) == 0 ? 0 : 1;
}

static pid_t by_vfork(int fd) {
    pid_t child = vfork();
    if (child == 0)
        _exit(lose(&fd));
    return child;
}

static pid_t by_clone(int fd) {
    static char stack[64 << 10] __attribute__((aligned(16)));
    static int place;
    place = fd;
    return clone(lose, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, &place);
}

static pid_t by_spawn(int fd) {
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addclose(&actions, fd);
    char *words[] = {"true", NULL};
    pid_t child = -1;
    posix_spawnp(&child, "true", &actions, NULL, words, environ);
    posix_spawn_file_actions_destroy(&actions);
    return child;
}

/* In a process that has had no such child. */
static void one(const char *what, pid_t way(int), address_t peer) {
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        int fd = connected(peer);
        int ended = ends_well(way(fd));
        char byte = 0;
        long sent = send(fd, "a", 1, 0), received = recv(fd, &byte, 1, 0);
        close(fd);
        _exit(ended && sent == 1 && received == 1 && byte == 'b' ? 0 : 1);
    }
    say("%s: %d", what, ends_well(child));
}

static void server(int listener) {
    for (int i = 0; i < 3; i++) {
        int fd = accepted(listener);
        char byte = 0;
        result("recv", recv(fd, &byte, 1, 0));
        result("send", send(fd, "b", 1, 0));
        result("end", recv(fd, &byte, 1, 0));
        close(fd);
    }
}

static void client(address_t peer) {
    one("vfork", by_vfork, peer);
    one("clone", by_clone, peer);
    one("posix_spawn", by_spawn, peer);
}
