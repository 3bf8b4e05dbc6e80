/* Memory that is not there: EFAULT, and the call has done what it has done. */
#include "parity.h"
#include <sys/mman.h>

static void *bad[3];
static const char *const kinds[] = {"none", "the kernel's", "a closed page"};

/* Names and options. */
static void cold(int fd, int listener, address_t peer) {
    socklen_t len = sizeof(address_t);
    int value = 1;
    for (int i = 0; i < 3; i++) {
        say("-- %s", kinds[i]);
        result("getsockname", getsockname(fd, bad[i], &len));
        result("its length", getsockname(fd, (struct sockaddr *)&peer, bad[i]));
        result("getpeername", getpeername(fd, bad[i], &len));
        result("its length", getpeername(fd, (struct sockaddr *)&peer, bad[i]));
        result("setsockopt", setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, bad[i], sizeof value));
        result("another", setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, bad[i], sizeof(struct timeval)));
        result("getsockopt", getsockopt(fd, SOL_SOCKET, SO_ERROR, bad[i], &len));
        result("its length", getsockopt(fd, SOL_SOCKET, SO_ERROR, &value, bad[i]));
        len = sizeof(struct tcp_info);
        result("another", getsockopt(fd, IPPROTO_TCP, TCP_INFO, bad[i], &len));
        len = sizeof(address_t);
        int fresh = socket(FAMILY, SOCK_STREAM, 0);
        result("bind", bind(fresh, bad[i], sizeof peer));
        result("connect", connect(fresh, bad[i], sizeof peer));
        result("connect a connection", connect(fd, bad[i], sizeof peer));
        result("connect a listener", connect(listener, bad[i], sizeof peer));
        close(fresh);
    }
    result("bind too long", bind(listener, (struct sockaddr *)&peer, 4096));
    result("connect too long", connect(listener, (struct sockaddr *)&peer, 4096));
    result("a long name", connect(listener, (struct sockaddr *)&peer, -1));
}

/* Numbers that are no descriptors. */
static void nowhere(address_t peer) {
    socklen_t len = sizeof(address_t);
    int numbers[] = {-1, -100, -2147483647 - 1, 1 << 30}, value = 1;
    for (int i = 0; i < 4; i++) {
        int fd = numbers[i];
        say("-- %d", fd);
        result("shutdown", shutdown(fd, SHUT_WR));
        result("bind", bind(fd, (struct sockaddr *)&peer, sizeof peer));
        result("listen", listen(fd, 1));
        result("accept", accept(fd, NULL, NULL));
        result("connect", connect(fd, (struct sockaddr *)&peer, sizeof peer));
        result("getsockname", getsockname(fd, (struct sockaddr *)&peer, &len));
        result("getpeername", getpeername(fd, (struct sockaddr *)&peer, &len));
        result("setsockopt", setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &value, sizeof value));
        result("getsockopt", getsockopt(fd, SOL_SOCKET, SO_ERROR, &value, &(socklen_t){sizeof value}));
        result("ioctl", ioctl(fd, FIONREAD, &value));
        result("sendto", sendto(fd, &value, 4, MSG_NOSIGNAL, (struct sockaddr *)&peer, sizeof peer));
        result("recvfrom", recvfrom(fd, &value, 4, 0, (struct sockaddr *)&peer, &len));
        result("recvmsg", recvmsg(fd, &(struct msghdr){0}, 0));
        result("sendmsg", sendmsg(fd, &(struct msghdr){0}, MSG_NOSIGNAL));
    }
}

/* Data that is there, and none. The page of which nothing is known but that it is closed is not asked for. */
static void hot(int fd) {
    for (int i = 0; i < 2; i++) {
        say("-- %s", kinds[i]);
        char text[4] = {0};
        result("read", read(fd, bad[i], 4));
        result("recv", recv(fd, bad[i], 4, 0));
        result("peek", recv(fd, bad[i], 4, MSG_PEEK));
        result("recvfrom", recvfrom(fd, bad[i], 4, 0, NULL, NULL));
        result("nothing of it", read(fd, bad[i], 0));
        result("write", write(fd, bad[i], 4));
        result("send", send(fd, bad[i], 4, MSG_NOSIGNAL));
        result("sendto", sendto(fd, bad[i], 4, MSG_NOSIGNAL, NULL, 0));
        result("nothing of it", send(fd, bad[i], 0, 0));
        result("what was there", recv(fd, text, 1, 0));
        say("text %s", text);
    }
    for (int i = 0; i < 2; i++) {
        say("-- %s", kinds[i]);
        struct iovec part = {bad[i], 4};
        struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
        result("readv", readv(fd, &part, 1));
        result("its array", readv(fd, bad[i], 1));
        result("writev", writev(fd, &part, 1));
        result("its array", writev(fd, bad[i], 1));
        result("recvmsg", recvmsg(fd, &message, 0));
        result("sendmsg", sendmsg(fd, &message, 0));
        message.msg_iov = bad[i];
        result("recvmsg, its array", recvmsg(fd, &message, 0));
        result("sendmsg, its array", sendmsg(fd, &message, 0));
        result("its message", recvmsg(fd, bad[i], 0));
        result("its message", sendmsg(fd, bad[i], 0));
        result("poll", poll(bad[i], 1, 0));
        int set = epoll_create1(EPOLL_CLOEXEC);
        result("epoll_ctl", epoll_ctl(set, EPOLL_CTL_ADD, fd, bad[i]));
        close(set);
    }
    char byte;
    result("the rest", recv(fd, (char[2]){0}, 2, 0));
    result("not waiting", recv(fd, bad[0], 1, MSG_DONTWAIT));
    result("not there", recv(fd, &byte, 1, MSG_DONTWAIT));
    step(fd);
    await(fd);
    pause_ms(1);
    result("end", read(fd, bad[0], 1));
    result("end", recv(fd, bad[0], 1, 0));
}

static void server(int listener) {
    int control = accepted(listener);
    step(control);
    for (int i = 0; i < 3; i++) {
        address_t from;
        socklen_t len = sizeof from;
        worked("accept", accept(listener, bad[i], &len));
        worked("its length", accept(listener, (struct sockaddr *)&from, bad[i]));
    }
    step(control);
    int fd = accepted(listener);
    result("send", send(fd, "abcd", 4, 0));
    await(fd);
    step(fd);
    shutdown(fd, SHUT_WR);
    char text[16];
    result("end", recv(fd, text, sizeof text, 0));
    close(fd);
    close(control);
}

static void client(address_t peer) {
    bad[1] = (void *)-64L;
    bad[2] = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    /* In turn: an engine of several cores accepts what came together core by core. */
    int control = connected(peer);
    await(control);
    for (int i = 0; i < 6; i++)
        close(connected(peer));
    await(control);
    int fd = connected(peer), listener = socket(FAMILY, SOCK_STREAM, 0);
    address_t any = peer;
    any.PORT = 0;
    result("bind", bind(listener, (struct sockaddr *)&any, sizeof any));
    result("listen", listen(listener, 1));
    cold(fd, listener, peer);
    nowhere(peer);
    char byte;
    result("arrived", recv(fd, &byte, 1, MSG_PEEK));
    while (recv(fd, (char[4]){0}, 4, MSG_PEEK) < 4)
        pause_ms(1);
    hot(fd);
    close(listener);
    close(fd);
    close(control);
}
