/* syscall(2) through libc, and the calls with a position that a socket does not have. */
#include "parity.h"
#include <sys/syscall.h>

static void server(int listener) {
    struct sockaddr_storage from;
    socklen_t len = sizeof from;
    int fd = (int)syscall(SYS_accept4, listener, &from, &len, SOCK_CLOEXEC);
    worked("accept4", fd);
    say("name of %u bytes, cloexec %d", len, fcntl(fd, F_GETFD));
    char text[64];
    result("read", syscall(SYS_read, fd, text, 5));
    say("text %.5s", text);
    struct iovec parts[2] = {{text, 2}, {text + 2, 3}};
    result("readv", syscall(SYS_readv, fd, parts, 2));
    say("text %.5s", text);
    result("recvfrom", syscall(SYS_recvfrom, fd, text, 5, MSG_WAITALL, NULL, NULL));
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    result("recvmsg", syscall(SYS_recvmsg, fd, &message, MSG_WAITALL));
    say("text %.5s", text);
    result("write", syscall(SYS_write, fd, "answer", 6));
    result("shutdown", syscall(SYS_shutdown, fd, SHUT_WR));
    result("end", syscall(SYS_read, fd, text, 1));
    result("close", syscall(SYS_close, fd));
    result("closed", syscall(SYS_close, fd));

    fd = accepted(listener);
    result("preadv2", preadv2(fd, parts, 2, -1, 0));
    say("text %.5s", text);
    result("no more", preadv2(fd, parts, 2, -1, RWF_NOWAIT));
    result("a place", preadv2(fd, parts, 2, 3, 0));
    result("a wrong place", preadv2(fd, parts, 2, -2, 0));
    result("a strange flag", preadv2(fd, parts, 2, -1, 1 << 20));
    result("pwritev2", pwritev2(fd, parts, 2, -1, 0));
    result("write at a place", pwritev2(fd, parts, 2, 0, 0));
    result("pread", pread(fd, text, 1, 0));
    result("pwrite", pwrite(fd, text, 1, 0));
    await(fd);
    close(fd);
}

static void client(address_t peer) {
    int fd = socket(FAMILY, SOCK_STREAM, 0), value = -1;
    socklen_t len = sizeof value;
    result("connect", syscall(SYS_connect, fd, &peer, sizeof peer));
    result("error", syscall(SYS_getsockopt, fd, SOL_SOCKET, SO_ERROR, &value, &len));
    say("value %d", value);
    value = 1;
    result("option", syscall(SYS_setsockopt, fd, IPPROTO_TCP, TCP_NODELAY, &value, sizeof value));
    address_t name;
    len = sizeof name;
    result("getpeername", syscall(SYS_getpeername, fd, &name, &len));
    say("same port %d", name.PORT == peer.PORT);
    result("getsockname", syscall(SYS_getsockname, fd, &name, &len));
    struct iovec parts[2] = {{"fi", 2}, {"ver", 3}};
    result("writev", syscall(SYS_writev, fd, parts, 2));
    result("sendto", syscall(SYS_sendto, fd, "seven", 5, MSG_NOSIGNAL, NULL, 0));
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    result("sendmsg", syscall(SYS_sendmsg, fd, &message, 0));
    result("write", syscall(SYS_write, fd, "eight", 5));
    char text[64];
    result("recv", recv(fd, text, 6, MSG_WAITALL));
    int copy = (int)syscall(SYS_dup, fd);
    worked("dup", copy);
    result("close", syscall(SYS_close, fd));
    result("end", syscall(SYS_read, copy, text, 1));
    close(copy);

    fd = connected(peer);
    result("five", send(fd, "abcde", 5, 0));
    result("back", recv(fd, text, 5, MSG_WAITALL));
    step(fd);
    close(fd);
}
