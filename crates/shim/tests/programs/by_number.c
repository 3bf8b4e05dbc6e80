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

/* The calls that wait for several descriptors; five bytes are on their way. */
static void waits(int fd) {
    struct timespec time = {30, 0};
    unsigned long nothing = 0;
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    result("ppoll", syscall(SYS_ppoll, &entry, 1, &time, &nothing, sizeof nothing));
    events("ppoll", (unsigned)entry.revents);
    entry.events = POLLIN | POLLOUT;
#ifdef SYS_poll
    result("poll", syscall(SYS_poll, &entry, 1, 0));
    events("poll", (unsigned)entry.revents);
    fd_set read_set, write_set;
    FD_ZERO(&read_set);
    FD_ZERO(&write_set);
    FD_SET(fd, &read_set);
    FD_SET(fd, &write_set);
    result("select", syscall(SYS_select, fd + 1, &read_set, &write_set, NULL, NULL));
    struct {
        const unsigned long *mask;
        size_t bytes;
    } mask = {&nothing, sizeof nothing};
    result("pselect6", syscall(SYS_pselect6, fd + 1, &read_set, NULL, NULL, NULL, &mask));
    say("readable %d", FD_ISSET(fd, &read_set) != 0);
#endif
    int set = (int)syscall(SYS_epoll_create1, EPOLL_CLOEXEC);
    worked("epoll_create1", set);
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = 77};
    result("epoll_ctl", syscall(SYS_epoll_ctl, set, EPOLL_CTL_ADD, fd, &event));
    memset(&event, 0, sizeof event);
    result("epoll_pwait", syscall(SYS_epoll_pwait, set, &event, 1, 30000, NULL, 0));
    say("told %d, %d", event.events == EPOLLIN, event.data.u64 == 77);
    result("a mask of another size", syscall(SYS_ppoll, &entry, 1, &time, &nothing, 3));
    close(set);
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
    waits(fd);
    result("back", recv(fd, text, 5, MSG_WAITALL));
    step(fd);
    close(fd);
}
