/* IP_BIND_ADDRESS_NO_PORT: bind(2) takes the address, connect(2) or listen(2) the port. */
#include "parity.h"

#ifndef IP_BIND_ADDRESS_NO_PORT
#define IP_BIND_ADDRESS_NO_PORT 24
#endif

enum { CONNECTIONS = 3 };

static void server(int listener) {
    for (int i = 0; i < CONNECTIONS; i++) {
        int fd = accepted(listener);
        char byte;
        result("server recv", recv(fd, &byte, 1, 0));
        result("server send", send(fd, &byte, 1, 0));
        close(fd);
    }
}

static address_t name_of(int fd) {
    address_t name;
    socklen_t len = sizeof name;
    getsockname(fd, (struct sockaddr *)&name, &len);
    return name;
}

/* A socket of that type that is bound to an address alone. */
static int bound(int type, address_t address) {
    int fd = socket(FAMILY, type, 0), on = 1;
    result("option", setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on));
    address.PORT = 0;
    result("bind", bind(fd, (struct sockaddr *)&address, sizeof address));
    return fd;
}

static void still_on(int fd) {
    int on = -1;
    socklen_t len = sizeof on;
    getsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, &len);
    say("option: %d", on);
}

static void exchange(int fd, address_t peer, address_t from) {
    char byte = 'x';
    result("connect", connect(fd, (struct sockaddr *)&peer, sizeof peer));
    address_t name = name_of(fd);
    say("from the address %d, a port %d", is_any(from) || same_host(name, from), name.PORT != 0);
    still_on(fd);
    result("send", send(fd, &byte, 1, 0));
    result("recv", recv(fd, &byte, 1, 0));
    close(fd);
}

static void client(address_t peer) {
    int first = connected(peer);
    address_t own = name_of(first), any;
    memset(&any, 0, sizeof any);
    any.KIND = FAMILY;
#ifndef PARITY_V6
    /* There it may be any of the network, and another one than connect(2) would choose. */
    if (ntohl(own.ADDRESS.s_addr) == INADDR_LOOPBACK)
        own.ADDRESS.s_addr = htonl(INADDR_LOOPBACK + 1);
#endif
    step(first);
    await(first);
    close(first);
    int fd = bound(SOCK_STREAM, own);
    say("port %d", name_of(fd).PORT != 0);
    close(fd);
    fd = bound(SOCK_STREAM, own);
    exchange(fd, peer, own);
    exchange(bound(SOCK_STREAM, any), peer, any);
    fd = bound(SOCK_STREAM, own);
    result("listen", listen(fd, 1));
    say("port %d", name_of(fd).PORT != 0);
    still_on(fd);
    close(fd);
    fd = bound(SOCK_DGRAM, own);
    result("connect", connect(fd, (struct sockaddr *)&peer, sizeof peer));
    say("from the address %d, a port %d", same_host(name_of(fd), own), name_of(fd).PORT != 0);
    close(fd);
}
