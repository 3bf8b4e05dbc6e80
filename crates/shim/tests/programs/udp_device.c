/* UDP sockets on ANY that are bound to a device hear what comes by it, before they are bound to a port and afterwards. */
#define PARITY_UDP
#include "parity.h"

static int bound_to(const char *device, int is_late) {
    int fd = socket(FAMILY, SOCK_DGRAM, 0);
    address_t any;
    memset(&any, 0, sizeof any);
    any.KIND = FAMILY;
    if (!is_late)
        result("device", setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, device, (socklen_t)strlen(device)));
    result("bind", bind(fd, (struct sockaddr *)&any, sizeof any));
    if (is_late)
        result("device", setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, device, (socklen_t)strlen(device)));
    return fd;
}

static void hears(const char *what, int fd, address_t own) {
    address_t name;
    socklen_t len = sizeof name;
    struct timeval time = {.tv_usec = 300000};
    char text[8] = "";
    int from = socket(FAMILY, SOCK_DGRAM, 0);
    getsockname(fd, (struct sockaddr *)&name, &len);
    own.PORT = name.PORT;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
    sendto(from, "hello", 5, 0, (struct sockaddr *)&own, sizeof own);
    result(what, recv(fd, text, sizeof text, 0));
    close(from);
}

static void server(int fd) { (void)fd; }

static void client(address_t peer) {
    const char *link = getenv("PARITY_LINK");
    for (int is_late = 0; is_late < 2; is_late++) {
        say("late %d", is_late);
        int fd = bound_to(link, is_late);
        hears("the link's", fd, peer);
        result("the other", setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, "lo", 2));
        hears("no longer", fd, peer);
        result("none", setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, "", 0));
        hears("again", fd, peer);
        close(fd);
        fd = bound_to("lo", is_late);
        hears("the other's", fd, peer);
        close(fd);
    }
}
