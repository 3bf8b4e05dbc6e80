/* Datagrams to a port that nobody has, of sockets that are closed before anybody can tell: what the program does afterwards goes on. */
#define PARITY_UDP
#include "parity.h"

static void server(int fd) {
    char text[16];
    address_t from;
    socklen_t len = sizeof from;
    result("one", recvfrom(fd, text, sizeof text, 0, (struct sockaddr *)&from, &len));
    result("back", sendto(fd, text, 5, 0, (struct sockaddr *)&from, len));
}

static int connected_to(address_t peer) {
    int fd = socket(FAMILY, SOCK_DGRAM, 0);
    if (connect(fd, (struct sockaddr *)&peer, sizeof peer) < 0)
        exit(1);
    return fd;
}

static void client(address_t peer) {
    address_t nobody = peer;
    socklen_t len = sizeof nobody;
    nobody.PORT = 0;
    int fd = socket(FAMILY, SOCK_DGRAM, 0);
    if (bind(fd, (struct sockaddr *)&nobody, sizeof nobody) < 0 || getsockname(fd, (struct sockaddr *)&nobody, &len) < 0)
        exit(1);
    close(fd);
    long sent = 0;
    for (int round = 0; round < 10; round++) {
        fd = connected_to(nobody);
        sent += send(fd, "", 0, 0) == 0;
        shutdown(fd, SHUT_RDWR);
        close(fd);
        fd = connected_to(nobody);
        sent += send(fd, "x", 1, 0) == 1;
        close(fd);
    }
    say("sent: %ld", sent);
    /* Those who look now and then for sockets that nobody has any more do so in this time. */
    pause_ms(500);
    char text[16];
    fd = connected_to(peer);
    result("to who is there", send(fd, "hello", 5, 0));
    result("back", recv(fd, text, sizeof text, 0));
    close(fd);
}
