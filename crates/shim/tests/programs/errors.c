/* Calls in the wrong state. */
#include "parity.h"

static void server(int listener) {
    int fd = accepted(listener);
    char text[4];
    /* From here on this half makes no descriptor, whose number the other one might close by mistake. */
    step(fd);
    result("recv on a listener", recv(listener, text, 1, 0));
    result("send on a listener", send(listener, text, 1, MSG_NOSIGNAL));
    result("connect on a listener", connect(listener, (struct sockaddr *)&where, sizeof where));
    result("listen again", listen(listener, 32));
    result("listen on a connection", listen(fd, 1));
    result("accept on a connection", accept(fd, NULL, NULL));
    result("accept with wrong flags", accept4(listener, NULL, NULL, 0x1234567));
    poll_now("an idle listener", listener, 0);
    nonblocking(listener);
    result("accept of nothing", accept(listener, NULL, NULL));
    await(fd);
    close(fd);
}

static void client(address_t peer) {
    int fd = connected(peer), fresh = socket(FAMILY, SOCK_STREAM, 0);
    char text[4];
    await(fd);
    result("connect again", connect(fd, (struct sockaddr *)&peer, sizeof peer));
    address_t mine;
    getsockname(fd, (struct sockaddr *)&mine, &(socklen_t){sizeof mine});
    result("bind a connection", bind(fd, (struct sockaddr *)&mine, sizeof mine));
    result("connect with a short name", connect(fresh, (struct sockaddr *)&peer, 3));
    peer.KIND = 77;
    result("connect to a strange family", connect(fresh, (struct sockaddr *)&peer, sizeof peer));
    result("accept, not listening", accept(fresh, NULL, NULL));
    result("recv, not connected", recv(fresh, text, 1, 0));
    result("close", close(fresh));
    result("close again", close(fresh));
    result("recv, closed", recv(fresh, text, 1, 0));
    result("negative", recv(-1, text, 1, 0));
    result("huge", recv(1 << 30, text, 1, 0));
    result("wrong type", socket(FAMILY, 99, 0));
    result("wrong protocol", socket(FAMILY, SOCK_STREAM, 99));
    struct pollfd entries[] = {{.fd = fresh, .events = POLLIN}, {.fd = -1}, {.fd = fd, .events = POLLOUT}};
    result("poll", poll(entries, 3, 0));
    events("closed", (unsigned)entries[0].revents);
    events("negative", (unsigned)entries[1].revents);
    events("open", (unsigned)entries[2].revents);
    step(fd);
    close(fd);
}
