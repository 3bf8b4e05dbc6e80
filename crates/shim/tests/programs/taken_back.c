/* Calls that do not restart by themselves in the supervisor of a program: while signals come whose handler has calls go on, each byte and
   each datagram goes once, and what is bound is. */
#include "parity.h"
#include "interrupted.h"

enum { ROUNDS = 400, DATAGRAMS = 400 };

/* Numbers that come in a row, and the first one that does not. */
static void read_numbers(int fd, unsigned until) {
    unsigned number, expected = 0;
    while (expected < until && recv(fd, &number, sizeof number, MSG_WAITALL) == sizeof number) {
        if (number != expected) {
            say("%u in place of %u", number, expected);
            return;
        }
        expected++;
    }
    say("%u numbers in a row", expected);
}

static void server(int listener) {
    int fd = accepted(listener);
    read_numbers(fd, ROUNDS);
    for (unsigned number = 0; number < 2 * ROUNDS; number++)
        send(fd, &number, sizeof number, 0);
    char end;
    result("end", recv(fd, &end, 1, 0));
    close(fd);
}

/* Every second number is read. */
static void throw_away(int fd) {
    unsigned number = 0;
    for (unsigned i = 0; i < ROUNDS; i++) {
        long thrown = recv(fd, NULL, sizeof number, MSG_TRUNC | MSG_WAITALL);
        long got = recv(fd, &number, sizeof number, MSG_WAITALL);
        if (thrown != sizeof number || got != sizeof number || number != 2 * i + 1) {
            say("thrown away %ld, received %ld: %u in place of %u", thrown, got, number, 2 * i + 1);
            return;
        }
    }
    say("read up to %u", number);
}

static address_t name_of(int fd) {
    address_t name;
    socklen_t len = sizeof name;
    getsockname(fd, (struct sockaddr *)&name, &len);
    return name;
}

static void datagrams(address_t peer) {
    int from = socket(FAMILY, SOCK_DGRAM, 0), to = socket(FAMILY, SOCK_DGRAM, 0);
    peer.PORT = 0;
    result("bind", bind(to, (struct sockaddr *)&peer, sizeof peer));
    result("bind", bind(from, (struct sockaddr *)&peer, sizeof peer));
    address_t name = name_of(to);
    unsigned number = 0, good = 0;
    for (; good < DATAGRAMS; good++) {
        address_t sender;
        socklen_t len = sizeof sender;
        long sent = sendto(from, &good, sizeof good, 0, (struct sockaddr *)&name, sizeof name);
        long got = recvfrom(to, &number, sizeof number, 0, (struct sockaddr *)&sender, &len);
        if (sent != sizeof good || got != sizeof number || number != good || len != sizeof sender)
            break;
    }
    say("datagrams %u, last %u", good, number);
    close(from);
    close(to);
}

static void client(address_t peer) {
    int fd = connected(peer);
    timer_t timer = start_signals();
    for (unsigned number = 0; number < ROUNDS; number++)
        if (send(fd, &number, sizeof number, number + 1 < ROUNDS ? MSG_MORE : 0) != sizeof number)
            say("send: %s", error_name(errno));
    throw_away(fd);
    datagrams(peer);
    timer_delete(timer);
    close(fd);
}
