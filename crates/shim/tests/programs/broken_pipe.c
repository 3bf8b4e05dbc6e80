/* EPIPE with SIGPIPE, without it, and by each sending call. */
#include "parity.h"

static volatile sig_atomic_t pipes;

static void on_pipe(int signal) {
    (void)signal;
    pipes++;
}

static void server(int listener) {
    int fd = accepted(listener);
    char byte;
    result("end", recv(fd, &byte, 1, 0));
    pause_ms(100);
    close(fd);
}

static void client(address_t peer) {
    struct sigaction action = {.sa_handler = on_pipe};
    sigaction(SIGPIPE, &action, NULL);
    int fd = connected(peer), file = open("/proc/self/exe", O_RDONLY);
    struct iovec slice = {"xy", 2};
    struct msghdr message = {.msg_iov = &slice, .msg_iovlen = 1};
    result("shutdown", shutdown(fd, SHUT_WR));
    result("send", send(fd, "x", 1, 0));
    say("signals %d", (int)pipes);
    result("send, MSG_NOSIGNAL", send(fd, "x", 1, MSG_NOSIGNAL));
    say("signals %d", (int)pipes);
    result("write", write(fd, "x", 1));
    result("writev", writev(fd, &slice, 1));
    result("sendmsg", sendmsg(fd, &message, 0));
    result("sendfile", sendfile(fd, file, NULL, 10));
    say("signals %d", (int)pipes);
    int fresh = socket(FAMILY, SOCK_STREAM, 0);
    result("send, not connected", send(fresh, "x", 1, 0));
    say("signals %d", (int)pipes);
    result("recv, not connected", recv(fresh, (char[1]){0}, 1, 0));
    close(fresh);
    close(file);
    close(fd);
}
