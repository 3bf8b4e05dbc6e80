/* Sockets that one process passes to another in a message (SCM_RIGHTS): connections, listeners, one that is only bound. */
#include "parity.h"
#include <sys/un.h>

static void send_fd(int channel, int fd) {
    char byte = 'f';
    struct iovec part = {&byte, 1};
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(sizeof(int))];
    } control;
    memset(&control, 0, sizeof control);
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &fd, sizeof fd);
    if (sendmsg(channel, &message, 0) != 1)
        exit(3);
}

static int take_fd(int channel) {
    char byte;
    struct iovec part = {&byte, 1};
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(sizeof(int))];
    } control;
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    if (recvmsg(channel, &message, 0) != 1)
        _exit(4);
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    int fd = -1;
    if (header && header->cmsg_type == SCM_RIGHTS)
        memcpy(&fd, CMSG_DATA(header), sizeof fd);
    return fd;
}

static int echo(int fd) {
    char text[64];
    long count;
    while ((count = recv(fd, text, sizeof text, 0)) > 0)
        if (send(fd, text, (size_t)count, MSG_NOSIGNAL) != count)
            return 2;
    return count < 0 ? 1 : 0;
}

static int receiver(int channel, address_t bound) {
    /* A connection of which this is the only holder. */
    int fd = take_fd(channel);
    int wrong = echo(fd);
    close(fd);

    /* One that the sender goes on with. */
    fd = take_fd(channel);
    wrong |= send(fd, "receiver", 8, 0) != 8 ? 4 : 0;
    close(fd);
    step(channel);

    /* One that arrives late, and is not taken before its sender has closed it. */
    await(channel);
    fd = take_fd(channel);
    wrong |= echo(fd);
    close(fd);

    /* A listener. */
    fd = take_fd(channel);
    int one = accept(fd, NULL, NULL);
    close(fd);
    wrong |= one < 0 ? 8 : echo(one);
    close(one);

    /* A bound socket, that listens here. */
    fd = take_fd(channel);
    wrong |= listen(fd, 4) != 0 ? 16 : 0;
    step(channel);
    one = accept(fd, NULL, NULL);
    wrong |= one < 0 ? 32 : echo(one);
    close(one);
    close(fd);
    (void)bound;

    /* One that nobody takes: its end comes with this process. */
    await(channel);
    return wrong;
}

static void send_away(int channel, int listener) {
    int fd = accepted(listener);
    send_fd(channel, fd);
    close(fd);
}

static void server(int listener) {
    fflush(NULL);
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) < 0)
        exit(1);
    address_t bound;
    socklen_t size = sizeof bound;
    getsockname(listener, (struct sockaddr *)&bound, &size);
    pid_t child = fork();
    if (child == 0) {
        close(listener);
        close(ends[0]);
        _exit(receiver(ends[1], bound));
    }
    close(ends[1]);
    int channel = ends[0];

    send_away(channel, listener);

    int fd = accepted(listener);
    send_fd(channel, fd);
    await(channel);
    result("sender sends", send(fd, "sender", 6, 0));
    close(fd);

    fd = accepted(listener);
    step(channel);
    send_fd(channel, fd);
    close(fd);

    /* To itself: the same socket under another number. */
    int own[2];
    socketpair(AF_UNIX, SOCK_STREAM, 0, own);
    fd = accepted(listener);
    send_fd(own[0], fd);
    int same = take_fd(own[1]);
    result("by the first number", send(fd, "a", 1, 0));
    result("by the other", send(same, "b", 1, 0));
    close(fd);
    result("by the one that is left", send(same, "c", 1, 0));
    close(same);

    /* Closed while it is in the message: only who takes it ends it. The next one connects when this one is accepted. */
    fd = accepted(listener);
    step(fd);
    send_fd(own[0], fd);
    close(fd);
    int other = accepted(listener);
    await(other);
    same = take_fd(own[1]);
    result("after its time in a message", send(same, "d", 1, 0));
    close(same);
    close(other);

    /* Closed with the message that nobody has taken. */
    fd = accepted(listener);
    send_fd(own[0], fd);
    close(fd);
    close(own[0]);
    close(own[1]);

    int control = accepted(listener);
    send_fd(channel, listener);
    step(control);
    await(control);

    fd = socket(FAMILY, SOCK_STREAM, 0);
    bound.PORT = 0;
    result("bind", bind(fd, (struct sockaddr *)&bound, size));
    getsockname(fd, (struct sockaddr *)&bound, &size);
    send_fd(channel, fd);
    close(fd);
    await(channel);
    send(control, &bound.PORT, sizeof bound.PORT, 0);
    await(control);
    close(control);

    step(channel);
    int status;
    waitpid(child, &status, 0);
    say("receiver: %d", WEXITSTATUS(status));
}

static void client(address_t peer) {
    char text[32] = {0};
    echoed("passed", peer);
    int fd = connected(peer);
    result("both wrote", recv(fd, text, 14, MSG_WAITALL));
    say("text %s", text);
    result("end", recv(fd, text, sizeof text, 0));
    close(fd);
    echoed("late", peer);

    fd = connected(peer);
    memset(text, 0, sizeof text);
    result("to itself", recv(fd, text, 3, MSG_WAITALL));
    say("text %s", text);
    result("end", recv(fd, text, sizeof text, 0));
    close(fd);

    fd = connected(peer);
    await(fd);
    int other = connected(peer);
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    result("open in the message", poll(&entry, 1, 50));
    step(other);
    memset(text, 0, sizeof text);
    result("taken", recv(fd, text, 1, 0));
    result("end", recv(fd, text, sizeof text, 0));
    result("other", recv(other, text, sizeof text, 0));
    close(fd);
    close(other);

    fd = connected(peer);
    result("never taken", recv(fd, text, sizeof text, 0));
    close(fd);

    int control = connected(peer);
    await(control);
    echoed("accepted by the other", peer);
    step(control);
    recv(control, &peer.PORT, sizeof peer.PORT, MSG_WAITALL);
    echoed("listens there", peer);
    step(control);
    close(control);
}
