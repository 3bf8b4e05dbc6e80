/* Calls that do not restart by themselves in the supervisor of a program: while signals come whose handler has calls go on, each byte and
   each datagram goes once, and what is bound is. */
#include "parity.h"
#include "interrupted.h"
#include <stdatomic.h>

/* Where the kernel loses a supervisor's answer a datagram goes twice or is lost, and bytes are thrown away twice: docs/compatibility.md. */
#ifdef STATICALLY_LINKED
enum { ASTRAY_MAX = 8 };
#else
enum { ASTRAY_MAX = 0 };
#endif
enum { ROUNDS = 400, DATAGRAMS = 400, REMINDERS = 20 };
#define REMINDER (~0u)

static address_t reminded;
static atomic_int is_over;

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
    for (unsigned number = 0; number < 2 * (ROUNDS + ASTRAY_MAX); number++)
        send(fd, &number, sizeof number, 0);
    char end;
    result("end", recv(fd, &end, 1, 0));
    close(fd);
}

/* Every second number is read. */
static void throw_away(int fd) {
    unsigned number = 0, astray = 0;
    for (unsigned i = 0; i < ROUNDS; i++) {
        long thrown = recv(fd, NULL, sizeof number, MSG_TRUNC | MSG_WAITALL);
        long got = recv(fd, &number, sizeof number, MSG_WAITALL);
        unsigned expected = 2 * i + 1 + astray;
        if (thrown != sizeof number || got != sizeof number || number < expected || number > expected + ASTRAY_MAX - astray) {
            say("thrown away %ld, received %ld: %u in place of %u", thrown, got, number, expected);
            return;
        }
        astray += number - expected;
    }
    say("every second of %u numbers", 2 * ROUNDS);
}

static address_t name_of(int fd) {
    address_t name;
    socklen_t len = sizeof name;
    getsockname(fd, (struct sockaddr *)&name, &len);
    return name;
}

/* A datagram now and then, so that a receiver whose datagram is lost does not wait for ever. */
static void *remind(void *unused) {
    int fd = socket(FAMILY, SOCK_DGRAM, 0);
    unsigned number = REMINDER;
    while (!atomic_load(&is_over)) {
        pause_ms(100);
        sendto(fd, &number, sizeof number, 0, (struct sockaddr *)&reminded, sizeof reminded);
    }
    close(fd);
    return unused;
}

static void datagrams(address_t peer) {
    int from = socket(FAMILY, SOCK_DGRAM, 0), to = socket(FAMILY, SOCK_DGRAM, 0);
    peer.PORT = 0;
    result("bind", bind(to, (struct sockaddr *)&peer, sizeof peer));
    result("bind", bind(from, (struct sockaddr *)&peer, sizeof peer));
    address_t name = name_of(to);
    pthread_t reminder;
    reminded = name;
    pthread_create(&reminder, NULL, remind, NULL);
    unsigned sent = 0, astray = 0;
    for (; sent < DATAGRAMS; sent++) {
        if (sendto(from, &sent, sizeof sent, 0, (struct sockaddr *)&name, sizeof name) != sizeof sent)
            break;
        unsigned number = 0, reminders = 0;
        do {
            address_t sender;
            socklen_t len = sizeof sender;
            long got = recvfrom(to, &number, sizeof number, 0, (struct sockaddr *)&sender, &len);
            if (got != sizeof number || len != sizeof sender)
                say("received %ld of %u bytes of name", got, len);
            reminders += number == REMINDER;
            astray += number < sent;
        } while (number != sent && reminders < REMINDERS);
        astray += number != sent;
    }
    atomic_store(&is_over, 1);
    pthread_join(reminder, NULL);
    say("datagrams %u, %s astray", sent, astray <= ASTRAY_MAX ? "none or few" : "many");
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
    shutdown(fd, SHUT_WR);
    for (unsigned rest; recv(fd, &rest, sizeof rest, 0) > 0;)
        continue;
    close(fd);
}
