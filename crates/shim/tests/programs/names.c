/* getsockname and getpeername in each state; addresses are compared, never printed. */
#include "parity.h"

static struct sockaddr_in name_of(int fd, int peer, const char *what) {
    struct sockaddr_in name = {0};
    socklen_t len = sizeof name;
    int done = peer ? getpeername(fd, (struct sockaddr *)&name, &len)
                    : getsockname(fd, (struct sockaddr *)&name, &len);
    if (done < 0)
        say("%s: %s", what, error_name(errno));
    else
        say("%s: family %d, len %d, address %s, port %s", what, name.sin_family, (int)len,
            name.sin_addr.s_addr ? "set" : "any", name.sin_port ? "set" : "0");
    return name;
}

static int same(struct sockaddr_in a, struct sockaddr_in b) {
    return a.sin_addr.s_addr == b.sin_addr.s_addr && a.sin_port == b.sin_port;
}

static void server(int listener) {
    name_of(listener, 0, "listener");
    name_of(listener, 1, "listener's peer");
    struct sockaddr_in peer;
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
    struct sockaddr_in told;
    result("recv", recv(fd, &told, sizeof told, 0));
    say("the client's own name is its peer name here: %d", same(told, peer));
    poll(&entry, 1, 2000);
    len = 99;
    char text[4];
    result("recvfrom", recvfrom(fd, text, 4, 0, (struct sockaddr *)&peer, &len));
    say("len %d", (int)len);
    close(fd);
}

static void client(struct sockaddr_in peer) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    name_of(fd, 0, "fresh");
    name_of(fd, 1, "fresh peer");
    connect(fd, (struct sockaddr *)&peer, sizeof peer);
    struct sockaddr_in mine = name_of(fd, 0, "local");
    say("peer is as connected: %d", same(peer, name_of(fd, 1, "peer")));
    send(fd, &mine, sizeof mine, 0);
    pause_ms(50);
    send(fd, "more", 4, 0);
    char byte;
    recv(fd, &byte, 1, 0);
    name_of(fd, 1, "peer after its FIN");
    close(fd);

    struct sockaddr_in any = {.sin_family = AF_INET};
    fd = socket(AF_INET, SOCK_STREAM, 0);
    result("bind to any", bind(fd, (struct sockaddr *)&any, sizeof any));
    name_of(fd, 0, "bound");
    result("bind again", bind(fd, (struct sockaddr *)&any, sizeof any));
    result("listen", listen(fd, 4));
    struct sockaddr_in first = name_of(fd, 0, "listening");
    int second = socket(AF_INET, SOCK_STREAM, 0);
    result("bind to the same", bind(second, (struct sockaddr *)&first, sizeof first));
    first.sin_addr = mine.sin_addr;
    result("bind to the same port of one address", bind(second, (struct sockaddr *)&first, sizeof first));
    result("a short name", bind(second, (struct sockaddr *)&first, 4));
    inet_pton(AF_INET, "192.0.2.77", &first.sin_addr);
    result("bind to nobody's address", bind(second, (struct sockaddr *)&first, sizeof first));
    close(second);
    close(fd);
}
