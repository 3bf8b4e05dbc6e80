/* A listener on ANY takes connections to the given address and to loopback, by every way of waiting. */
#include "parity.h"

static int guide;
static address_t loopback;

/* The other half connects to the given address. */
static void from_afar(void) {
    step(guide);
    await(guide);
}

static void from_here(void) {
    int fd = connected(loopback);
    send(fd, "h", 1, 0);
    close(fd);
}

static void serve(int listener, const char *what) {
    int fd = accept(listener, NULL, NULL);
    char byte = '?';
    recv(fd, &byte, 1, 0);
    say("%s: %c", what, byte);
    close(fd);
}

static void by_epoll(int listener) {
    int epoll = epoll_create1(0);
    struct epoll_event wish = {.events = EPOLLIN, .data.u64 = 5}, ready[4];
    result("add", epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &wish));
    result("epoll, nothing", epoll_wait(epoll, ready, 4, 0));
    from_afar();
    result("epoll", epoll_wait(epoll, ready, 4, 1000));
    serve(listener, "epoll");
    from_here();
    result("epoll", epoll_wait(epoll, ready, 4, 1000));
    from_afar();
    pause_ms(50);
    result("both sides are one event", epoll_wait(epoll, ready, 4, 1000));
    close(accepted(listener));
    close(accepted(listener));
    result("none left", epoll_wait(epoll, ready, 4, 0));
    wish.events = EPOLLIN | EPOLLONESHOT;
    result("one-shot", epoll_ctl(epoll, EPOLL_CTL_MOD, listener, &wish));
    from_here();
    result("shot", epoll_wait(epoll, ready, 4, 1000));
    from_afar();
    pause_ms(50);
    result("spent", epoll_wait(epoll, ready, 4, 0));
    close(accepted(listener));
    close(accepted(listener));
    close(epoll);
}

static void server(int first) {
    guide = accepted(first);
    address_t any = {.KIND = FAMILY};
    int listener = listening(any);
    socklen_t len = sizeof any;
    getsockname(listener, (struct sockaddr *)&any, &len);
    loopback = any;
    inet_pton(FAMILY, LOOPBACK, &loopback.ADDRESS);
    send(guide, &any.PORT, sizeof any.PORT, 0);
    say("O_NONBLOCK %d", !!(fcntl(listener, F_GETFL) & O_NONBLOCK));
    from_afar();
    serve(listener, "from afar");
    from_here();
    serve(listener, "from here");

    struct pollfd entry = {.fd = listener, .events = POLLIN};
    result("poll, nothing", poll(&entry, 1, 0));
    from_here();
    result("poll", poll(&entry, 1, 1000));
    serve(listener, "polled");
    from_afar();
    result("poll", poll(&entry, 1, 1000));
    serve(listener, "polled");
    by_epoll(listener);
    nonblocking(listener);
    result("accept of nothing", accept(listener, NULL, NULL));
    say("O_NONBLOCK %d", !!(fcntl(listener, F_GETFL) & O_NONBLOCK));
    close(listener);
    close(guide);
}

static void client(address_t peer) {
    char byte;
    int fd = connected(peer);
    recv(fd, &peer.PORT, sizeof peer.PORT, MSG_WAITALL);
    while (recv(fd, &byte, 1, 0) == 1) {
        int visit = connected(peer);
        send(visit, "a", 1, 0);
        close(visit);
        step(fd);
    }
    close(fd);
}
