/* Listeners that are made, and connections that are made and accepted, while signals come whose handler has calls go on: each call
   that waits, or does much, comes to its end, and does it once. */
#include "parity.h"
#include "interrupted.h"

enum { ROUNDS = 10 };

static void server(int listener) {
    int told = accepted(listener);
    address_t own;
    socklen_t len = sizeof own;
    getsockname(told, (struct sockaddr *)&own, &len);
    timer_t timer = start_signals();
    int rounds = 0;
    for (; rounds < ROUNDS; rounds++) {
        own.PORT = 0;
        int one = listening(own);
        len = sizeof own;
        getsockname(one, (struct sockaddr *)&own, &len);
        send(told, &own.PORT, sizeof own.PORT, 0);
        int fd = accepted(one);
        char byte;
        if (recv(fd, &byte, 1, 0) != 1 || byte != (char)rounds)
            break;
        close(fd);
        close(one);
    }
    timer_delete(timer);
    say("accepted %d", rounds);
    close(told);
}

static void client(address_t peer) {
    int told = connected(peer);
    timer_t timer = start_signals();
    int rounds = 0;
    while (recv(told, &peer.PORT, sizeof peer.PORT, MSG_WAITALL) == sizeof peer.PORT) {
        int fd = connected(peer);
        char byte = (char)rounds;
        if (send(fd, &byte, 1, 0) != 1 || recv(fd, &byte, 1, 0) != 0)
            break;
        close(fd);
        rounds++;
    }
    timer_delete(timer);
    say("connected %d", rounds);
    close(told);
}
