/* TCP_ZEROCOPY_RECEIVE: what cannot be mapped is to be read, and a program that does as it is told gets every byte. */
#include "parity.h"
#include <sys/mman.h>

#define PLACE (64 * 1024)
#define LONG 300000

/* `struct tcp_zerocopy_receive` of linux/tcp.h, as of Linux 5.10; the C library's ends earlier. */
struct received {
    unsigned long address;
    unsigned length, to_be_read, waiting;
    int error;
};

static char *place;

static int ask(int fd, struct received *asked, socklen_t *len) {
    *asked = (struct received){.address = (unsigned long)place, .length = PLACE};
    return getsockopt(fd, IPPROTO_TCP, TCP_ZEROCOPY_RECEIVE, asked, len);
}

static void told(const char *what, int fd, socklen_t len) {
    struct received asked;
    result(what, ask(fd, &asked, &len));
    say("%d bytes, mapped %u, to be read %u, waiting %u, error %d", (int)len, asked.length, asked.to_be_read,
        asked.waiting, asked.error);
}

static void wait_for(int fd, int bytes) {
    for (int there = 0; there < bytes; pause_ms(1))
        ioctl(fd, FIONREAD, &there);
}

static void server(int listener) {
    int fd = accepted(listener);
    static char text[LONG];
    send(fd, text, 100, 0);
    await(fd);
    send(fd, text, LONG, 0);
    close(fd);
}

static void client(address_t peer) {
    int fd = connected(peer);
    static char text[PLACE];
    place = mmap(NULL, PLACE, PROT_READ, MAP_SHARED, fd, 0);
    result("mmap", place == MAP_FAILED ? -1 : 0);
    if (place == MAP_FAILED)
        place = NULL;
    told("nothing sent yet, short", fd, 4);
    wait_for(fd, 100);
    told("a hundred", fd, sizeof(struct received));
    told("the oldest structure", fd, 16);
    result("read", recv(fd, text, sizeof text, 0));
    told("nothing", fd, sizeof(struct received));
    step(fd);
    struct received asked;
    long all = 0, most = 0;
    for (;;) {
        socklen_t len = sizeof asked;
        struct pollfd entry = {.fd = fd, .events = POLLIN};
        poll(&entry, 1, 5000);
        if (ask(fd, &asked, &len) < 0)
            break;
        all += asked.length;
        most = asked.waiting > most ? asked.waiting : most;
        long got = asked.to_be_read ? recv(fd, text, asked.to_be_read, 0) : 0;
        all += got;
    }
    result("the end", -1);
    say("all %ld, many at once %d", all, most > 1000);
    close(fd);
}
