/* A socket that was bound by another process, or by another number, connects from there. */
#include "parity.h"

static int port_of(int fd) {
    address_t name;
    socklen_t len = sizeof name;
    memset(&name, 0, sizeof name);
    getsockname(fd, (struct sockaddr *)&name, &len);
    return ntohs(name.PORT);
}

static void bind_any(int fd) {
    address_t any;
    memset(&any, 0, sizeof any);
    any.KIND = FAMILY;
    if (bind(fd, (struct sockaddr *)&any, sizeof any) != 0)
        _exit(1);
}

/* Whether the port is the one that the socket was bound to. */
static void connect_from(const char *what, int fd, address_t peer) {
    int port = port_of(fd);
    say("%s: has a port %d", what, port != 0);
    result("connect", connect(fd, (struct sockaddr *)&peer, sizeof peer));
    say("%s: the same port %d", what, port_of(fd) == port);
    char byte;
    result("recv", recv(fd, &byte, 1, 0));
    close(fd);
}

static void server(int listener) {
    for (int i = 0; i < 3; i++) {
        int fd = accepted(listener);
        result("send", send(fd, "a", 1, 0));
        char byte;
        result("end", recv(fd, &byte, 1, 0));
        close(fd);
    }
}

static void client(address_t peer) {
    int fd = socket(FAMILY, SOCK_STREAM, 0), twin = dup(fd);
    bind_any(twin);
    close(twin);
    connect_from("twin", fd, peer);

    fd = socket(FAMILY, SOCK_STREAM, 0);
    int pair[2];
    socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair);
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control;
    char text = 'x';
    struct iovec part = {&text, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &fd, sizeof fd);
    result("sendmsg", sendmsg(pair[0], &message, 0));
    result("recvmsg", recvmsg(pair[1], &message, 0));
    memcpy(&twin, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof twin);
    bind_any(twin);
    close(twin);
    close(pair[0]);
    close(pair[1]);
    connect_from("message", fd, peer);

    fd = socket(FAMILY, SOCK_STREAM, 0);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        bind_any(fd);
        _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    connect_from("child", fd, peer);
}
