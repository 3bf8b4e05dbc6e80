/* An urgent byte alone: poll tells of it, and not of bytes to read, of which there are none. */
#include "parity.h"

static void server(int listener) {
    int fd = accepted(listener);
    step(fd);
    struct pollfd urgent = {.fd = fd, .events = POLLPRI}, entry = {.fd = fd, .events = POLLIN | POLLPRI};
    result("urgent", poll(&urgent, 1, 5000));
    poll(&entry, 1, 0);
    say("then:%s%s", entry.revents & POLLIN ? " IN" : "", entry.revents & POLLPRI ? " PRI" : "");
    char byte = 0;
    result("out of band", recv(fd, &byte, 1, MSG_OOB));
    say("byte %c", byte);
    step(fd);
    await(fd);
    close(fd);
}

static void client(address_t peer) {
    int fd = connected(peer);
    await(fd);
    result("one byte", send(fd, "Y", 1, MSG_OOB));
    await(fd);
    step(fd);
    close(fd);
}
