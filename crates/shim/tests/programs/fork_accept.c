/* A child accepts on its parent's listener and serves; parent and child hold one connection; so does one by clone(2). */
#include "parity.h"
#include <sys/syscall.h>

static void server(int listener) {
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        int fd = accept(listener, NULL, NULL);
        char byte = 0;
        long count = recv(fd, &byte, 1, 0);
        byte++;
        count += send(fd, &byte, 1, 0);
        close(fd);
        _exit((int)count);
    }
    int status = 0;
    waitpid(child, &status, 0);
    say("child says %d", WEXITSTATUS(status));
    int fd = accepted(listener);
    child = fork();
    if (child == 0) {
        close(listener);
        _exit(send(fd, "child", 5, 0) == 5 ? 0 : 1);
    }
    waitpid(child, &status, 0);
    say("child says %d", WEXITSTATUS(status));
    result("parent sends", send(fd, "parent", 6, 0));
    close(fd);

    fd = accepted(listener);
    child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (child == 0)
        _exit(send(fd, "clone", 5, 0) == 5 ? 0 : 1);
    waitpid(child, &status, 0);
    say("clone says %d", WEXITSTATUS(status));
    result("parent sends", send(fd, "parent", 6, 0));
    close(fd);
}

static void client(address_t peer) {
    int fd = connected(peer);
    char text[16] = {0};
    result("send", send(fd, "a", 1, 0));
    result("recv", recv(fd, text, sizeof text, 0));
    say("text %s", text);
    result("end", recv(fd, text, sizeof text, 0));
    close(fd);
    fd = connected(peer);
    memset(text, 0, sizeof text);
    result("both wrote", recv(fd, text, 11, MSG_WAITALL));
    say("text %s", text);
    result("end", recv(fd, text, sizeof text, 0));
    close(fd);
    fd = connected(peer);
    memset(text, 0, sizeof text);
    result("both wrote", recv(fd, text, 11, MSG_WAITALL));
    say("text %s", text);
    result("end", recv(fd, text, sizeof text, 0));
    close(fd);
}
