/* Urgent data: out of band, in line, the mark, what poll and ioctl say, and SIGURG. */
#include "parity.h"

static volatile sig_atomic_t signals;

static void on_urgent(int number) {
    (void)number;
    signals++;
}

/* The urgent byte alone; whether poll tells of it apart from the others is urgent_poll's affair. */
static void urgent_only(const char *what, int fd) {
    struct pollfd entry = {.fd = fd, .events = POLLPRI};
    poll(&entry, 1, 2000);
    say("%s:%s", what, entry.revents & POLLPRI ? " PRI" : "");
}

/* Once the urgent byte is there: what came before it may be seen before. */
static void pri(const char *what, int fd, int timeout_ms) {
    struct pollfd urgent = {.fd = fd, .events = POLLPRI}, entry = {.fd = fd, .events = POLLIN | POLLPRI};
    poll(&urgent, 1, timeout_ms);
    poll(&entry, 1, timeout_ms);
    say("%s:%s%s", what, entry.revents & POLLIN ? " IN" : "", entry.revents & POLLPRI ? " PRI" : "");
}

static int at_mark(int fd) {
    int mark = -1;
    ioctl(fd, SIOCATMARK, &mark);
    return mark;
}

static int queued(int fd) {
    int bytes = -1;
    ioctl(fd, FIONREAD, &bytes);
    return bytes;
}

static void take(const char *what, int fd, int flags) {
    char bytes[64] = "";
    long got = recv(fd, bytes, sizeof bytes - 1, flags | MSG_DONTWAIT);
    if (got < 0)
        say("%s: %s", what, error_name(errno));
    else
        say("%s: %ld \"%.*s\"", what, got, (int)got, bytes);
}

static void server(int listener) {
    int fd = accepted(listener), on = 1;
    result("nothing urgent", recv(fd, &on, 1, MSG_OOB));
    fcntl(fd, F_SETOWN, getpid());
    say("owner %d", fcntl(fd, F_GETOWN) == getpid());
    step(fd);
    pri("urgent", fd, 2000);
    pause_ms(50);
    say("signals %d", signals > 0);
    say("mark %d, queued %d", at_mark(fd), queued(fd));
    take("before the mark", fd, 0);
    say("mark %d, queued %d", at_mark(fd), queued(fd));
    take("peeked", fd, MSG_OOB | MSG_PEEK);
    take("out of band", fd, MSG_OOB);
    take("again", fd, MSG_OOB);
    pri("taken", fd, 0);
    say("mark %d", at_mark(fd));
    take("after the mark", fd, 0);
    say("mark %d", at_mark(fd));
    step(fd);

    /* Only the urgent byte: in line there is nothing to read. */
    urgent_only("one byte", fd);
    struct msghdr message = {0};
    char byte = 0;
    struct iovec place = {&byte, 1};
    message.msg_iov = &place;
    message.msg_iovlen = 1;
    result("recvmsg", recvmsg(fd, &message, MSG_OOB));
    say("byte %c, flags %d", byte, message.msg_flags == MSG_OOB);
    take("nothing in line", fd, 0);
    step(fd);

    result("in line", setsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &on, sizeof on));
    step(fd);
    pri("in line", fd, 2000);
    pause_ms(50);
    take("not out of band", fd, MSG_OOB);
    take("before the mark", fd, 0);
    say("mark %d", at_mark(fd));
    take("with the mark", fd, 0);
    step(fd);
    take("the end", fd, MSG_OOB);
    await(fd);
    close(fd);
}

static void client(address_t peer) {
    struct sigaction action = {.sa_handler = on_urgent, .sa_flags = SA_RESTART};
    sigaction(SIGURG, &action, NULL);
    int fd = connected(peer);
    await(fd);
    result("urgent", send(fd, "abcX", 4, MSG_OOB));
    result("plain", send(fd, "def", 3, 0));
    await(fd);
    result("one byte", send(fd, "Y", 1, MSG_OOB));
    await(fd);
    await(fd);
    result("urgent", send(fd, "ghZ", 3, MSG_OOB));
    result("plain", send(fd, "jk", 2, 0));
    await(fd);
    step(fd);
    close(fd);
}
