/* MSG_PEEK, MSG_WAITALL, MSG_DONTWAIT, MSG_TRUNC, zero lengths, FIONREAD. */
#include "parity.h"

static void server(int listener) {
    int fd = accepted(listener);
    send(fd, "0123456789", 10, 0);
    await(fd);
    for (int part = 0; part < 4; part++) {
        send(fd, "abcd", 4, 0);
        pause_ms(30);
    }
    await(fd);
    send(fd, "end", 3, 0);
    shutdown(fd, SHUT_WR);
    await(fd);
    close(fd);
}

static void client(address_t peer) {
    int fd = connected(peer), waiting;
    char text[64] = {0};
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    poll(&entry, 1, 2000);
    result("peek 4", recv(fd, text, 4, MSG_PEEK));
    say("text %.4s", text);
    result("peek all", recv(fd, text, sizeof text, MSG_PEEK));
    ioctl(fd, FIONREAD, &waiting);
    say("FIONREAD %d", waiting);
    result("recv 3", recv(fd, text, 3, 0));
    say("text %.3s", text);
    result("trunc 2", recv(fd, text, 2, MSG_TRUNC));
    result("recv rest", recv(fd, text, sizeof text, 0));
    say("text %.5s", text);
    result("recv nothing there", recv(fd, text, sizeof text, MSG_DONTWAIT));
    result("peek nothing there", recv(fd, text, sizeof text, MSG_DONTWAIT | MSG_PEEK));
    result("read of nothing", read(fd, text, 0));
    result("send of nothing", send(fd, text, 0, 0));
    result("out of band", recv(fd, text, 1, MSG_OOB));
    step(fd);
    result("peek and wait for 8", recv(fd, text, 8, MSG_PEEK | MSG_WAITALL));
    result("wait for 16", recv(fd, text, 16, MSG_WAITALL));
    say("text %.16s", text);
    step(fd);
    result("wait for more than comes", recv(fd, text, 16, MSG_WAITALL));
    result("end", recv(fd, text, 16, MSG_WAITALL));
    result("end, peek", recv(fd, text, 16, MSG_PEEK));
    step(fd);
    close(fd);
}
