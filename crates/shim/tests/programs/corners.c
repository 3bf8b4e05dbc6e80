/* What Linux says in the corners of the calls: options that come too late, messages that are none, connections that the
   program undoes, and a descriptor that another thread closes. */
#include "parity.h"
#include "asleep.h"
#include <linux/net_tstamp.h>

static void option(const char *what, int fd, int level, int name, int value) {
    result(what, setsockopt(fd, level, name, &value, sizeof value));
}

/* Options that are a closed socket's, or a listener's too. */
static void late(const char *what, int fd) {
    say("%s", what);
    option("TCP_FASTOPEN", fd, IPPROTO_TCP, TCP_FASTOPEN, 0);
    option("TCP_FASTOPEN_CONNECT", fd, IPPROTO_TCP, TCP_FASTOPEN_CONNECT, 0);
    option("TCP_FASTOPEN_NO_COOKIE", fd, IPPROTO_TCP, 34, 0);
    option("TCP_QUEUE_SEQ", fd, IPPROTO_TCP, TCP_QUEUE_SEQ, 0);
#ifdef PARITY_V6
    option("IPV6_V6ONLY", fd, IPPROTO_IPV6, IPV6_V6ONLY, 0);
    struct ip6_mtuinfo mtu = {0};
    socklen_t size = sizeof mtu;
    worked("IPV6_PATHMTU", getsockopt(fd, IPPROTO_IPV6, IPV6_PATHMTU, &mtu, &size));
    say("%d bytes", (int)size);
    size = 8;
    worked("IPV6_PATHMTU, short", getsockopt(fd, IPPROTO_IPV6, IPV6_PATHMTU, &mtu, &size));
#endif
    int value = -1;
    socklen_t len = sizeof value;
    worked("IP_MTU", getsockopt(fd, IPPROTO_IP, IP_MTU, &value, &len));
    say("is some: %d", value > 1000);
    worked("IPV6_MTU", getsockopt(fd, IPPROTO_IPV6, IPV6_MTU, &value, &len));
    worked("TCP_WINDOW_CLAMP", getsockopt(fd, IPPROTO_TCP, TCP_WINDOW_CLAMP, &value, &len));
    say("is some: %d", value > 1000);
}

/* Control messages of the socket's own level are looked at; others pass. */
static void messages(int fd) {
    static const struct {
        int level, type, value;
    } KINDS[] = {
        {SOL_SOCKET, SO_PRIORITY, 3}, {SOL_SOCKET, SO_MARK, 3}, {SOL_SOCKET, SO_TIMESTAMPING, SOF_TIMESTAMPING_TX_SOFTWARE},
        {SOL_SOCKET, SO_TIMESTAMPING, SOF_TIMESTAMPING_RX_SOFTWARE}, {SOL_SOCKET, SO_TIMESTAMP, 1}, {SOL_SOCKET, 99, 1},
        {IPPROTO_IP, IP_TOS, 8}, {IPPROTO_IP, IP_TTL, 8}, {IPPROTO_IPV6, IPV6_TCLASS, 8}, {IPPROTO_TCP, 1, 1}, {99, 1, 1},
    };
    char text[4] = "ab", control[64];
    struct iovec part = {text, 2};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control};
    struct cmsghdr *one = (struct cmsghdr *)control;
    for (unsigned i = 0; i < sizeof KINDS / sizeof *KINDS; i++) {
        for (int len = 16; len <= 20; len += 2) {
            memset(control, 0, sizeof control);
            *one = (struct cmsghdr){.cmsg_len = (size_t)len, .cmsg_level = KINDS[i].level, .cmsg_type = KINDS[i].type};
            memcpy(CMSG_DATA(one), &KINDS[i].value, sizeof(int));
            message.msg_controllen = 24;
            say("level %d, type %d, length %d", KINDS[i].level, KINDS[i].type, len);
            result("sendmsg", sendmsg(fd, &message, 0));
        }
    }
    for (size_t len = 8; len <= 40; len += 8) {
        *one = (struct cmsghdr){.cmsg_len = len, .cmsg_level = 99, .cmsg_type = 1};
        message.msg_controllen = 32;
        result("length", sendmsg(fd, &message, 0));
    }
    message.msg_controllen = 0;
    message.msg_name = text;
    message.msg_namelen = (socklen_t)-1;
    result("a name", sendmsg(fd, &message, 0));
    result("sendto", sendto(fd, text, 1, 0, (struct sockaddr *)text, (socklen_t)-1));
    result("sendto", sendto(fd, text, 1, 0, (struct sockaddr *)text, 200));
    message.msg_name = NULL;
    message.msg_iovlen = 1025;
    result("too many parts", sendmsg(fd, &message, 0));
    message.msg_iovlen = 1;
    part.iov_len = (size_t)-1;
    result("too long a part", sendmsg(fd, &message, 0));
    result("writev", writev(fd, &part, 1));
    result("recvmsg", recvmsg(fd, &message, MSG_DONTWAIT));
}

static int blocked;

static void *receives(void *what) {
    char byte;
    about_to_sleep();
    result(what, recv(blocked, &byte, 1, 0));
    return NULL;
}

/* A call that sleeps on a socket goes on when another thread closes the descriptor. */
static void closed_meanwhile(address_t peer) {
    struct timeval time = {0, 300000};
    char *last[] = {"nothing came", "something came"};
    for (int i = 0; i < 2; i++) {
        blocked = connected(peer);
        setsockopt(blocked, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
        pthread_t thread;
        /* The thread's lines are this half's. */
        FILE *own = out;
        out = NULL;
        pthread_create(&thread, NULL, receives, last[i]);
        await_sleep();
        if (i == 1)
            step(blocked);
        close(blocked);
        pthread_join(thread, NULL);
        out = own;
        time.tv_sec = 10;
    }
}

static int others[16], many;

/* A connection that nobody takes: the listener's queue is full, perhaps on each of several cores. */
static int connecting(address_t full) {
    for (;;) {
        int fd = socket(FAMILY, SOCK_STREAM | SOCK_NONBLOCK, 0);
        int began = connect(fd, (struct sockaddr *)&full, sizeof full);
        struct pollfd entry = {.fd = fd, .events = POLLOUT};
        if (poll(&entry, 1, 100) == 0 || many == 16) {
            say("nobody takes it: %d", began);
            return fd;
        }
        others[many++] = fd;
    }
}

static void undone(address_t peer) {
    struct sockaddr none = {.sa_family = AF_UNSPEC};
    char byte;
    int fd = connected(peer);
    result("disconnect", connect(fd, &none, sizeof none));
    poll_now("then", fd, 0);
    result("send", send(fd, "x", 1, MSG_NOSIGNAL));
    result("send", send(fd, "x", 1, MSG_NOSIGNAL));
    result("recv", recv(fd, &byte, 1, 0));
    poll_now("then", fd, 0);
    result("connect", connect(fd, (struct sockaddr *)&peer, sizeof peer));
    result("send", send(fd, "x", 1, 0));
    close(fd);

    int listener = socket(FAMILY, SOCK_STREAM, 0);
    address_t own = peer;
    socklen_t len = sizeof own;
    own.PORT = 0;
    bind(listener, (struct sockaddr *)&own, sizeof own);
    listen(listener, 0);
    getsockname(listener, (struct sockaddr *)&own, &len);
    int first = connected(own);
    for (int how = SHUT_RD; how <= SHUT_RDWR; how++) {
        fd = connecting(own);
        result("shutdown", shutdown(fd, how));
        poll_now("then", fd, 0);
        say("SO_ERROR %s", error_name(socket_error(fd)));
        result("recv", recv(fd, &byte, 1, 0));
        close(fd);
    }
    close(first);
    while (many > 0)
        close(others[--many]);
    result("a listener is disconnected", connect(listener, &none, sizeof none));
    poll_now("then", listener, 0);
    int value = -1;
    len = sizeof value;
    getsockopt(listener, SOL_SOCKET, SO_ACCEPTCONN, &value, &len);
    say("listens %d", value);
    close(listener);
}

static volatile sig_atomic_t pipes;

static void broken(int signal) {
    (void)signal;
    pipes++;
}

/* The peer has closed, and answers what is sent then with a reset. */
static void after_the_end(int fd) {
    char byte;
    signal(SIGPIPE, broken);
    result("the end", recv(fd, &byte, 1, 0));
    result("send", send(fd, "x", 1, 0));
    struct pollfd entry = {.fd = fd};
    poll(&entry, 1, 5000);
    result("send", send(fd, "x", 1, 0));
    say("signals %d", pipes);
    result("recv", recv(fd, &byte, 1, 0));
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    result("recvmsg", recvmsg(fd, &message, 0));
    signal(SIGPIPE, SIG_DFL);
}

static void server(int listener) {
    int fd = accepted(listener);
    late("accepted", fd);
    step(fd);
    char text[256];
    while (recv(fd, text, sizeof text, 0) > 0) {
    }
    close(fd);
    for (int i = 0; i < 2; i++) {
        fd = accepted(listener);
        step(fd);
        if (i == 0)
            recv(fd, text, sizeof text, 0);
        else
            await(fd);
        close(fd);
    }
    for (int i = 0; i < 2; i++) {
        fd = accepted(listener);
        result("undone", recv(fd, text, sizeof text, 0));
        close(fd);
    }
    close(accepted(listener));
}

static void client(address_t peer) {
    int fd = connected(peer);
    await(fd);
    late("connected", fd);
    messages(fd);
    close(fd);
    closed_meanwhile(peer);
    undone(peer);
    fd = connected(peer);
    after_the_end(fd);
    close(fd);
}
