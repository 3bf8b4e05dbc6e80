/* MSG_TRUNC of TCP: bytes that are thrown away need no place (tcp(7)). */
#include "parity.h"

static void server(int listener) {
    int fd = accepted(listener);
    result("send", send(fd, "abcdefgh", 8, 0));
    await(fd);
    close(fd);
}

static void client(address_t peer) {
    int fd = connected(peer);
    char text[16] = {0}, *nowhere = NULL;
    result("all are there", recv(fd, text, 8, MSG_PEEK | MSG_WAITALL));
    result("looked at", recv(fd, nowhere, 3, MSG_TRUNC | MSG_PEEK));
    result("thrown away", recv(fd, nowhere, 3, MSG_TRUNC));
    result("thrown away in a place", recv(fd, text, 2, MSG_TRUNC));
    result("the rest", recv(fd, text, sizeof text, 0));
    say("text %s", text);
    result("not waiting", recv(fd, nowhere, 3, MSG_TRUNC | MSG_DONTWAIT));
    step(fd);
    result("end", recv(fd, nowhere, 3, MSG_TRUNC));
    close(fd);
}
