/* getsockname and getpeername in each state; addresses are compared, never printed. */
#include "parity.h"

static address_t name_of(int fd, int peer, const char *what) {
    address_t name = {0};
    socklen_t len = sizeof name;
    int done = peer ? getpeername(fd, (struct sockaddr *)&name, &len)
                    : getsockname(fd, (struct sockaddr *)&name, &len);
    if (done < 0)
        say("%s: %s", what, error_name(errno));
    else
        say("%s: family %d, len %d, address %s, port %s", what, name.KIND, (int)len,
            is_any(name) ? "any" : "set", name.PORT ? "set" : "0");
    return name;
}

static int same(address_t a, address_t b) {
    return same_host(a, b) && a.PORT == b.PORT;
}

static void server(int listener) {
    name_of(listener, 0, "listener");
    name_of(listener, 1, "listener's peer");
    address_t peer;
    socklen_t len = sizeof peer;
    int fd = accept4(listener, (struct sockaddr *)&peer, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
    say("flags %d %d", !!(fcntl(fd, F_GETFL) & O_NONBLOCK), fcntl(fd, F_GETFD));
    say("accept's peer is getpeername's: %d", same(peer, name_of(fd, 1, "peer")));
    say("local is the listener's: %d", same(name_of(listener, 0, "listener"), name_of(fd, 0, "local")));
    char cut[4];
    len = sizeof cut;
    result("a short buffer", getpeername(fd, (struct sockaddr *)cut, &len));
    say("len %d", (int)len);
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    poll(&entry, 1, 2000);
    address_t told;
    result("recv", recv(fd, &told, sizeof told, 0));
    say("the client's own name is its peer name here: %d", same(told, peer));
    poll(&entry, 1, 2000);
    len = 99;
    char text[4];
    result("recvfrom", recvfrom(fd, text, 4, 0, (struct sockaddr *)&peer, &len));
    say("len %d", (int)len);
    close(fd);
}

static void client(address_t peer) {
    int fd = socket(FAMILY, SOCK_STREAM, 0);
    name_of(fd, 0, "fresh");
    name_of(fd, 1, "fresh peer");
    connect(fd, (struct sockaddr *)&peer, sizeof peer);
    address_t mine = name_of(fd, 0, "local");
    say("peer is as connected: %d", same(peer, name_of(fd, 1, "peer")));
    send(fd, &mine, sizeof mine, 0);
    pause_ms(50);
    send(fd, "more", 4, 0);
    char byte;
    recv(fd, &byte, 1, 0);
    name_of(fd, 1, "peer after its FIN");
    close(fd);

    address_t any = {.KIND = FAMILY};
    fd = socket(FAMILY, SOCK_STREAM, 0);
    result("bind to any", bind(fd, (struct sockaddr *)&any, sizeof any));
    name_of(fd, 0, "bound");
    result("bind again", bind(fd, (struct sockaddr *)&any, sizeof any));
    result("listen", listen(fd, 4));
    address_t first = name_of(fd, 0, "listening");
    int second = socket(FAMILY, SOCK_STREAM, 0);
    result("bind to the same", bind(second, (struct sockaddr *)&first, sizeof first));
    first.ADDRESS = mine.ADDRESS;
    result("bind to the same port of one address", bind(second, (struct sockaddr *)&first, sizeof first));
    result("a short name", bind(second, (struct sockaddr *)&first, 4));
    inet_pton(FAMILY, STRANGER, &first.ADDRESS);
    result("bind to nobody's address", bind(second, (struct sockaddr *)&first, sizeof first));
    close(second);
    close(fd);
}
