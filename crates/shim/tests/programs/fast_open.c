/* TCP Fast Open: MSG_FASTOPEN with and without a cookie, TCP_FASTOPEN_CONNECT, TCP_FASTOPEN and its key. */
#include "parity.h"

#ifndef TCP_FASTOPEN_CONNECT
#define TCP_FASTOPEN_CONNECT 30
#endif
#ifndef TCP_FASTOPEN_KEY
#define TCP_FASTOPEN_KEY 33
#endif

/* However fast an answer comes, the call that did not wait has not seen it. */
enum { WITHOUT_WAITING = 20 };

/* TCPI_OPT_SYN_DATA: data went with a SYN and arrived. */
static int syn_data(int fd) {
    struct tcp_info info;
    socklen_t len = sizeof info;
    memset(&info, 0, sizeof info);
    getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len);
    return info.tcpi_options >> 5 & 1;
}

static void option(const char *what, int fd, int name, int value) {
    int got = -1;
    socklen_t len = sizeof got;
    result(what, setsockopt(fd, IPPROTO_TCP, name, &value, sizeof value));
    getsockopt(fd, IPPROTO_TCP, name, &got, &len);
    say("%s is %d", what, got);
}

static void serve(const char *what, int listener) {
    char bytes[64] = "";
    int fd = accepted(listener);
    long got = recv(fd, bytes, sizeof bytes - 1, 0);
    say("%s: %ld %s, in the SYN %d", what, got, bytes, syn_data(fd));
    send(fd, "answer", 6, MSG_NOSIGNAL);
    result("end", recv(fd, bytes, sizeof bytes, 0));
    close(fd);
}

static void server(int listener) {
    int fd = accepted(listener);
    char key[32];
    socklen_t len = sizeof key;
    option("TCP_FASTOPEN", listener, TCP_FASTOPEN, 5);
    result("-1", setsockopt(listener, IPPROTO_TCP, TCP_FASTOPEN, &(int){-1}, sizeof(int)));
    result("a key", setsockopt(listener, IPPROTO_TCP, TCP_FASTOPEN_KEY, "0123456789abcdef", 16));
    result("half a key", setsockopt(listener, IPPROTO_TCP, TCP_FASTOPEN_KEY, "01234567", 8));
    result("the key", getsockopt(listener, IPPROTO_TCP, TCP_FASTOPEN_KEY, key, &len));
    say("it has %d bytes: %.16s", (int)len, key);
    step(fd);
    serve("first", listener);
    serve("second", listener);
    for (int time = 0; time < WITHOUT_WAITING; time++)
        serve("without waiting", listener);
    serve("TCP_FASTOPEN_CONNECT", listener);
    serve("sendmsg", listener);
    close(fd);
}

static void answered(const char *what, int fd) {
    char bytes[64] = "";
    long got = recv(fd, bytes, sizeof bytes - 1, 0);
    say("%s: %ld %s, in the SYN %d", what, got, bytes, syn_data(fd));
    close(fd);
}

static void client(address_t peer) {
    struct sockaddr *to = (struct sockaddr *)&peer;
    socklen_t len = sizeof peer;
    int first = connected(peer);
    await(first);

    int fd = socket(FAMILY, SOCK_STREAM, 0);
    result("asks for a cookie", sendto(fd, "one", 3, MSG_FASTOPEN, to, len));
    answered("answer", fd);

    fd = socket(FAMILY, SOCK_STREAM, 0);
    result("has a cookie", sendto(fd, "two", 3, MSG_FASTOPEN, to, len));
    result("again", sendto(fd, "x", 1, MSG_FASTOPEN, to, len));
    answered("answer", fd);

    for (int time = 0; time < WITHOUT_WAITING; time++) {
        fd = socket(FAMILY, SOCK_STREAM, 0);
        nonblocking(fd);
        result("does not wait", sendto(fd, "three", 5, MSG_FASTOPEN, to, len));
        struct pollfd readable = {.fd = fd, .events = POLLIN};
        result("poll", poll(&readable, 1, 2000));
        result("connect", connect(fd, to, len));
        result("connect", connect(fd, to, len));
        answered("answer", fd);
    }

    fd = socket(FAMILY, SOCK_STREAM, 0);
    option("TCP_FASTOPEN_CONNECT", fd, TCP_FASTOPEN_CONNECT, 1);
    result("2", setsockopt(fd, IPPROTO_TCP, TCP_FASTOPEN_CONNECT, &(int){2}, sizeof(int)));
    result("connect", connect(fd, to, len));
    poll_now("before the first write", fd, 0);
    say("error %s", error_name(socket_error(fd)));
    nonblocking(fd);
    char byte;
    result("recv", recv(fd, &byte, 1, 0));
    result("connect again", connect(fd, to, len));
    result("write", write(fd, "four", 4));
    result("poll", poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 2000));
    answered("answer", fd);

    fd = socket(FAMILY, SOCK_STREAM, 0);
    struct iovec parts[2] = {{"fi", 2}, {"ve", 2}};
    struct msghdr message = {.msg_name = to, .msg_namelen = len, .msg_iov = parts, .msg_iovlen = 2};
    result("sendmsg", sendmsg(fd, &message, MSG_FASTOPEN));
    answered("answer", fd);

    struct sockaddr nobody = {.sa_family = AF_UNSPEC};
    fd = socket(FAMILY, SOCK_STREAM, 0);
    result("to nobody", sendto(fd, "x", 1, MSG_FASTOPEN, &nobody, sizeof nobody));
    /* A port that somebody holds and nobody listens on. */
    int holder = socket(FAMILY, SOCK_STREAM, 0);
    address_t closed = peer;
    closed.PORT = 0;
    bind(holder, (struct sockaddr *)&closed, sizeof closed);
    getsockname(holder, (struct sockaddr *)&closed, &len);
    result("to a closed port", sendto(fd, "x", 1, MSG_FASTOPEN, (struct sockaddr *)&closed, len));
    nonblocking(fd);
    result("and once more", sendto(fd, "x", 1, MSG_FASTOPEN, (struct sockaddr *)&closed, len));
    pause_ms(100);
    poll_now("after it", fd, 1000);
    result("send", send(fd, "x", 1, MSG_NOSIGNAL));
    close(fd);
    close(holder);
    close(first);
}
