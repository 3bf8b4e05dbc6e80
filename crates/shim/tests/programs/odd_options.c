/* Options with values that mean something else than they seem to, and values that are not there. */
#include "parity.h"

static void timeouts(const char *what, int fd, int name) {
    struct timeval odd[] = {{-1, 0}, {-5, 999999}, {0, -1}, {0, 1000000}, {-1, 1000000}, {0, 20000}};
    for (unsigned i = 0; i < sizeof odd / sizeof *odd; i++) {
        say("%s %u", what, i);
        result("set", setsockopt(fd, SOL_SOCKET, name, &odd[i], sizeof odd[i]));
        struct timeval told = {7, 7};
        socklen_t len = sizeof told;
        result("get", getsockopt(fd, SOL_SOCKET, name, &told, &len));
        say("%d, %d", told.tv_sec > 0, told.tv_usec > 0);
    }
}

/* With a time that is over before it begins nobody waits. */
static void at_once(int fd) {
    struct timeval none = {-1, 0};
    char text[4];
    result("at once", setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &none, sizeof none));
    result("nothing", recv(fd, text, sizeof text, 0));
    result("nothing", read(fd, text, sizeof text));
    none.tv_sec = 0;
    result("for ever", setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &none, sizeof none));
}

static int clamp(int fd) {
    int value = -1;
    socklen_t len = sizeof value;
    result("clamp", getsockopt(fd, IPPROTO_TCP, TCP_WINDOW_CLAMP, &value, &len));
    return value;
}

/* MSG_PEEK goes on where it has stopped, and what is read moves it back. */
static void peeks(int fd) {
    int offset = 0;
    socklen_t len = sizeof offset;
    char text[16] = "";
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    result("SO_PEEK_OFF", setsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &offset, sizeof offset));
    poll(&entry, 1, 5000);
    result("peek", recv(fd, text, 2, MSG_PEEK));
    result("peek", recv(fd, text + 2, 2, MSG_PEEK));
    getsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &offset, &len);
    say("%s, at %d", text, offset);
    result("one", recv(fd, text, 1, 0));
    getsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &offset, &len);
    say("at %d", offset);
    result("peek", recv(fd, text, 9, MSG_PEEK));
    say("%.2s", text);
    result("nothing new", recv(fd, text, 9, MSG_PEEK | MSG_DONTWAIT));
    result("all", recv(fd, text, 9, 0));
    say("%.5s", text);
    offset = -1;
    result("off", setsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &offset, sizeof offset));
}

static void server(int listener) {
    struct timeval none = {-1, 0};
    result("listener", setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &none, sizeof none));
    int fd;
    while ((fd = accept(listener, NULL, NULL)) < 0 && errno == EAGAIN)
        pause_ms(1);
    char text[4096];
    long all = 0, got;
    none.tv_sec = 0;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &none, sizeof none);
    await(fd);
    step(fd);
    peeks(fd);
    step(fd);
    while ((got = recv(fd, text, sizeof text, 0)) > 0)
        all += got;
    say("all %ld", all);
    for (int i = 0; i < 20; i++)
        result("back", send(fd, text, sizeof text, MSG_NOSIGNAL));
    close(fd);
}

static void client(address_t peer) {
    int fd = socket(FAMILY, SOCK_STREAM, 0), nought = 0;
    timeouts("receive", fd, SO_RCVTIMEO);
    timeouts("send", fd, SO_SNDTIMEO);
    result("no clamp", setsockopt(fd, IPPROTO_TCP, TCP_WINDOW_CLAMP, &nought, sizeof nought));
    say("is 0: %d", clamp(fd) == 0);
    result("no tos", setsockopt(fd, IPPROTO_IP, IP_TOS, NULL, sizeof(int)));
    result("no tos, no length", setsockopt(fd, IPPROTO_IP, IP_TOS, NULL, 0));
    result("no option", setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, NULL, sizeof(int)));
    result("no option, no length", setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, NULL, 0));
    result("no nodelay", setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, NULL, sizeof(int)));
    result("connect", connect(fd, (struct sockaddr *)&peer, sizeof peer));
    at_once(fd);
    step(fd);
    await(fd);
    send(fd, "abcdef", 6, 0);
    await(fd);
    result("clamp of a connection", setsockopt(fd, IPPROTO_TCP, TCP_WINDOW_CLAMP, &nought, sizeof nought));
    result("no nodelay", setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, NULL, sizeof(int)));
    result("no time", setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, NULL, sizeof(struct timeval)));
    char text[4096] = {0};
    result("send", send(fd, text, sizeof text, 0));
    shutdown(fd, SHUT_WR);
    long all = 0, got;
    while ((got = recv(fd, text, sizeof text, 0)) > 0)
        all += got;
    say("all %ld", all);
    close(fd);
}
