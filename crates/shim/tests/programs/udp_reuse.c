/* UDP: several sockets on one port: SO_REUSEADDR gives all to the last, SO_REUSEPORT shares by sender. */
#define PARITY_UDP /* and PARITY_V6 */
#include "parity.h"

enum { SOCKETS = 4, SENDERS = 64 };

static void server(int fd) { (void)fd; }

static int bound(address_t at, int option, const char *what) {
    int fd = socket(FAMILY, SOCK_DGRAM | SOCK_NONBLOCK, 0), on = 1;
    if (option)
        setsockopt(fd, SOL_SOCKET, option, &on, sizeof on);
    result(what, bind(fd, (struct sockaddr *)&at, sizeof at));
    return fd;
}

/* How many datagrams wait, taken. */
static int drain(int fd) {
    char byte[4];
    int count = 0;
    while (recv(fd, byte, sizeof byte, 0) >= 0)
        count++;
    return count;
}

/* The same, of all sockets, once `wanted` have come, or none for a long time. */
static int drain_all(const int *fds, int count, int wanted, int *counts) {
    struct pollfd entries[SOCKETS];
    int all = 0;
    for (int n = 0; n < count; n++) {
        entries[n] = (struct pollfd){.fd = fds[n], .events = POLLIN};
        counts[n] = 0;
    }
    while (all < wanted && poll(entries, (nfds_t)count, 2000) > 0)
        for (int n = 0; n < count; n++) {
            int more = drain(fds[n]);
            counts[n] += more;
            all += more;
        }
    return all;
}

static void client(address_t peer) {
    socklen_t len = sizeof peer;
    int sender = socket(FAMILY, SOCK_DGRAM, 0), fds[SOCKETS], counts[SOCKETS] = {0};
    peer.PORT = 0;
    int first = bound(peer, SO_REUSEADDR, "first");
    getsockname(first, (struct sockaddr *)&peer, &len);
    int refused = bound(peer, 0, "without the option");
    close(refused);
    int last = bound(peer, SO_REUSEADDR, "second");
    for (int n = 0; n < 8; n++)
        sendto(sender, "x", 1, 0, (struct sockaddr *)&peer, sizeof peer);
    int pair[2] = {first, last}, got[SOCKETS];
    drain_all(pair, 2, 8, got);
    say("first %d, last %d", got[0], got[1]);
    close(last);
    sendto(sender, "x", 1, 0, (struct sockaddr *)&peer, sizeof peer);
    say("first %d", drain_all(&first, 1, 1, got));
    close(first);

    peer.PORT = 0;
    for (int n = 0; n < SOCKETS; n++) {
        fds[n] = bound(peer, SO_REUSEPORT, "one of a group");
        len = sizeof peer;
        getsockname(fds[n], (struct sockaddr *)&peer, &len);
    }
    refused = bound(peer, SO_REUSEADDR, "by the other option");
    close(refused);
    int same_each_time = 1, all = 0, busy = 0;
    for (int n = 0; n < SENDERS; n++) {
        int one = socket(FAMILY, SOCK_DGRAM, 0), where = -1;
        for (int turn = 0; turn < 3; turn++)
            sendto(one, "x", 1, 0, (struct sockaddr *)&peer, sizeof peer);
        all += drain_all(fds, SOCKETS, 3, got);
        for (int n = 0; n < SOCKETS; n++) {
            if (!got[n])
                continue;
            same_each_time &= where < 0;
            where = n;
            counts[n] = 1;
        }
        close(one);
    }
    for (int n = 0; n < SOCKETS; n++) {
        busy += counts[n] == 1;
        close(fds[n]);
    }
    say("received %d, each sender at one socket %d, sockets with senders %d", all, same_each_time, busy);
    close(sender);
}
