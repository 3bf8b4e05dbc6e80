/* shutdown in each direction and state. */
#include "parity.h"

static void server(int listener) {
    int fd = accepted(listener);
    await(fd);
    char text[8];
    result("recv after the peer's SHUT_RD", recv(fd, text, sizeof text, MSG_DONTWAIT));
    step(fd);
    result("end", recv(fd, text, sizeof text, 0));
    close(fd);
    fd = accepted(listener);
    result("end of the second", recv(fd, text, sizeof text, 0));
    close(fd);
    result("shutdown of the listener", shutdown(listener, SHUT_RD));
    result("accept after", accept(listener, NULL, NULL));
}

static void client(address_t peer) {
    int fd = socket(FAMILY, SOCK_STREAM, 0);
    char text[8];
    result("not connected", shutdown(fd, SHUT_RDWR));
    close(fd);
    fd = connected(peer);
    result("wrong", shutdown(fd, 7));
    result("SHUT_RD", shutdown(fd, SHUT_RD));
    result("recv", recv(fd, text, sizeof text, 0));
    poll_now("after SHUT_RD", fd, 0);
    step(fd);
    /* Whoever asks is told of an end until it has come. */
    for (int i = 0; i < 500 && recv(fd, text, 1, MSG_PEEK) == 0; i++)
        pause_ms(10);
    result("what came anyway", recv(fd, text, sizeof text, 0));
    result("then", recv(fd, text, sizeof text, 0));
    result("SHUT_WR", shutdown(fd, SHUT_WR));
    int again = 0;
    /* Both ends have closed: the connection goes as soon as the peer has answered. */
    for (int i = 0; i < 500 && (again = shutdown(fd, SHUT_WR)) == 0; i++)
        pause_ms(10);
    result("SHUT_WR in the end", again);
    poll_now("after both", fd, 0);
    result("send", send(fd, "x", 1, MSG_NOSIGNAL));
    close(fd);
    fd = connected(peer);
    result("SHUT_RDWR", shutdown(fd, SHUT_RDWR));
    result("recv", recv(fd, text, sizeof text, 0));
    result("send", send(fd, "x", 1, MSG_NOSIGNAL));
    close(fd);
}
